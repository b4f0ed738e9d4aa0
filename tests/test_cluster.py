"""The test cluster itself: what the other tests rely on."""

import textwrap

import pytest

from support.selection import NUM_CLUSTERS

pytestmark = pytest.mark.slurm


def _script(folder, text):
    path = folder / "job.sh"
    path.write_text(textwrap.dedent(text))
    return path


def test_a_job_runs_on_two_nodes_that_know_their_names(slurm, tmp_path):
    script = _script(
        tmp_path,
        """\
        #!/bin/bash
        srun --label bash -c 'echo "$SLURMD_NODENAME $SLURM_PROCID"'
        """,
    )
    job = slurm.submit(script, "-N2", "--ntasks-per-node=2", "--gres=gpu:8", "-o", "out", cwd=tmp_path)
    assert slurm.finish(job) == "COMPLETED"
    lines = sorted((tmp_path / "out").read_text().splitlines())
    assert [line.split()[2] for line in lines] == ["0", "1", "2", "3"]
    names = [line.split()[1] for line in lines]
    assert names[0] == names[1] != names[2] == names[3]


def test_a_failing_task_fails_the_job(slurm, tmp_path):
    script = _script(tmp_path, "#!/bin/bash\nsrun bash -c 'exit 17'\n")
    job = slurm.submit(script, "-o", "out", cwd=tmp_path)
    assert slurm.finish(job) == "FAILED"
    assert slurm.field(job, "ExitCode") == "17:0"


def test_a_requeued_job_starts_again_without_the_wait(slurm, tmp_path):
    script = _script(
        tmp_path,
        """\
        #!/bin/bash
        echo "run ${SLURM_RESTART_COUNT:-0}" >> runs
        if [[ ${SLURM_RESTART_COUNT:-0} == 0 ]]; then scontrol requeue "$SLURM_JOB_ID"; sleep 60; fi
        """,
    )
    job = slurm.submit(script, "--requeue", "-o", "out", cwd=tmp_path)
    slurm.wait_until(
        lambda: slurm.field(job, "Restarts") == "1" and slurm.field(job, "JobState") == "PENDING", "the requeue"
    )
    slurm.hurry(job)
    assert slurm.finish(job) == "COMPLETED"
    assert (tmp_path / "runs").read_text().split("\n")[:2] == ["run 0", "run 1"]


@pytest.mark.parametrize("cluster", range(NUM_CLUSTERS))
def test_nothing_is_left_running(slurm, cluster):
    """After all the others on this cluster."""
    slurm.wait_until(lambda: slurm.run("squeue", "-h", "-t", "RUNNING,COMPLETING").stdout == "", "an empty queue")
    running = slurm.commands()
    assert any("slurmctld" in command for command in running), "a cluster without daemons would see nothing"
    assert not [command for command in running if "train_standin.py" in command]
