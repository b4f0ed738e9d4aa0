"""A launch made small for a computed step: what stays, what shrinks, what is left out, and the runs that explain."""

from __future__ import annotations

import pytest

from megatron_hcp.dryrun.small import small_run
from megatron_hcp.ground.errors import HcpError
from support.dry_runs import launch_of

pytestmark = pytest.mark.upstream


def value(words: tuple[str, ...], option: str) -> str | None:
    return words[words.index(option) + 1] if option in words else None


def test_a_rank_keeps_its_heads_and_its_communication_type_and_widths_shrink() -> None:
    run = small_run(launch_of("--cp-comm-type a2a"), 4)
    words = run.pairs[0].words
    assert value(words, "--cp-comm-type") == "a2a"
    assert value(words, "--num-attention-heads") == "8"  # 16 over TP 2
    assert int(value(words, "--hidden-size") or 0) < 1024 and int(value(words, "--seq-length") or 0) < 8192
    assert "TP: 2 -> 1" in run.plan.scaled and "heads: 16 -> 8" in run.plan.scaled


def test_what_is_left_out_is_not_among_the_words_and_is_listed() -> None:
    run = small_run(launch_of(), 4)
    said = " ".join(run.plan.missing)
    for option in ("bf16", "use_distributed_optimizer", "sequence_parallel", "tensor_model_parallel_size"):
        assert f"--{option.replace('_', '-')}" not in run.pairs[0].words
        assert option in said


def test_the_run_without_context_parallelism_differs_in_nothing_else() -> None:
    more = "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"
    pair = small_run(launch_of(more), 4).pairs[0]
    removed = [word for word in pair.words if word.startswith("--") and word not in pair.alone]
    assert set(removed) == {"--context-parallel-size", "--cp-comm-type", "--hierarchical-context-parallel-sizes"}
    assert not set(pair.alone) - set(pair.words)


def test_runs_that_explain_take_back_one_thing_that_the_launch_has() -> None:
    plain = [pair.name for pair in small_run(launch_of(), 4).pairs]
    assert plain == ["", "--calculate-per-token-loss"]
    per_token = small_run(launch_of("--calculate-per-token-loss --mtp-num-layers 1"), 4).pairs
    assert [pair.is_mean_of_group for pair in per_token] == [False, True, False]
    assert "--mtp-num-layers" not in per_token[2].words and "--mtp-num-layers" in per_token[1].words


def test_a_model_with_mamba_layers_is_refused() -> None:
    with pytest.raises(HcpError, match="hybrid"):
        small_run(launch_of("--hybrid-override-pattern M*M*"), 4)
