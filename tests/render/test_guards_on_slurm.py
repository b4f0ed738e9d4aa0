"""What guards a job on a real Slurm: health checks, a watchdog, a bandwidth; submission, and a run inside salloc."""

import json
import re

import pytest

from support.jobs import total_after

pytestmark = [pytest.mark.slurm, pytest.mark.torch]


def test_a_node_that_its_health_check_finds_unfit_is_left_out_of_the_next_attempt(job):
    check = job.folder / "check.sh"
    check.write_text('#!/bin/bash\necho "looked at $SLURMD_NODENAME"\n[[ $SLURMD_NODENAME != n2 ]]\n')
    check.chmod(0o755)
    job.render("srun", "--requeue", "1", "--health", check)
    job.submit()
    first = job.final_verdict(0)
    assert (first["status"], first["phase"], first["next"], first["exclude"]) == ("stopped", 1, "requeue", ["n2"])
    assert "n2 is unfit (exit code 1): looked at n2" in first["reason"] and "health.txt" in first["evidence"]
    job.slurm.wait_for_state(job.id, "PENDING")
    job.slurm.hurry(job.id)
    assert job.finish() == "COMPLETED", job.log() + job.train_logs()
    assert "n2" not in job.verdict()["nodes"] and job.final_sum() == total_after(6, 4)


def test_a_check_that_is_not_there_stops_the_job_and_blames_no_node(job):
    job.render("srun", "--requeue", "1", "--health", "dcgm")
    job.submit()
    assert job.finish() == "FAILED", job.log()
    assert (job.verdict()["next"], job.verdict()["exclude"]) == ("none", [])
    assert "dcgm could not run on n1" in job.log()


def test_a_training_that_hangs_is_ended_and_says_where_it_hung(job):
    job.render(
        "torchrun", "--requeue", "2", "--stall", "1", trainer="--fail-rank 2 --fail-step 3 --fail-how hang".split()
    )
    job.hurry_the_watchdog(8)
    job.submit()
    first = job.final_verdict(0)
    assert (first["status"], first["next"], first["exit_code"]) == ("failed", "requeue", 134), job.log()
    assert re.search(r"no iteration ended for \d+ s, after iteration 3 of 6: it hangs", first["reason"])
    # Its stack, out of Python's fault handler.
    assert re.search(r"Fatal Python error: Aborted(.|\n)*in _fail", job.train_logs()), job.train_logs()
    assert job.final_sum()["step"] == 2
    assert job.triage()["first_failure"]["signature"] == "hcp-stalled"
    job.slurm.run("scancel", str(job.id))


def test_a_bandwidth_that_is_wanted_is_measured_on_every_level(job):
    job.render("srun", "--comm-gbps", "900000000")
    job.submit()
    assert job.finish() == "FAILED", job.log()
    said = (job.run / "comm.txt").read_text()
    levels = [json.loads(line.partition(": ")[2]) for line in said.splitlines() if "hcp-job" in line]
    assert [(level["kind"], level["ok"], level["gbps"] > 0) for level in levels] == [
        ("a2a", False, True),
        ("p2p", False, True),
    ]
    assert job.verdict()["phase"] == 2 and re.search(r"rank [0-3] sends [\d.]+ Gbit/s; wanted 9e\+08", job.log())


def test_submit_asks_slurm_gives_the_job_and_prints_its_id(job):
    (job.folder / "logs").rmdir()
    said = job.render("srun", "--submit")
    assert re.fullmatch(
        r"hcp render: sbatch --test-only: Job \d+ to start at .* on nodes n\[1-2\] in partition debug\n"
        r"hcp render: created the log folder logs\n",
        said.stderr,
    )
    job.id = int(said.stdout)
    assert job.finish() == "COMPLETED", job.log()
    assert job.verdict()["status"] == "completed"


def test_test_only_says_what_slurm_refuses_and_submits_nothing(job):
    done = job.try_render("srun", "--test-only", "--partition", "nowhere")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "nvalid partition" in done.stderr, done
    done = job.render("srun", "--test-only")
    assert done.returncode == 0 and done.stdout == "" and "to start at" in done.stderr
    assert job.slurm.run("squeue", "-h").stdout == ""


def test_a_job_with_an_error_is_not_submitted(job):
    before = set(job.slurm.run("squeue", "-h", "-o", "%i").stdout.split())  # an earlier test's job may still end
    done = job.render("srun", "--submit", launch=["--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p"])
    assert done.returncode == 1 and done.stdout == "" and "not submitted" in done.stderr
    assert set(job.slurm.run("squeue", "-h", "-o", "%i").stdout.split()) <= before


SALLOC = ["salloc", "--nodes=2", "--exclusive", "--time=10", "--job-name=mine", "bash", "-c"]


def test_a_run_inside_an_allocation_trains_twice_and_keeps_both_verdicts(job):
    job.render("srun", "--in-allocation")
    done = job.slurm.run(*SALLOC, f"bash {job.script} && bash {job.script}", cwd=job.folder)
    job.id = int(re.findall(r"job allocation (\d+)", done.stderr)[0])
    assert [job.verdict(n)["status"] for n in (0, 1)] == ["completed"] * 2, done.stdout + done.stderr
    assert job.final_sum() == total_after(6, 4)
    assert (job.run / "job.log").read_text().count('"event": "end"') == 2


def test_a_run_that_is_outside_of_its_allocation_says_what_it_wants(job):
    job.render("srun", "--in-allocation")
    done = job.slurm.run("bash", job.script, cwd=job.folder, check=False)
    assert done.returncode == 2 and done.stderr == (
        "found no allocated nodes; wanted 2; run it inside salloc with the options above\n"
    )


def test_a_run_inside_an_allocation_saves_before_that_ends(job):
    job.render("torchrun", "--in-allocation", trainer=["--wait-at", "5"], iters=30)
    text, until = job.script.read_text(), '(($(date +%s) < $(date -d "$ends" +%s) - 60))'
    assert until in text
    # The end comes when five steps are done: Slurm's own time limits are minutes.
    job.script.write_text(text.replace(until, '! grep -qs "iteration *5/" logs/*/train-*'))
    done = job.slurm.run(*SALLOC, f"bash {job.script}", cwd=job.folder, check=False)
    job.id = int(re.findall(r"job allocation (\d+)", done.stderr)[0])
    assert (job.verdict()["status"], job.verdict()["phase"]) == ("preempted", 3), done.stdout + done.stderr
    assert job.final_sum()["step"] == 5
