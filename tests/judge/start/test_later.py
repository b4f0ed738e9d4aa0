"""What a newer release refuses and the stated one does not check."""

from __future__ import annotations

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for

OVERLAP = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1 --bf16 --disable-bias-linear --num-experts 8 --moe-token-dispatcher-type alltoall "
    "--expert-model-parallel-size 2 --overlap-moe-expert-parallel-comm"
)
RECOMPUTED = f"{OVERLAP} --recompute-granularity selective --recompute-modules moe"


def report(words: str, *assumes: str) -> Report:
    options = LoadOptions(dialect="mlm", words=tuple(words.split()), assumes=assumes)
    return check_launch(load_launch("", options), rules_for, fixes=False)


def since(words: str, *assumes: str) -> list[Finding]:
    """The findings of newer releases alone."""
    return [one for one in report(words, *assumes).findings if "but may not work with it" in one.problem.message]


def test_what_a_newer_release_refuses_is_an_info_that_names_both_releases() -> None:
    # Megatron-LM#3917 added the assertion in 0.17.
    (finding,) = since(RECOMPUTED, "mcore=0.16.1")
    assert (finding.severity, finding.rule.id) == ("info", "START003")
    assert finding.problem.message.startswith("0.16.1 doesn't check it") and "(0.19.0)" in finding.problem.message
    assert "disable moe in recompute_modules" in finding.problem.message
    assert report(RECOMPUTED, "mcore=0.16.1").verdict == report(OVERLAP, "mcore=0.16.1").verdict


def test_a_release_that_checks_it_refuses_it_itself() -> None:
    assert since(RECOMPUTED, "mcore=0.17.1") == []
    assert any(one.severity == "error" for one in report(RECOMPUTED, "mcore=0.17.1").findings)


def test_nothing_is_said_of_newer_releases_without_a_statement_or_where_they_accept_it() -> None:
    assert since(RECOMPUTED) == [] and since(OVERLAP, "mcore=0.16.1") == []


def test_an_option_that_is_gone_ends_the_comparison() -> None:
    # --use-custom-fsdp is --use-megatron-fsdp since 0.14.
    assert since(f"{RECOMPUTED} --use-custom-fsdp", "mcore=0.13.1") == []
