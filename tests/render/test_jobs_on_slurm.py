"""Rendered jobs on a real Slurm: they train, stop, fail, are preempted and requeued, as they say they do."""

import json
import re
import sys

import pytest

from support.jobs import LAUNCH, Job, total_after

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


@pytest.mark.parametrize(("start", "nodes", "ranks"), [("srun", 2, 2), ("torchrun", 2, 2), ("srun", 4, 1)])
def test_a_job_trains_and_leaves_its_verdict(job, start, nodes, ranks):
    job.render(start, "--comm-test", nodes=nodes, ranks=ranks)
    job.submit()
    assert job.finish() == "COMPLETED", job.log() + job.train_logs()
    verdict = job.verdict()
    assert (verdict["schema"], verdict["status"], verdict["phase"], verdict["exit_code"], verdict["next"]) == (
        "hcp.verdict/2",
        "completed",
        3,
        0,
        "none",
    )
    assert verdict["nodes"] == [f"n{n}" for n in range(1, nodes + 1)]
    assert set(verdict["evidence"]) == {"check.json", "nodes.txt", "facts.txt", "ranks.txt", "ranks.log", "comm.txt"}
    assert job.final_sum() == total_after(6, 4)
    levels = [
        json.loads(line.partition(": ")[2])
        for line in (job.run / "comm.txt").read_text().splitlines()
        if "hcp-job" in line
    ]
    assert [(level["kind"], level["size"], level["ok"]) for level in levels] == [("a2a", 2, True), ("p2p", 2, True)]
    found = job.triage()
    assert (found["state"], found["first_failure"], found["steps"]) == ("no-failure", None, 6)


def test_the_rank_map_names_the_nodes_and_says_whether_inner_groups_stay_inside(job):
    job.render()
    job.submit()
    assert job.finish() == "COMPLETED", job.log()
    events = [json.loads(line.partition(": ")[2]) for line in (job.run / "ranks.log").read_text().splitlines()]
    ranks = [event for event in events if event["event"] == "rank"]
    assert [(event["rank"], event["node"], event["cp_inner"], event["cp_outer"]) for event in ranks] == [
        (0, "n1", 0, 0),
        (1, "n1", 1, 0),
        (2, "n2", 0, 1),
        (3, "n2", 1, 1),
    ]
    assert {"event": "inner-groups", "inside_a_node": True} in events
    assert {"event": "group", "desc": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1", "ranks": [0, 2]} in events


def test_a_launch_with_an_error_stops_before_anything_starts(job):
    launch = [*LAUNCH[:-3], "3", "2"]  # 3 x 2 is not 4
    done = job.render(launch=launch)
    assert done.returncode == 1 and "HCP002" in done.stderr and "phase 0" in done.stderr
    job.submit()
    assert job.finish() == "FAILED"
    verdict = job.verdict()
    assert (verdict["status"], verdict["phase"], verdict["evidence"]) == ("stopped", 0, ["check.json"])
    assert "HCP002" in job.log()
    assert not list(job.run.glob("train-*")) and not job.checkpoints.exists()
    found = job.triage()["first_failure"]
    assert (found["signature"], found["rule"], found["rank"]) == ("hcp-check", "HCP002", None)
    assert found["next"][0] == "hcp explain HCP002"


@pytest.mark.parametrize("start", ["srun", "torchrun"])
def test_a_killed_rank_ends_the_whole_job_and_is_named(job, start):
    job.render(start, trainer=["--fail-rank", "3", "--fail-step", "2", "--fail-how", "kill"], iters=200)
    job.submit()
    job.wait_for_steps(2)
    assert job.finish() == "FAILED", job.log()
    assert job.verdict()["status"] == "failed"
    found = job.triage()["first_failure"]
    assert (found["rank"], found["node"]) == (3, "n2"), (found, job.train_logs())
    assert "killed" in found["cause"]


def test_a_rank_that_raises_is_named_with_its_cause(job):
    job.render(trainer=["--fail-rank", "1", "--fail-step", "2"], iters=200)
    job.submit()
    assert job.finish() == "FAILED", job.log()
    found = job.triage()["first_failure"]
    assert (found["signature"], found["rank"], found["node"]) == ("gpu-ecc", 1, "n1")


def test_nodes_without_their_gpus_stop_the_job_before_training(job):
    job.render("srun", "--gpu-request", "gres")
    job.submit()
    assert job.finish() == "FAILED"
    verdict = job.verdict()
    assert (verdict["status"], verdict["phase"]) == ("stopped", 1)
    # The test cluster's GPUs are empty files: Slurm allocates them, and nothing else sees them.
    assert "n1 has 0 GPUs: wanted 2" in job.log() and not list(job.run.glob("train-*"))


def test_cyclic_placement_is_found_before_training(job):
    job.render()
    job.script.write_text(job.script.read_text().replace("--distribution=block", "--distribution=cyclic"))
    job.submit()
    assert job.finish() == "FAILED"
    verdict = job.verdict()
    assert (verdict["status"], verdict["phase"]) == ("stopped", 1)
    assert "not placed in blocks" in job.log() and not list(job.run.glob("train-*"))


def test_two_jobs_on_one_node_do_not_meet_on_a_port(slurm, hcp, root, tmp_path):
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        job = Job(slurm, hcp, root, tmp_path / name)
        job.render(
            "torchrun",
            "--no-exclusive",
            "--nodelist",
            "n1",
            nodes=1,
            ranks=2,
            iters=20,
            launch=["--context-parallel-size", "2"],
            trainer=["--step-seconds", "0.2"],
        )
        job.submit()
        jobs.append(job)
    assert [job.finish() for job in jobs] == ["COMPLETED", "COMPLETED"], jobs[0].log() + jobs[1].log()
    began, ended = ([slurm.field(job.id, name) for job in jobs] for name in ("StartTime", "EndTime"))
    assert max(began) < min(ended), "they ran at the same time"


def test_a_port_that_is_taken_is_left_alone(job):
    import socket

    job.render("torchrun", "--nodelist", "n1", nodes=1, ranks=2, launch=["--context-parallel-size", "2"])
    job.submit("--hold")
    port = 20000 + job.id % 1200 * 10
    with socket.create_server(("127.0.0.1", port)):
        job.slurm.run("scontrol", "release", str(job.id))
        assert job.finish() == "COMPLETED", job.log() + job.train_logs()


def test_every_element_of_an_array_gets_its_own_words(job):
    own = [f"--save {name} --load {name}" for name in "ab"]
    job.render(
        "srun",
        "--array",
        f"--train-iters 3 {own[0]}",
        "--array",
        f"--train-iters 2 {own[1]}",
        "--no-exclusive",
        nodes=1,
        ranks=2,
        launch=["--context-parallel-size", "2"],
    )
    job.submit()
    job.slurm.wait_until(lambda: len(list((job.folder / "logs").glob("*/verdict.json"))) == 2, "both elements")
    logs = {path.parent: path.read_text() for path in (job.folder / "logs").glob("*/train-r0-*.log")}
    assert sorted(len(re.findall("elapsed time", text)) for text in logs.values()) == [2, 3]


def test_a_verification_job_runs_the_steps_on_every_node(slurm, hcp, tmp_path):
    (tmp_path / "logs").mkdir()
    done = hcp(
        "render",
        "--start",
        "verify",
        "--nodes",
        "2",
        "--gpus-per-node",
        "2",
        "--time",
        "10",
        "--signal",
        "60",
        "--gpu-request",
        "none",
        "--logs",
        "logs",
        "--python",
        sys.executable,
        "--verify-level",
        "static",
        "-o",
        "job.sbatch",
        "hierarchical-context-parallel",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    job = slurm.submit(tmp_path / "job.sbatch", cwd=tmp_path)
    state = slurm.finish(job)
    log = (tmp_path / f"logs/train-{job}.out").read_text()
    results = sorted((tmp_path / f"logs/train-{job}").glob("verify-*.json"))
    assert [path.name for path in results] == ["verify-node0.json", "verify-node1.json"], log
    reports = [json.loads(path.read_text()) for path in results]
    assert {report["schema"] for report in reports} == {"hcp.verify/2"}
    assert (state == "COMPLETED") == all(report["ok"] for report in reports), log
