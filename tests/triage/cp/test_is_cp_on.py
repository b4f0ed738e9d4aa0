"""Is context parallelism on in a running job?"""

import json
import tracemalloc

import pytest

from megatron_hcp.core.levels import all_levels_of
from megatron_hcp.core.ranks import RankMesh, grids_of
from megatron_hcp.triage.expected import plan_of_assumptions
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import STEP, write_logs


def _verdict(tmp_path, text, plan):
    return triage(write_logs(tmp_path, x_log=text), plan).cp


def test_more_work_than_the_hardware_can_do_means_that_cp_is_off(tmp_path):
    # Bridge#2667: 1937 TFLOP/s per GPU on H200.
    text = "".join(STEP.format(s=s, speed=1937.0) for s in range(9))
    verdict = _verdict(tmp_path, text, CpPlan(cp=16, arch="sm90"))
    assert verdict.state == "off" and verdict.evidence[0].rule == "LOG001"
    assert _verdict(tmp_path, text, CpPlan(cp=16, arch="sm90", fp8=True)).state == "unknown"
    assert _verdict(tmp_path, text, CpPlan(cp=16, arch="sm100")).state == "unknown"
    unknown = _verdict(tmp_path, text, CpPlan())
    assert unknown.state == "unknown" and "arch=sm90" in unknown.evidence[0].text


# validate_args of Megatron-LM core_v0.12.0 and main
STARTED = (
    "using world size: 32, data-parallel size: 4, context-parallel size: {}, "
    "hierarchical context-parallel sizes: None, tensor-model-parallel size: 2, pipeline-model-parallel size: 1\n"
)


@pytest.mark.parametrize(("cp", "state"), [(1, "off"), (4, "wrong"), (8, "unknown")])
def test_the_size_that_reached_the_trainer_is_compared_with_the_launch(tmp_path, cp, state):
    verdict = _verdict(tmp_path, STARTED.format(cp), CpPlan(cp=8))
    assert verdict.state == state
    assert [f"size {cp}; the launch has 8" in item.text for item in verdict.evidence[:1]] == [True] * (
        state != "unknown"
    )
    assert _verdict(tmp_path, STARTED.format(cp), CpPlan()).state == ("none" if cp == 1 else "unknown")


@pytest.mark.parametrize(("comm_type", "state"), [("a2a+p2p", "off"), ("p2p", "unknown")])
def test_a_launch_that_silently_leaves_cp_off_is_evidence(hcp, tmp_path, comm_type, state):
    (tmp_path / "launch.yaml").write_text(
        f"model:\n  context_parallel_size: 4\n  cp_comm_type: {comm_type}\n"
        "  hierarchical_context_parallel_sizes: [2, 2]\n"
    )
    (tmp_path / "job.log").write_text(STEP.format(s=1, speed=400.0))
    words = ("triage", "job.log", "--launch", "launch.yaml", "--dialect", "bridge-provider", "--format", "json")
    done = hcp(*words, cwd=tmp_path)
    found = json.loads(done.stdout)["context_parallel"]
    assert (done.returncode, found["state"]) == (int(state == "off"), state)
    assert [item["rule"] for item in found["evidence"]] == ["HCP010"] * (state == "off")


def test_one_wild_step_is_no_proof(tmp_path):
    text = "".join(STEP.format(s=s, speed=400.0) for s in range(9)) + STEP.format(s=10, speed=5000.0)
    assert _verdict(tmp_path, text, CpPlan(arch="sm90")).state == "unknown"


def test_steps_that_are_shorter_by_the_cp_size_than_before_mean_that_cp_is_off(tmp_path):
    def steps(ms):
        return "".join(STEP.format(s=s, speed=400.0).replace(": 5.0 |", f": {ms} |") for s in range(5))

    before, after, slower = write_logs(
        tmp_path, before_log=steps(8000.0), after_log=steps(1100.0), slower_log=steps(7000.0)
    )
    verdict = triage([before, after], CpPlan(cp=8)).cp
    assert verdict.state == "off" and "after.log" in verdict.evidence[0].text
    assert triage([before, slower], CpPlan(cp=8)).cp.state == "unknown"
    assert triage([before, after], CpPlan(cp=2)).cp.state == "unknown"
    assert triage([before, after], CpPlan()).cp.state == "unknown"


@pytest.mark.parametrize(
    ("mfu", "cp", "state"),
    [(1.93, 4, "off"), (0.43, 4, "unknown"), (1.93, 1, "unknown"), (1.93, None, "unknown"), (29.8, 4, "unknown")],
)
def test_an_mfu_between_one_and_the_cp_size_means_that_cp_is_off(tmp_path, mfu, cp, state):
    """Without CP in attention, at most CP times the work that was done is counted; more is a percentage."""
    step = f"step:1 - perf/mfu/actor:{mfu} - actor/loss:2\n"
    assert _verdict(tmp_path, step * 3, CpPlan(cp=cp)).state == state
    assert _verdict(tmp_path, STARTED.format(1) + step * 3, CpPlan()).state == "none"


def test_one_wild_mfu_is_no_proof(tmp_path):
    steps = "".join(f"step:{n} - perf/mfu/actor:{1.93 if n == 1 else 0.4} - actor/loss:2\n" for n in range(5))
    assert _verdict(tmp_path, steps, CpPlan(cp=4)).state == "unknown"


# TP 2: the CP groups are 0 2 4 6 and 1 3 5 7.
PLAN = CpPlan(cp=4, hcp_sizes=(2, 2), cp_groups=RankMesh({"tp": 2, "cp": 4}).groups("cp"))


def _group(rank, guid, level, place):
    return (
        f"[rank{rank}]:[I822 10:00:00 ProcessGroupNCCL.cpp:1] [PG ID 4 PG GUID {guid}"
        f"(HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L{level}) Rank {place}] Launching\n"
    )


def test_groups_of_both_levels_with_the_planned_members_speak_for_cp(tmp_path):
    text = _group(0, 9, 0, 0) + _group(2, 9, 0, 1) + _group(0, 11, 1, 0) + _group(4, 11, 1, 1)
    assert _verdict(tmp_path, text, PLAN).state == "on"


@pytest.mark.parametrize(
    "text",
    [
        _group(0, 9, 0, 0) + _group(1, 9, 0, 1),
        _group(0, 9, 0, 1) + _group(2, 9, 0, 0),
    ],
)
def test_other_members_or_another_order_than_planned_are_wrong(tmp_path, text):
    verdict = _verdict(tmp_path, text, PLAN)
    assert verdict.state == "wrong" and verdict.evidence[0].rule == "LOG002"
    assert "0, 2" in verdict.evidence[0].text


def test_groups_that_the_job_printed_are_compared_whole(tmp_path):
    def line(ranks):
        return f'hcp-job: {{"event": "group", "desc": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "ranks": {ranks}}}\n'

    assert _verdict(tmp_path, line([0, 2]), PLAN).state == "unknown"
    assert _verdict(tmp_path, line([0, 2, 4]), PLAN).state == "wrong"


def test_the_echo_of_the_configuration_is_no_proof(tmp_path):
    text = "using world size: 8, data-parallel size: 1, hierarchical context-parallel sizes: [2, 2], tensor: 2\n"
    verdict = _verdict(tmp_path, text, PLAN)
    assert verdict.state == "unknown" and verdict.evidence[0].rule == "HCP006"


@pytest.mark.parametrize("text", ["123.412.5", "400.1.", ".", "9" * 5000, "nan", "inf"])
def test_numbers_of_ranks_that_wrote_over_each_other_count_as_none(tmp_path, text):
    good = "".join(STEP.format(s=s, speed=1937.0) for s in range(3))
    bad = f" iteration 3/ 9 | elapsed time per iteration (ms): {text} | throughput per GPU (TFLOP/s/GPU): {text} |\n"
    bad += f"step:1 - perf/mfu/actor:{text} - {text} MODEL_TFLOP/s/GPU\n"
    assert _verdict(tmp_path, bad, CpPlan(arch="sm90")).evidence == ()
    assert _verdict(tmp_path, bad + good, CpPlan(arch="sm90")).state == "off"


def test_a_plan_for_a_hundred_million_ranks_is_held_in_closed_form(tmp_path):
    sizes = ("world_size=100000000", "tp=2", "cp=25000000", "hcp_sizes=8,3125000")
    tracemalloc.start()
    plan = plan_of_assumptions(sizes)
    text = _group(0, 9, 0, 0) + _group(2, 9, 0, 1) + _group(0, 11, 1, 0) + _group(16, 11, 1, 1)
    assert _verdict(tmp_path, text, plan).state == "on"
    wrong = _verdict(tmp_path, _group(0, 11, 1, 0) + _group(18, 11, 1, 1), plan)
    assert wrong.state == "wrong" and wrong.evidence[0].text.endswith("224, 240, ... (3125000 ranks)")
    assert _verdict(tmp_path, _group(100000000, 9, 0, 0), plan).state == "wrong", "there is no such rank"
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_the_plan_is_that_of_all_groups_written_out():
    plan = plan_of_assumptions(("world_size=16", "tp=2", "cp=4", "hcp_sizes=2,2"))
    cp_groups = grids_of(16, tp=2, cp=4).groups("cp")
    for level, groups in enumerate(all_levels_of(cp_groups, (2, 2))):
        assert {rank: list(plan.group_of(level, rank) or ()) for rank in range(16)} == {
            rank: list(group) for group in groups for rank in group
        }
