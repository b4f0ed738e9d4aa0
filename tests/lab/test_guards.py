"""lab/guards.py: a disagreement is one of a guard that was decided, and of what a rule says of the start."""

from __future__ import annotations

from functools import cache

import guards
from agree.megatron_lm import report_on
from agree.megatron_lm_launches import Drawn

DYNAMIC = (
    "--bf16 --mock-data --micro-batch-size 4 --num-attention-heads 12 --hidden-size 768 --seq-length 8190 "
    "--num-layers 12 --max-position-embeddings 16384 --tensor-model-parallel-size 2 --hybrid-context-parallel "
    "--calculate-per-token-loss --global-batch-size 12 --spec local --max-seqlen-per-dp-cp-rank 4096"
)

links = cache(guards.links)


def test_a_guard_that_depends_on_what_could_not_be_read_disagrees_with_no_rule() -> None:
    # DCP007 is right: upstream's own start ends in its assert. How ranks form groups is not read.
    report = report_on(Drawn(tuple(DYNAMIC.split()), 2, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), ["mcore=0.19.0"])
    cited = links("0.19.0")
    (even,) = [guard for guard, rules in cited.items() if "DCP007" in {rule.id for rule in rules}]
    assert even in report.judged_by[0].blocked
    assert "DCP007" in {finding.rule.id for finding in report.findings}
    assert guards.disagreements(report, cited) == []


def test_a_rule_that_refuses_where_the_guard_that_it_cites_passes_disagrees() -> None:
    report = report_on(Drawn(tuple(DYNAMIC.split()), 2, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}), ["mcore=0.19.0"])
    (judged,) = report.judged_by
    decided = report._replace(judged_by=(judged._replace(blocked=frozenset()),))
    assert [one.rule for one in guards.disagreements(decided, links("0.19.0"))] == ["DCP007"]
