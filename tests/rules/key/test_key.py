"""KEY001: a slip in a key is found, a real key and a key of one's own are not."""

from __future__ import annotations

import pytest

from hcp.launch.build import build_launch
from hcp.launch.fact import Dialect
from hcp.launch.read import read_text
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID
from hcp.rules.report import Finding
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("KEY001", "mlm", "", "", "not concerned"),
    ("KEY001", "mlm", "--seq-lenght 4096", "", "error crash config"),
    ("KEY001", "bridge", "model.cp_com_type=a2a", "", "error silent never"),
    ("KEY001", "bridge", "train.train_iter=10", "", "warning silent never"),
    (
        "KEY001",
        "bridge",
        "mode: pretrain\nmodel: {seq_length: 64}\n",
        "",
        "fine",
    ),  # one word beside the section `model`
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("KEY001", "mlm", "--seq-lenght 4096", "", "stops at an option"),
    (
        "KEY001",
        "bridge",
        "model.cp_com_type=a2a",
        "",
        "so cp_comm_type keeps another value | model.cp_com_type | model.cp_comm_type",
    ),
    (
        "KEY001",
        "bridge",
        "train.train_iter=10 model.cp_com_type=a2a",
        "",
        "model.cp_com_type, and 1 more | model.cp_comm_type",
    ),
]


def finding_of(dialect: Dialect, text: str) -> Finding | None:
    report = check_launch(build_launch(read_text(text, "launch", dialect=dialect)), (BY_ID["KEY001"],))
    return report.findings[0] if report.findings else None


@pytest.mark.parametrize(
    ("dialect", "text", "meant", "severity"),
    [
        (
            "bridge",
            "model.hierarchical_context_parallel_size=[2,2]\n",
            "model.hierarchical_context_parallel_sizes",
            "error",
        ),
        ("bridge", "model.cp_com_type=a2a\n", "model.cp_comm_type", "error"),
        (
            "verl",
            "+actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_typ=a2a\n",
            "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type",
            "error",
        ),
        (
            "verl",
            "actor_rollout_ref.actor.megatron.contxt_parallel_size=2\n",
            "actor_rollout_ref.actor.megatron.context_parallel_size",
            "error",
        ),
        ("bridge", "train.train_iter=10\n", "train.train_iters", "warning"),
    ],
)
def test_key001_a_slip_names_what_was_meant_and_weighs_what_hangs_on_it(
    dialect: Dialect, text: str, meant: str, severity: str
) -> None:
    found = finding_of(dialect, text)
    assert found is not None
    assert (found.problem.wanted, found.severity, found.effect) == (meant, severity, "silent")
    assert found.location is not None and found.location.line == 1


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("bridge", "model.fp8=hybrid\nmodel.fp4=null\n"),
        ("bridge", "optimizer.adam_beta1=0.9\noptimizer.adam_beta2=0.95\n"),
        ("bridge", "model.something_of_our_own=1\n"),
        ("verl", "trainer.our_own_switch=true\n"),
    ],
)
def test_key001_neighbouring_real_keys_and_own_keys_pass(dialect: Dialect, text: str) -> None:
    assert finding_of(dialect, text) is None


def test_key001_on_a_command_line_a_slip_stops_the_launch() -> None:
    report = check_launch(
        build_launch(read_text("pretrain_gpt.py --adam-beta1 0.9 --contex-parallel-size 2\n", "run.sh", dialect="mlm")),
        (BY_ID["KEY001"],),
    )
    assert [(f.problem.wanted, f.severity, f.effect) for f in report.findings] == [
        ("--context-parallel-size", "error", "crash")
    ]
