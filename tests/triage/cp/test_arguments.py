"""What Megatron-LM prints of its own sizes and arguments decides whether context parallelism is on."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

ECHO = (
    "using world size: 8, data-parallel size: 2, context-parallel size: {}, hierarchical context-parallel sizes: None, "
    "tensor-model-parallel size: 1\n"
)
COMM = "  cp_comm_type .................................... {}\n"
SIZES = "  hierarchical_context_parallel_sizes ............. {}\n"
ARGUMENT = "  context_parallel_size ........................... {}\n"
MESH = "[titan] Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp={}, tp=1, ep=1, etp=1\n"
ATTENTION = "[DEBUG | DPA]: Running with config={{'batch_size': 1, 'context_parallel': {}, 'fp8': False}}\n"
STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(5))


@pytest.mark.parametrize(
    ("log", "state"),
    [
        (ECHO.format(1), "none"),
        (ECHO.format(4), "unknown"),
        (ECHO.format(4) + COMM.format("['p2p']"), "on"),
        (ECHO.format(4) + COMM.format("['a2a+p2p']") + SIZES.format("None"), "off"),
        (ECHO.format(4) + COMM.format("['a2a+p2p']") + SIZES.format("[2, 2]"), "unknown"),
        (COMM.format("['p2p']"), "unknown"),
        (ARGUMENT.format(1), "none"),
        (ARGUMENT.format(4) + COMM.format("['p2p']"), "on"),
        (
            "using world size: 8, data-parallel-size: 1, tensor-model-parallel size: 4, pipeline-model-parallel size\n",
            "none",
        ),
        (MESH.format(1), "none"),
        (MESH.format(2), "unknown"),
        ("{'actor': {'context_parallel_size': 1}, 'ref': {'context_parallel_size': 1}}\n", "none"),
        ("{'actor': {'context_parallel_size': 4}, 'ref': {'context_parallel_size': 1}}\n", "unknown"),
        ("context_parallel_size == 1 is needed\n", "unknown"),
        (ECHO.format(4) + ATTENTION.format(True) + ATTENTION.format(False), "on"),
        (ECHO.format(4) + ATTENTION.format(False), "off"),
        (ATTENTION.format(False), "unknown"),
    ],
)
def test_the_sizes_and_arguments_of_the_start_decide(tmp_path, log, state):
    """A communication type of two levels without their sizes leaves no other line: attention runs without CP."""
    diagnosis = triage(write_logs(tmp_path, a_log=log + STEPS), CpPlan())
    assert (diagnosis.cp.state, diagnosis.ok) == (state, state != "off")


def test_a_size_of_1_is_off_only_where_more_was_planned(tmp_path):
    logs = write_logs(tmp_path, a_log=ECHO.format(1) + STEPS)
    assert triage(logs, CpPlan(cp=4)).cp.state == "off"
    assert "not used" in diagnosis_text(triage(logs, CpPlan(cp=1)), None)


def test_the_assertion_on_hierarchical_groups_is_for_launches_that_use_them(tmp_path):
    logs = write_logs(tmp_path, a_log=STEPS)
    assert "a2a+p2p" not in diagnosis_text(triage(logs, CpPlan()), None)
    assert "a2a+p2p" in diagnosis_text(triage(logs, CpPlan(cp=4, hcp_sizes=(2, 2))), None)
