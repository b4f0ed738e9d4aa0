"""KEY001: a slip in a key is found, a real key and a key of one's own are not."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import BY_ID
from support.launches import DYNAMIC, HYBRID
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("KEY001", "mlm", "", "", "not concerned"),
    ("KEY001", "mlm", "--seq-lenght 4096", "", "error crash config"),
    ("KEY001", "mlm", "--seq_length 4096", "", "error crash config"),
    ("KEY001", "mlm", "--log_interval 10", "", "warning crash config"),
    ("KEY001", "mlm", "--our_own 10", "", "fine"),
    ("KEY001", "mlm", "--override-opt_param-scheduler", "", "fine"),  # as releases before 0.16 spell it
    ("KEY001", "mlm", "MODEL_ARGS:\n  --seq_length: 4096\n", "", "error crash config"),
    ("KEY001", "ms-swift", "--model x --context_parallel_size 2", "", "fine"),
    ("KEY001", "bridge", "model.cp_com_type=a2a", "", "error crash config"),
    ("KEY001", "bridge", "+model.cp_com_type=a2a", "", "error silent never"),
    ("KEY001", "bridge", "++model.cp_com_type=a2a", "", "error silent never"),
    ("KEY001", "bridge", "model:\n  cp_com_type: a2a\n  seq_length: 64\n", "", "error silent never"),
    ("KEY001", "bridge", "train.train_iter=10", "", "warning crash config"),
    (
        "KEY001",
        "bridge",
        "mode: pretrain\nmodel: {seq_length: 64}\n",
        "",
        "fine",
    ),  # one word beside the section `model`
    ("KEY002", "mlm", "--window-size 128,0", "mcore=0.14.0", "error crash config"),
    ("KEY002", "mlm", "--window-size 128,0", "mcore=0.15.0", "fine"),
    ("KEY002", "mlm", "--window-size 128,0", "", "not concerned"),
    ("KEY002", "mlm", "--window-size 128,0", "mcore=0.14.0 script=pretrain_hybrid.py", "error crash config"),
    ("KEY002", "mlm", "--window-size 128,0", "mcore=0.14.0 script=examples/pretrain_qwen.py", "not concerned"),
    ("KEY002", "mlm", "--moe-extended-tp", "mcore=0.16.1", "fine"),
    ("KEY002", "mlm", "--moe-extended-tp", "mcore=0.17.0", "error crash config"),
    ("KEY002", "mlm", "--cp-partition-mode contiguous", "mcore=0.19.2", "error crash config"),
    ("KEY002", "mlm", "--cp-partition-mode contiguous", "mcore=0.20.0", "warning crash config"),
    ("KEY002", "mlm", "--cp-partition-mode contiguous", "mcore=0.19.0 mcore_branch=dev", "fine"),
    ("KEY002", "mlm", "--flash-attention-version 4", "mcore=0.19.0 mcore_branch=dev", "warning crash config"),
    ("KEY002", "mlm", "--data-impl mmap", "mcore=0.20.0", "error crash config"),  # no branch has it any more
    ("KEY002", "mlm", "--window-size 128,0", "mcore=0.13.0 mcore_branch=dev", "not concerned"),
    ("KEY002", "mlm", HYBRID, "mcore=0.15.3", "fine"),  # DCP020 says it
    ("KEY002", "mlm", DYNAMIC, "mcore=0.19.0", "fine"),
    ("KEY002", "mlm", "--max-seqlen-per-dp-cp-rank 4096", "mcore=0.15.3", "error crash config"),
    ("KEY002", "bridge", "model.window_size=[128,0]", "mcore=0.14.0", "not concerned"),
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "ms_swift=4.2.3", "error crash config"),
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "ms_swift=4.3.2", "error crash config"),
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "ms_swift=4.4.0", "fine"),  # 4.4.3 has it
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "ms_swift=4.4.3", "fine"),
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "ms_swift=3.9.0", "fine"),  # none older was read
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag", "", "not concerned"),
    ("KEY010", "ms-swift", "--model a/b --cp_partition_mode zigzag --ignore_args_error", "ms_swift=4.2.3", "fine"),
    ("KEY010", "ms-swift", "--model a/b --no_such_option 1", "ms_swift=4.2.3", "fine"),  # for whose program?
    ("KEY010", "ms-swift", "--model a/b --window_size 128,0", "ms_swift=4.2.3", "error crash config"),  # no more
    ("KEY010", "ms-swift", "--model a/b --window_size 128,0", "ms_swift=3.12.6", "fine"),
    ("KEY003", "mlm", "--sft-sequence-packing", "mcore=0.16.1", "warning crash config"),  # for whose program?
    ("KEY003", "mlm", "--sft-sequence-packing", "mcore=0.16.1 script=pretrain_gpt.py", "error crash config"),
    ("KEY003", "mlm", "--sft-sequence-packing", "mcore=0.20.0", "warning crash config"),
    ("KEY003", "mlm", "--sft-sequence-packing", "mcore=0.20.0 script=pretrain_gpt.py", "error crash config"),
    (
        "KEY003",
        "mlm",
        "--sft-sequence-packing",
        "mcore=0.19.0 mcore_branch=dev script=pretrain_gpt.py",
        "error crash config",
    ),
    ("KEY003", "mlm", "--sft-sequence-packing", "mcore=0.21.0", "not concerned"),
    ("KEY003", "mlm", "--sft-sequence-packing", "", "not concerned"),
    ("KEY003", "mlm", "--sft-sequence-packing", "script=tools/../pretrain_gpt.py", "warning crash config"),
    ("KEY003", "mlm", "--sft-sequence-packing", "script=pretrain_ours.py mcore=0.16.1", "not concerned"),
    ("KEY003", "mlm", "--fp8-dot-product-attention", "mcore=0.19.2 script=pretrain_gpt.py", "error crash config"),
    # argparse takes no abbreviation
    ("KEY003", "mlm", "--context-parallel 2", "mcore=0.19.2 script=pretrain_gpt.py", "error crash config"),
    ("KEY003", "mlm", "--seq-lenght 2", "mcore=0.19.2", "fine"),  # KEY001 says it
    ("KEY003", "mlm", f"{HYBRID} --use-packed-sequence", "mcore=0.19.2", "fine"),  # DCP028 says it
    ("KEY003", "mlm", "MODEL_ARGS:\n  --sft-sequence-packing: true\n", "mcore=0.16.1", "not concerned"),
    (
        "KEY003",
        "mlm",
        "python pretrain_gpt.py --context-parallel-size 2 --data-impl mmap\n",
        "",
        "fine",
    ),  # 23.06 has it
    ("KEY003", "mlm", "python $TRAIN --context-parallel-size 2 --ours\n", "mcore=0.16.1", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("KEY001", "mlm", "--seq-lenght 4096", "", "rejects an option"),
    ("KEY001", "mlm", "--seq_length 4096", "", "found: --seq_length"),
    ("KEY001", "mlm", "--seq_length 4096", "", "wanted: --seq-length"),
    (
        "KEY001",
        "bridge",
        "model.cp_com_type=a2a",
        "",
        "start-up fails: Hydra rejects an override of a key that the configuration doesn't have | model.cp_com_type | "
        "model.cp_comm_type",
    ),
    (
        "KEY001",
        "bridge",
        "+model.cp_com_type=a2a",
        "",
        "so cp_comm_type keeps its other value | model.cp_com_type | model.cp_comm_type",
    ),
    (
        "KEY001",
        "bridge",
        "train.train_iter=10 model.cp_com_type=a2a",
        "",
        "model.cp_com_type, and 1 more | model.cp_comm_type",
    ),
    (
        "KEY002",
        "mlm",
        "--window-size 128,0",
        "mcore=0.14.0",
        "message: --window-size doesn't exist in Megatron-LM 0.14.0",
    ),
    (
        "KEY002",
        "mlm",
        "--window-size 128,0",
        "mcore=0.14.0",
        "wanted: an option of 0.14.0; this one exists in 0.15.0 to dev",
    ),
    ("KEY002", "mlm", "--cp-partition-mode x", "mcore=0.20.0", "message: as of megatron-core main of 2026-08-22"),
    ("KEY002", "mlm", "--cp-partition-mode x", "mcore=0.20.0", "wanted: an option of main; this one exists in dev"),
    ("KEY003", "mlm", "--sft-sequence-packing --ours", "mcore=0.16.1", "found: --sft-sequence-packing, and 1 more"),
    (
        "KEY003",
        "mlm",
        "--sft-sequence-packing",
        "mcore=0.16.1",
        "--sft-sequence-packing doesn't exist on main (of Megatron-LM 0.16.1): this script was "
        "written for another branch, and argparse",
    ),
    (
        "KEY003",
        "mlm",
        "--ours",
        "script=pretrain_gpt.py",
        "message: --ours doesn't exist on main: this script was written for a",
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
    effect = "silent" if text.startswith("+") else "crash"
    assert (found.problem.wanted, found.severity, found.effect) == (meant, severity, effect)
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
