"""Upstream's keys are all there, and a mistyped one finds the key it was meant to be."""

from __future__ import annotations

from pathlib import Path

import known_keys as known_keys_program
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_hcp.launch.dialects.known_keys import is_known, near_miss, one_edit_apart
from megatron_hcp.launch.dialects.slime import SLIME
from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.fact import Dialect

A = "actor_rollout_ref.actor.megatron"


@pytest.mark.parametrize(
    ("dialect", "key", "meant"),
    [
        ("mlm", "hierarchical_context_parallel_size", "hierarchical_context_parallel_sizes"),
        ("mlm", "context_parallell_size", "context_parallel_size"),
        ("mlm", "cp_comm_tpye", "cp_comm_type"),
        ("bridge", "model.hierarchical_context_parallel_size", "model.hierarchical_context_parallel_sizes"),
        ("bridge-provider", "model.cp_com_type", "model.cp_comm_type"),
        ("bridge", "modl.cp_comm_type", "model.cp_comm_type"),
        ("bridge", "dataset.packed_sequence_spec.pad_seq_to_mult", "dataset.packed_sequence_specs.pad_seq_to_mult"),
        ("verl", f"{A}.context_parallel_sizes", f"{A}.context_parallel_size"),
        ("verl", f"{A}.override_transformer_config.cp_comm_typ", f"{A}.override_transformer_config.cp_comm_type"),
        ("verl", f"{A}.override_ddp_config.average_in_colective", f"{A}.override_ddp_config.average_in_collective"),
        ("slime", "actor_num_node", "actor_num_nodes"),
        ("ms-swift", "context_parallel_sizes", "context_parallel_size"),
        ("nemo-rl", "policy.megatron_cfg.context_parallel_sizes", "policy.megatron_cfg.context_parallel_size"),
        (
            "nemo-rl",
            "policy.megatron_cfg.model_overrides.cp_com_type",
            "policy.megatron_cfg.model_overrides.cp_comm_type",
        ),
        ("verl", "engine.context_parallel_siz", "engine.context_parallel_size"),
    ],
)
def test_one_edit_away_from_a_known_key_is_that_key(dialect: Dialect, key: str, meant: str) -> None:
    assert near_miss(dialect, key) == meant


@pytest.mark.parametrize(
    ("dialect", "key"),
    [
        ("mlm", "context_parallel_size"),
        ("mlm", "fp8"),
        ("mlm", "adam_beta1"),
        ("mlm", "adam_beta2"),
        ("mlm", "no_rope_fusion"),
        ("mlm", "my_own_flag"),
        ("mlm", "x"),
        ("bridge", "model._target_"),
        ("bridge", "model.attention_backend._args_"),
        ("bridge", "model.transformer.cp_comm_type"),
        ("verl", f"{A}.override_transformer_config.anything_else"),
        ("verl", "reward.my_setting"),
        ("slime", "sglang_ep_size"),
        ("nemo-rl", "env.my_environment.num_worker"),
    ],
)
def test_a_known_key_and_a_key_of_ones_own_are_no_near_miss(dialect: Dialect, key: str) -> None:
    assert near_miss(dialect, key) is None


@pytest.mark.parametrize(
    ("dialect", "role"),
    [
        ("mlm", ""),
        ("slime", ""),
        ("ms-swift", ""),
        ("bridge", ""),
        ("verl", "actor_rollout_ref.actor"),
        ("verl", "critic"),
        ("verl", "engine"),
    ],
)
def test_every_key_of_the_fact_table_is_upstreams(dialect: Dialect, role: str) -> None:
    # --world-size is of Bridge's converter; the others are of slime and miles, whose keys are Megatron-LM's and these.
    ours = {"world_size", *(key for spec in SLIME.rows for key in spec.mlm)}
    ours |= {"virtual_pipeline_model_parallel_size"} if dialect in ("mlm", "slime") else set()  # validate_args makes it
    unknown = {key for key in index_of(dialect, role) if not is_known(dialect, key)} - ours
    unknown -= {
        f"dataset.dataset_kwargs.{key}" for key in ("chat", "pad_to_max_length")
    }  # the keys of that dictionary are a dataset's
    unknown -= {"critic.router_replay.mode"}  # the actor's and the reference's key under the critic's prefix
    unknown = {
        key for key in unknown if ".model.override_config." not in f".{key}"
    }  # fields of the model's config.json
    # Bridge and verl pass on what megatron-core's dev branch has, which neither a wheel nor their checkouts hold.
    if dialect not in ("mlm", "slime"):
        unknown = {key for key in unknown if key.rpartition(".")[2] != "cp_partition_mode"}
    assert unknown == set()


@pytest.mark.upstream
def test_the_file_holds_every_key_that_the_released_packages_declare(upstream: Path) -> None:
    newest = [known_keys_program.wheels(upstream, name)[-1:] for name in ("megatron-core", "megatron-bridge", "verl")]
    found = known_keys_program.collect(*newest)
    file = known_keys_program.read()
    assert {name: found[name] - file[name] for name in found} == {name: set() for name in found}
    del found["mlm"]  # a wheel has hardly a program of Megatron-LM
    assert all(len(keys) > 20 for keys in found.values())
    assert known_keys_program.written(file) == known_keys_program.TARGET.read_text(encoding="utf-8")


words = st.text("abc", max_size=6)


@given(words, words)
def test_one_edit_is_what_a_search_over_all_edits_finds(first: str, second: str) -> None:
    cuts = [(first[:i], first[i:]) for i in range(len(first) + 1)]
    edits = {a + b[1:] for a, b in cuts if b} | {a + c + b for a, b in cuts for c in "abc"}
    edits |= {a + c + b[1:] for a, b in cuts if b for c in "abc"}
    edits |= {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    assert one_edit_apart(first, second) == (second in edits - {first})
