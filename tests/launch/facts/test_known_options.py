"""Which release and branch has an option: the table against what Megatron-LM's tags say."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.facts.known_options import all_options, revision_of, revisions_with


@pytest.mark.parametrize(
    ("option", "first", "last"),
    [
        ("context_parallel_size", "0.4.0", "dev"),
        ("data_impl", "0.2.0", "0.2.0"),
        ("hybrid_context_parallel", "0.16.0", "dev"),
        ("window_size", "0.15.0", "dev"),
        ("dataloader_inter_document_masking", "0.19.0", "dev"),
        ("moe_extended_tp", "0.8.0", "0.16.1"),
        ("dynamic_context_parallel", "dev", "dev"),
        ("cp_partition_mode", "dev", "dev"),
        ("export_te_mcore_model", "0.13.0", "dev"),  # pretrain_gpt.py adds it, for ModelOpt
    ],
)
def test_an_option_is_there_from_its_first_revision_to_its_last(option: str, first: str, last: str) -> None:
    revisions = revisions_with(option)
    assert (revisions[0], revisions[-1]) == (first, last)


@pytest.mark.parametrize("option", ["fp8_dot_product_attention", "fp8_multi_head_attention", "tp_only_amax_red"])
def test_a_field_of_the_config_is_no_option_by_that_alone(option: str) -> None:
    assert option not in all_options()


@pytest.mark.parametrize(
    ("release", "branch", "revision"),
    [
        ((0, 16, 1), "main", "0.16.1"),
        ((0, 19, 2), "main", "0.19.0"),
        ((0, 12, 1), "main", "0.12.0"),
        ((0, 9, 0), "main", None),
        ((0, 20, 0), "main", "main"),
        ((0, 21, 0), "main", None),
        ((0, 19, 0), "dev", "dev"),
        ((0, 18, 0), "dev", None),
        ((0, 19, 0), None, None),
    ],
)
def test_a_version_has_the_options_of_the_release_before_it_or_of_its_branch(
    release: tuple[int, int, int], branch: str | None, revision: str | None
) -> None:
    assert revision_of(release, branch) == revision
