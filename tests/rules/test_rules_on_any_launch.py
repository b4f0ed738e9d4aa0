"""Rules over launches that nobody meant: unknown facts, null, odd texts, huge and negative numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import DIALECTS, Fact, Reading
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.rules.registry import RULES
from support.selection import examples

HUGE = 10**12

_sizes = st.one_of(st.integers(1, 16), st.sampled_from([32, 64, 72, 4096, 131072, HUGE]))
_integers = st.one_of(st.integers(-4, 64), st.sampled_from([-HUGE, HUGE]))
_words = st.sampled_from(
    [
        "",
        "auto",
        "flash",
        "fused",
        "unfused",
        "local",
        "vanilla",
        "learnable",
        "none",
        "offline",
        "sft",
        "dsa",
        "gated_delta_net",
        "delayed",
        "tensorwise",
        "mxfp8",
        "hybrid",
        "e4m3",
        "srun",
        "torchrun",
        "block",
        "cyclic",
        "sm90",
        "sm100",
        "3.0.0",
        "4",
        "tp-cp-ep-dp-pp",
        "tp-cp-ep-pp-dp",
        "pp-cp",
        "-",
        "causal",
        "arbitrary",
        "M-M*-",
        "ü",
    ]
)
_comm = st.sampled_from(["p2p", "a2a", "all_gather", "a2a+p2p", "allgather", "", None])
_by_type: dict[str, st.SearchStrategy[Any]] = {
    "size": _sizes,
    "int": _integers,
    "bool": st.booleans(),
    "str": _words,
    "sizes": st.lists(_integers, max_size=4).map(tuple),
    "comm": st.one_of(_comm, st.lists(_comm, max_size=6).map(tuple)),
    "float": st.floats(allow_nan=True),
    "floats": st.lists(st.floats(allow_nan=True), max_size=4).map(tuple),
    "version": st.sampled_from(
        [
            "0.12.3",
            "0.16.1",
            "0.17",
            "0.20.0.dev0",
            "1.9",
            "1.12.0",
            "2.8",
            "2.14.0",
            "2.15",
            "2.19.0",
            "2.20.2",
            "latest",
            "",
            "0.4.2+abc",
        ]
    ),
    "window": st.tuples(_integers, _integers),
    "layers": st.one_of(_integers, _words, st.lists(_integers, max_size=4).map(tuple)),
    "any": st.one_of(_integers, _words, st.lists(_integers, max_size=4), st.just({"a": 1})),
}


def _fact_of(row: FactSpec) -> st.SearchStrategy[Fact]:
    values = st.one_of(st.none(), _by_type[row.type], _by_type[row.type], _by_type[row.type])
    return values.map(lambda value: Fact(value, "assumed"))


_facts = st.fixed_dictionaries({}, optional={name: _fact_of(row) for name, row in FACTS.items()})


@settings(max_examples=examples(quick=12, full=400), derandomize=True)
@given(dialect=st.sampled_from(DIALECTS), facts=_facts, complete=st.booleans())
def test_no_launch_makes_a_rule_raise(dialect: Any, facts: dict[str, Fact], complete: bool) -> None:
    launch = build_launch(
        Reading(dialect, "-", "yaml", complete=complete, role="actor_rollout_ref.actor"), assumed=facts
    )
    report = check_launch(launch, RULES, fixes=False)
    assert report.applied + len(report.not_checked) <= len(RULES)


@settings(max_examples=examples(quick=8, full=60), derandomize=True)
@given(dialect=st.sampled_from(DIALECTS), facts=_facts)
@example(
    dialect="slime",
    facts={
        "world_size": Fact(1, "assumed"),
        "tp": Fact(2, "assumed"),
        "actor_num_nodes": Fact(1, "assumed"),
        "actor_num_gpus_per_node": Fact(None, "assumed"),
    },
)
def test_no_launch_makes_a_fix_raise(dialect: Any, facts: dict[str, Fact]) -> None:
    launch = build_launch(Reading(dialect, "-", "yaml", role="actor_rollout_ref.actor"), assumed=facts)
    for finding in check_launch(launch, RULES).findings:
        for fix in finding.fixes:
            assert fix.overrides, f"{finding.rule.id} offers a fix that changes nothing"


def test_an_empty_launch_has_no_finding() -> None:
    for dialect in DIALECTS:
        launch = build_launch(Reading(dialect, "-", "overrides", complete=False))
        report = check_launch(launch, RULES)
        assert report.findings == ()
        assert report.not_checked, "a launch of which nothing is known passes no rule"
