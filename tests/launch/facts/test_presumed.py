"""What an unknown recipe is presumed to leave alone, and how many recipes say so."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.dialects.table import FACTS, default_of
from megatron_hcp.launch.facts.presumed import presumptions
from megatron_hcp.launch.facts.spec import UNKNOWN
from support.rows import rows

SPELLED = {"cp_comm_type": "p2p", "attention_backend": "auto"}
"""Where Bridge's default is None: the word that Transformer Engine takes it for."""


@rows("name", sorted(presumptions()))
def test_what_is_presumed_is_bridges_own_default_of_a_key_that_it_has(name: str) -> None:
    default = default_of(FACTS[name], "bridge")
    assert FACTS[name].bridge and default is not UNKNOWN
    assert presumptions()[name].value == SPELLED.get(name, default)


def test_no_recipe_sets_the_hierarchical_sizes_and_few_set_what_else_is_presumed() -> None:
    assert presumptions()["hcp_sizes"].recipes_set == 0
    for presumption in presumptions().values():
        assert presumption.recipes > 500
        assert 0 <= presumption.recipes_set <= 0.15 * presumption.recipes


@pytest.mark.parametrize(
    "name",
    "calculate_per_token_loss sequence_parallel tp pp cp ep heads num_query_groups num_layers seq_length thd packing "
    "packed_sequence_size micro_batch_size global_batch_size attention_variant fp8".split(),
)
def test_what_recipes_vary_is_not_presumed(name: str) -> None:
    assert name not in presumptions()


@pytest.mark.parametrize(
    "name", "cp_comm_type window_size window_attn_skip_freq softmax_type mla attention_backend transformer_impl".split()
)
def test_what_the_rules_on_context_parallelism_ask_for_is_presumed(name: str) -> None:
    assert name in presumptions()
