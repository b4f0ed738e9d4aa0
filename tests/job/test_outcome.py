"""What follows from how a job ended: the table, and the evidence it is decided on."""

from typing import Any

import pytest

from megatron_hcp.job.exits import (
    RankExit,
    Suspicion,
    first_exit,
    logs_of,
    lost_task,
    node_at_fault,
    stall_of,
    suspicion,
)
from megatron_hcp.job.outcome import AttemptEnd, decide, was_preempted
from megatron_hcp.render.outcome import main
from support.rows import rows

TRAINING: dict[str, Any] = {"phase": 3, "max_requeues": 2}
GOES_ON, ENDS = "requeue", "none"


@rows(
    "ended, status, then, code",
    [
        # it trained to its end
        ({"code": 0}, "completed", ENDS, 0),
        ({"code": 0, "max_requeues": None}, "completed", ENDS, 0),
        ({"code": 0, "finished": True, "steps": "iteration 8 of 8"}, "completed", ENDS, 0),
        # it ended with 0, and was not done, or nothing says whether it was
        ({"code": 0, "finished": False, "has_progress": True}, "ended-early", GOES_ON, 0),
        ({"code": 0, "finished": False, "has_progress": False}, "ended-early", ENDS, 0),
        ({"code": 0, "finished": False, "has_progress": True, "attempt": 2}, "ended-early", ENDS, 0),
        ({"code": 0, "finished": False, "has_progress": True, "max_requeues": None}, "ended-early", ENDS, 0),
        ({"code": 0, "finished": None, "has_progress": True}, "undecided", ENDS, 0),
        # Slurm took the nodes: TERM went to the tasks, the script itself saw nothing but an end
        ({"code": 0, "is_preempted": True}, "preempted", GOES_ON, 0),
        ({"code": 143, "is_preempted": True}, "preempted", GOES_ON, 143),
        ({"code": 1, "is_preempted": True, "phase": 1, "stopped": "a node could not report"}, "preempted", GOES_ON, 1),
        ({"code": 1, "is_preempted": True, "asked": "terminated"}, "preempted", GOES_ON, 1),
        ({"code": 0, "is_preempted": True, "attempt": 2}, "preempted", ENDS, 1),
        ({"code": 0, "is_preempted": True, "max_requeues": None}, "preempted", ENDS, 1),
        # Slurm took the nodes because one of them failed: it counts that as a restart too
        ({"code": 0, "asked": "terminated", "lost_node": "node failure on n2"}, "failed", GOES_ON, 1),
        ({"code": 0, "is_preempted": True, "lost_node": "node failure on n2"}, "failed", GOES_ON, 1),
        ({"code": 143, "lost_node": "node failure", "has_progress": False}, "failed", GOES_ON, 143),
        ({"code": 1, "lost_node": "node failure", "attempt": 2}, "failed", ENDS, 1),
        # the signal before the end of the job
        ({"code": 0, "asked": "preempted"}, "preempted", GOES_ON, 0),
        ({"code": 1, "asked": "preempted", "phase": 0}, "preempted", GOES_ON, 1),
        ({"code": 0, "asked": "preempted", "attempt": 2}, "preempted", ENDS, 1),
        # cancelled
        ({"code": 0, "asked": "terminated"}, "terminated", ENDS, 1),
        ({"code": 143, "asked": "terminated", "has_progress": True}, "terminated", ENDS, 143),
        # its own checks
        ({"code": 1, "phase": 1, "stopped": "the nodes differ", "has_progress": True}, "stopped", ENDS, 1),
        ({"code": 2, "phase": 2, "has_progress": True}, "failed", ENDS, 2),
        # without its unfit nodes it may train
        ({"code": 1, "phase": 1, "stopped": "dcgm", "unfit": ("n2",)}, "stopped", GOES_ON, 1),
        ({"code": 1, "phase": 1, "stopped": "dcgm", "unfit": ("n2",), "attempt": 2}, "stopped", ENDS, 1),
        ({"code": 1, "phase": 1, "stopped": "dcgm", "unfit": ("n2",), "max_requeues": None}, "stopped", ENDS, 1),
        # hung
        ({"code": 134, "stalled": "it hangs"}, "failed", ENDS, 134),
        ({"code": 134, "stalled": "it hangs", "has_progress": True}, "failed", GOES_ON, 134),
        # a failure is repeated only where that helps
        ({"code": 1}, "failed", ENDS, 1),
        ({"code": 1, "has_progress": True}, "failed", GOES_ON, 1),
        ({"code": 1, "has_progress": True, "attempt": 2}, "failed", ENDS, 1),
        ({"code": 1, "has_progress": True, "max_requeues": None}, "failed", ENDS, 1),
        ({"code": 134, "has_progress": True, "all_saved": True, "stalled": "it hangs"}, "failed", ENDS, 134),
        ({"code": 17, "all_saved": True, "suspicion": Suspicion("node", ("n2",))}, "failed", GOES_ON, 17),
        ({"code": 1, "has_progress": True, "first": RankExit(137, "3", "n2")}, "failed", GOES_ON, 137),
        # ft_launcher has tried itself, and says that no start would help; of another launcher it is a code like any
        ({"code": 93, "has_progress": True, "by_ft_launcher": True}, "failed", ENDS, 93),
        ({"code": 93, "has_progress": True}, "failed", GOES_ON, 93),
        (
            {"code": 93, "by_ft_launcher": True, "first": RankExit(1, "3", "n2"), "has_progress": True},
            "failed",
            ENDS,
            1,
        ),
        ({"code": 1, "has_progress": True, "by_ft_launcher": True}, "failed", GOES_ON, 1),
        # 16: again, on another GPU; 17: without the node, if it is known; the limit holds for both
        ({"code": 16}, "failed", GOES_ON, 16),
        ({"code": 16, "suspicion": Suspicion("node", ("n2",))}, "failed", GOES_ON, 16),
        ({"code": 16, "attempt": 2}, "failed", ENDS, 16),
        ({"code": 17}, "failed", ENDS, 17),
        ({"code": 17, "has_progress": True}, "failed", ENDS, 17),
        ({"code": 17, "suspicion": Suspicion("node", ("n2",))}, "failed", GOES_ON, 17),
        ({"code": 17, "suspicion": Suspicion("earlier")}, "failed", GOES_ON, 17),
        ({"code": 17, "suspicion": Suspicion("training"), "has_progress": True}, "failed", ENDS, 17),
        ({"code": 1, "first": RankExit(17, "3", "n2"), "suspicion": Suspicion("node", ("n2",))}, "failed", GOES_ON, 17),
    ],
)
def test_what_an_attempt_was_and_what_follows(ended, status, then, code):
    found = decide(AttemptEnd(**{**TRAINING, **ended}))
    assert (found.status, found.next, found.exit_code) == (status, then, code)
    assert found.reason


def test_only_a_suspected_node_is_left_out():
    suspected: dict[str, Any] = {"suspicion": Suspicion("node", ("n2", "n3"))}
    for code, exclude in ((16, ("n2", "n3")), (17, ("n2", "n3")), (1, ())):
        assert decide(AttemptEnd(**TRAINING, code=code, has_progress=True, **suspected)).exclude == exclude
    assert decide(AttemptEnd(1, 1, stopped="dcgm", unfit=("n2",), max_requeues=1)).exclude == ("n2",)
    blamed = AttemptEnd(**TRAINING, code=1, at_fault="n2", has_progress=True)
    assert decide(blamed).exclude == ("n2",)
    assert decide(blamed._replace(has_progress=False)).exclude == (), "it does not go on"


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ('{"recommendation": {"action": "restart-without-node", "node": "n2", "reason": "x"}}', "n2"),
        ('{"recommendation": {"action": "restart-without-node", "node": "n9", "reason": "x"}}', ""),
        ('{"recommendation": {"action": "restart-without-node", "node": null, "reason": "x"}}', ""),
        ('{"recommendation": {"action": "restart", "node": "n2", "reason": "x"}}', ""),
        ('{"recommendation": null}', ""),
        ("", ""),
    ],
)
def test_the_node_at_fault_is_the_one_that_triage_would_leave_out(text, node, tmp_path):
    (tmp_path / "triage.json").write_text(text)
    assert node_at_fault(tmp_path, ["n1", "n2"]) == node


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"code": 0, "is_preempted": True}, "Slurm preempted or requeued the job; the trainer exited with 0"),
        ({"code": 143, "asked": "preempted"}, "the trainer exited with 143: work since its last checkpoint may"),
        ({"code": 137, "asked": "preempted"}, "the trainer was still running at the end: work since its last"),
        (
            {"code": 1, "phase": 1, "asked": "preempted", "stopped": "n2 had not reported yet"},
            "Slurm signalled that the time limit is near before it trained; n2 had not reported yet",
        ),
        ({"code": 1, "phase": 1, "stopped": "te differs: 2.1 on a, 2.2 on b"}, "te differs: 2.1 on a, 2.2 on b"),
        ({"code": 1, "first": RankExit(9, "3", "n2")}, "rank 3 on n2 exited with 9; no checkpoint was written"),
        ({"code": 1, "first": RankExit(9, "2-3", "n2"), "has_progress": True}, "ranks 2-3 on n2 exited with 9"),
        (
            {"code": 0, "lost_node": "node failure on n2"},
            "ended by Slurm: node failure on n2; the trainer exited with 0",
        ),
        ({"code": 1, "attempt": 2}, "requeued 2 times, which is the limit"),
        ({"code": 17, "suspicion": Suspicion("training")}, "the fault is in the training"),
        ({"code": 134, "stalled": "no line for 60 s: it hangs"}, "no line for 60 s: it hangs; no checkpoint"),
        (
            {"code": 1, "phase": 1, "stopped": "dcgm says n2", "unfit": ("n2",), "attempt": 2},
            "dcgm says n2; requeued 2",
        ),
    ],
)
def test_a_verdict_has_its_reason(ended, words):
    assert words in decide(AttemptEnd(**{**TRAINING, **ended})).reason


@pytest.mark.parametrize(
    ("start", "preempted", "was"),
    [
        ("2026-01-01T10:00:00", "2026-01-01T10:00:00", True),
        ("2026-01-01T10:00:00", "2026-01-01T11:00:00", True),
        ("2026-01-01T10:00:00", "2026-01-01T09:59:59", False),  # an earlier attempt
        ("2026-01-01T10:00:00", "None", False),
    ],
)
def test_slurm_says_whether_it_preempted_this_attempt(start, preempted, was):
    shown = f"JobId=1 StartTime={start} EndTime=Unknown PreemptEligibleTime={start} PreemptTime={preempted} X=1"
    assert was_preempted(shown) is was
    assert not was_preempted("")


TORCHRUN = """\
1: E1122 multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: 1 (pid: 9) of binary
1: Root Cause (first observed failure):
1: [0]:
1:   time      : 2026-11-22_04:00:0{second}
1:   host      : host
1:   rank      : {rank} (local_rank: 1)
1:   exitcode  : {code} (pid: 9)
"""


@pytest.mark.parametrize(
    ("srun", "code", "ranks", "node"),
    [
        ("srun: error: n2: task 3: Exited with exit code 17\nsrun: error: n1: task 0: Killed\n", 17, "3", "n2"),
        ("x\nsrun: error: n1: task 0: Killed\nsrun: error: n2: task 3: Exited with exit code 1\n", 137, "0", "n1"),
        ("srun: error: n1: task 1: Segmentation fault (core dumped)\n", 139, "1", "n1"),
        ("srun: error: n[1-2]: tasks 0-3: Exited with exit code 16\n", 16, "0-3", "n[1-2]"),
        ("srun: error: n1: task 1: Aborted\n", 134, "1", "n1"),
    ],
)
def test_srun_says_which_task_ended_first(srun, code, ranks, node):
    assert first_exit(srun, []) == RankExit(code, ranks, node)
    launcher = first_exit(srun, [], tasks_are_ranks=False)
    assert launcher == RankExit(code, "", node) and str(launcher) == f"the launcher on {node}"


def test_torchrun_says_which_rank_failed_first_and_not_whom_it_ended_itself():
    logs = [
        ("n1", TORCHRUN.format(code=-15, rank=1, second=1)),
        ("n2", TORCHRUN.format(code=17, rank=3, second=2)),
        ("n3", TORCHRUN.format(code=-9, rank=5, second=3)),
    ]
    assert first_exit("srun: error: n1: task 0: Exited with exit code 1\n", logs) == RankExit(17, "3", "n2")
    assert first_exit("", logs[:1]) == RankExit(143, "1", "n1")


FT = (
    "1: [2026-11-22 16:08:{at}] [ERROR] [ft_launcher168@vm] failed (exitcode: {code}) local_rank: {local} (pid: 9) of\n"
)


def test_of_ft_launcher_the_rank_that_ended_first_in_the_last_attempt_counts():
    def said(*lines):
        return "".join(FT.format(at=at, code=code, local=local) for at, code, local in lines)

    logs = [
        ("n1", said(("07,719", 1, 0), ("32,100", -9, 1), ("32,200", -15, 0))),
        ("n2", said(("07,100", -11, 1), ("34,867", 1, 1))),
    ]
    found = first_exit("srun: error: n2: task 1: Exited with exit code 1\n", logs, tasks_are_ranks=False)
    assert found == RankExit(137, "1", "n1", is_local=True) and str(found) == "local rank 1 on n1"


def test_nothing_is_made_up_where_no_launcher_says_who_failed():
    assert first_exit("srun: Force Terminated StepId=3.6\nsrun: error: n1: task 0: Unheard of\n", [("n1", "")]) is None


AT = "0: Rank 3, node h, device 1, iteration #7: "


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("First rerun: unexpected result is reproducible within the tolerance (1 = 1).!", Suspicion("node", ("n2",))),
        ("Possible transient error!!", Suspicion("node", ("n2",))),
        ("Possible persistent error!!", Suspicion("earlier")),
        ("Correct result (but possible Application error) (x)!", Suspicion("training")),
        ("First rerun: unexpected result is not reproducible within the tolerance (1 != 2)!", Suspicion()),
    ],
)
def test_the_node_of_a_result_that_failed_its_validation_is_the_one_whose_log_says_so(said, found, tmp_path):
    (tmp_path / "train-r1-node0.log").write_text("Result validation enabled\n")
    (tmp_path / "train-r1-node1.log").write_text(AT + said + "\n")
    (tmp_path / "train-r0-node0.log").write_text(AT + "Possible transient error!!\n")
    _, logs = logs_of(tmp_path, 1, ["n1", "n2"])
    assert suspicion(logs) == found


def test_the_nodes_that_the_job_leaves_out_already_stay_left_out(tmp_path, monkeypatch, capsys):
    import io

    (tmp_path / "train-r0-node1.log").write_text(AT + "Possible transient error!!\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("JobId=1 ExcNodeList=n7,n8 PreemptTime=None"))
    words = ["--run", str(tmp_path), "--nodes", "n1,n2", "--phase", "3", "--code", "17", "--attempt", "0"]
    assert main([*words, "--max-requeues", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:3] == ["next=requeue", "code=17"] and said[-2:] == ["exclude=n7,n8,n2", "decided=yes"]


def test_a_stall_is_of_its_own_attempt(tmp_path):
    (tmp_path / "stall-r1.txt").write_text("training wrote no line for 60 s: it hangs\n")
    assert stall_of(tmp_path, 1) == "training wrote no line for 60 s: it hangs" and stall_of(tmp_path, 0) == ""


GONE = "srun: error: n2: task 3: Killed\nsrun: Terminating StepId=3.0\n"
CANCELLED = "slurmstepd-n1: error: *** STEP 3.0 ON n1 CANCELLED AT 2026-01-01T10:00:00 ***\n"


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (GONE + CANCELLED, RankExit(137, "3", "n2")),  # srun ends the others
        (CANCELLED + GONE, None),  # scancel ends all
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n" + GONE, None),
        (CANCELLED, None),
    ],
)
def test_a_task_that_is_lost_is_told_from_a_job_that_is_cancelled(log, found):
    assert lost_task(log, tasks_are_ranks=True) == found
