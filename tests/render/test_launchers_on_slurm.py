"""Rendered jobs under the real Ray and the real ft_launcher, on a real Slurm."""

import os
import sys

import pytest

from support.jobs import total_after
from support.needs import LAUNCHERS

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.launchers]


@pytest.fixture
def launchers(slurm):
    """The environment in which a job finds them."""
    return {
        "PATH": f"{LAUNCHERS / 'bin'}{os.pathsep}{slurm.env['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [slurm.env["PYTHONPATH"], str(LAUNCHERS)])),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(slurm.folder),
    }


def test_ft_launcher_starts_a_killed_rank_again_and_a_preempted_job_saves(job, launchers):
    """The rank dies once and the job sees nothing of it; then Slurm takes the nodes, and it saves."""
    once = ["--fail-rank", "3", "--fail-step", "4", "--fail-how", "kill", "--fail-once", job.folder / "once"]
    job.render("ft_launcher", "--requeue", "1", trainer=[*once, "--wait-at", "7"], iters=9)
    job.submit(env=launchers)
    job.wait_for_steps(4 + 3)  # from the checkpoint of step 4, in the same attempt
    assert (job.folder / "once").exists() and "will restart worker group" in job.train_logs()
    job.slurm.preempt(job.id)
    first = job.final_verdict(0)
    assert (first["status"], first["next"]) == ("preempted", "requeue"), job.log() + job.train_logs()
    assert job.final_sum() == total_after(7, 4)


DRIVER = """
import os, sys, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)

@ray.remote(num_gpus=2)
def where():
    return ray.get_runtime_context().get_node_id()

nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
groups = ray.util.placement_group([{"CPU": 1, "GPU": 2}] * 2, strategy="STRICT_SPREAD")
ray.get(groups.ready())
found = ray.get([where.options(placement_group=groups, placement_group_bundle_index=i).remote() for i in (0, 1)])
assert set(found) == nodes and len(nodes) == 2, (found, nodes)
print("DRIVER", os.environ["SLURMD_NODENAME"], os.environ["RAY_ADDRESS"], sys.argv[1:], flush=True)
"""
# The nodes are one machine and share a folder of sockets, in which Ray takes a name that is free when it looks: one
# after the other.
IN_TURN = """#!/bin/bash
if [[ $1 == start && $SLURM_NODEID != 0 ]]; then
    until compgen -G "$RAY_TMPDIR/ray/session_*/sockets/raylet" >/dev/null; do sleep 0.5; done
fi
exec {ray} "$@"
"""
WORDS = [
    "actor_rollout_ref.actor.strategy=megatron",
    "actor_rollout_ref.actor.megatron.context_parallel_size=2",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "trainer.project_name=a b",
]


def test_verl_is_driven_beside_the_head_of_one_ray_cluster(slurm, hcp, tmp_path, launchers, programs):
    programs.add("ray", IN_TURN.format(ray=LAUNCHERS / "bin" / "ray"))
    launchers["PATH"] = f"{programs.folder}{os.pathsep}{launchers['PATH']}"
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "logs").mkdir()
    site = "--nodes 2 --gpus-per-node 2 --time 10 --signal 60 --gpu-request none --logs logs --nodelist n[1-2]".split()
    own = ["--python", sys.executable, "--program", tmp_path / "driver.py", "--launcher", "verl", "-o", "job.sbatch"]
    done = hcp("render", "--start", "ray", *site, *own, "--", *WORDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job = slurm.submit(tmp_path / "job.sbatch", cwd=tmp_path, env=launchers)
    state = slurm.finish(job)
    run = tmp_path / f"logs/train-{job}"
    logs = "".join(path.read_text() for path in sorted(run.glob("*.log")))
    assert state == "COMPLETED", (tmp_path / f"logs/train-{job}.out").read_text() + logs
    port = 20000 + job % 1200 * 10
    sizes = ["trainer.nnodes=2", "trainer.n_gpus_per_node=2"]
    said = (run / "train-r0-node0.log").read_text()
    assert f"DRIVER n1 127.0.0.1:{port} {[*WORDS, *sizes]}" in said, said
    slurm.wait_until(lambda: not any("raylet" in command for command in slurm.commands()), "Ray to be gone")
