"""Renders a job of each kind and tests the scripts: they parse, pass hcp check, carry any value, and stop in time.

The scripts run with bash on the Slurm stand-in of slurm_standin.py, without a cluster or torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outcomes import Outcomes, run_parts
from slurm_standin import StandinSlurm, run_hcp

_SIZES = (
    "--tensor-model-parallel-size",
    "1",
    "--context-parallel-size",
    "4",
    "--cp-comm-type",
    "a2a+p2p",
    "--hierarchical-context-parallel-sizes",
)
_MODEL = (
    "--num-attention-heads",
    "32",
    "--group-query-attention",
    "--num-query-groups",
    "8",
    "--num-layers",
    "32",
    "--hidden-size",
    "4096",
    "--seq-length",
    "131072",
    "--no-create-attention-mask-in-dataloader",
    "--save",
    "/ckpt/run",
    "--load",
    "/ckpt/run",
    "--exit-signal-handler",
)
_MLM = (*_SIZES, "2", "2", *_MODEL)
_VERL = (
    "actor_rollout_ref.actor.strategy=megatron",
    "actor_rollout_ref.actor.megatron.context_parallel_size=2",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct",
)
_HOSTILE = (
    "a b",
    "it's",
    'say "hi"',
    "$(touch EVALUATED)",
    "`touch EVALUATED`",
    "two\nlines",
    "-rf",
    "--x",
    "é中🚀",
    "x" * 90_000,
    "${HOME}",
    "a\\",
    "*",
    "~",
    "#",
    "'",
    "!!",
    "a;touch EVALUATED",
    "{{ 1 }}",
    "a\rb",
    "%s",
)
_BROKEN = {
    "sizes that do not multiply to CP": ((*_SIZES, "2", "4", *_MODEL), "HCP002"),
    "an inner size that does not divide the heads": ((*_SIZES, "4", "1", *_MODEL, "--num-query-groups", "2"), "HCP007"),
}


def kinds(outcomes: Outcomes) -> None:
    """Every kind of job parses as bash, and `hcp check` reads the launch back from it and finds nothing."""
    cases = {
        "srun": _MLM,
        "torchrun": _MLM,
        "ft_launcher": _MLM,
        "ray": _VERL,
        "verify": (),
    }
    for start, launch in cases.items():
        slurm = StandinSlurm(outcomes.folder / start)
        program = () if start in ("ray", "verify") else ("--program", "pretrain_gpt.py")
        script = slurm.render(start=start, launch=launch, site=program) if launch else _verification(slurm)
        parsed = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        outcomes.expect(f"{start}: bash parses it", parsed.returncode == 0 and not parsed.stderr, parsed.stderr)
        if not launch:
            continue
        done = run_hcp("check", str(script), "--format", "json", "--assume", "nvlink_domain=2", folder=slurm.folder)
        found: dict[str, Any] = {"findings": [done.stderr]}
        if done.stdout.startswith("{"):
            found = json.loads(done.stdout)
        serious = [item for item in found["findings"] if item == done.stderr or item["severity"] != "info"]
        outcomes.expect(f"{start}: hcp check finds nothing in it", done.returncode == 0 and not serious, f"{serious}")
        read = json.loads(run_hcp("show", str(script), "--format", "json", folder=slurm.folder).stdout)
        facts = {name: fact["value"] for name, fact in read["facts"].items()}
        wanted = {"start": start, "nodes": 2, "gpus_per_node": 2, "cp": 2 if start == "ray" else 4}
        outcomes.expect_equal(
            f"{start}: hcp check reads the launch back", {name: facts.get(name) for name in wanted}, wanted
        )


def _verification(slurm: StandinSlurm) -> Path:
    script = slurm.folder / "job.sbatch"
    done = run_hcp(
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
        "-o",
        str(script),
        folder=slurm.folder,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return script


def missing_facts(outcomes: Outcomes) -> None:
    """Everything that the site does not state is listed, and no script is written."""
    done = run_hcp(
        "render",
        "--start",
        "srun",
        "--requeue",
        "2",
        "-o",
        "job.sbatch",
        "--",
        "--context-parallel-size",
        "2",
        folder=outcomes.folder,
    )
    lacking = [
        name for name in ("nodes", "gpus_per_node", "program", "checkpoint_dir") if f"{name} (" not in done.stderr
    ]
    outcomes.expect("all four facts are named", not lacking, f"{lacking} are not: {done.stderr}")
    outcomes.expect_equal("in one line, with exit code 2", (done.returncode, done.stderr.count("\n")), (2, 1))
    outcomes.expect("no script is written", not (outcomes.folder / "job.sbatch").exists() and not done.stdout)


def hostile_values(outcomes: Outcomes) -> None:
    """Values that look like shell code arrive in variables and arguments unchanged; none is evaluated."""
    from megatron_hcp.launch.load import LoadOptions, load_launch
    from megatron_hcp.render.job import plan_job
    from megatron_hcp.render.script import render_job
    from megatron_hcp.render.site import load_site

    words = ("--seq-length", "8", *(word for n, value in enumerate(_HOSTILE) for word in (f"--note-{n}", value)))
    variables = {f"VALUE_{n}": value for n, value in enumerate(_HOSTILE)}
    site = load_site(
        None,
        {
            "nodes": "2",
            "gpus_per_node": "2",
            "time": "30",
            "program": ("x.py",),
            "env": tuple(f"{name}={value}" for name, value in variables.items()),
        },
    )
    text = render_job(plan_job("srun", site, load_launch("", LoadOptions(dialect="mlm", words=words)), words))
    phase, marker, _ = text.partition("# ---- one start")
    assert marker, "the script does not start hcp"
    slurm = StandinSlurm(outcomes.folder / "job")
    report = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    script = slurm.folder / "phase.sh"
    script.write_text(f'{phase}exec "$REPORTER" -c "$REPORT" "${{launch[@]}}"\n')
    done = subprocess.run(
        ["bash", str(script)],
        cwd=slurm.folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "PATH": f"{slurm.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_NAME": "job",
            "SLURM_JOB_NUM_NODES": "2",
            "REPORTER": sys.executable,
            "REPORT": report,
        },
    )
    if done.returncode != 0:
        outcomes.expect("the environment phase runs", False, done.stderr[-300:])
        return
    environment, arrived = json.loads(done.stdout)
    outcomes.expect_equal("arguments arrive unchanged", arrived, list(words))
    outcomes.expect_equal("variables arrive unchanged", {name: environment.get(name) for name in variables}, variables)
    evaluated = [str(path) for path in outcomes.folder.rglob("EVALUATED")]
    outcomes.expect("nothing was evaluated", not evaluated, str(evaluated))


def broken_launch(outcomes: Outcomes) -> None:
    """A launch with an error stops in phase 0: nothing is started, and the verdict and the log name the rule."""
    for number, (name, (launch, rule)) in enumerate(_BROKEN.items()):
        slurm, trainer = _with_trainer(outcomes.folder / str(number))
        ended = slurm.run(slurm.render(launch=launch, site=("--program", trainer, "--requeue", "3")))
        verdict = {key: ended.verdict.get(key) for key in ("status", "phase", "next")}
        outcomes.expect_equal(
            f"{name}: stopped in phase 0, not requeued", verdict, {"status": "stopped", "phase": 0, "next": "none"}
        )
        outcomes.expect_equal(f"{name}: the job fails", ended.code, 1)
        outcomes.expect(f"{name}: the log names {rule}", rule in ended.log, ended.log[-300:])
        outcomes.expect(f"{name}: no trainer started", not _started(slurm), f"{_started(slurm)} started")


def placement(outcomes: Outcomes) -> None:
    """Ranks not placed in blocks stop the job in phase 1; placed in blocks, every rank starts."""
    for kind in ("cyclic", "block"):
        slurm, trainer = _with_trainer(outcomes.folder / kind, kind)
        ended = slurm.run(slurm.render(launch=_MLM, site=("--program", trainer)))
        if kind == "cyclic":
            verdict = (ended.verdict.get("status"), ended.verdict.get("phase"))
            outcomes.expect_equal("cyclic: stopped in phase 1", verdict, ("stopped", 1))
            outcomes.expect(
                "cyclic: the log says where the ranks are", "not placed in blocks" in ended.log, ended.log[-300:]
            )
            outcomes.expect_equal("cyclic: no trainer started", _started(slurm), [])
        else:
            outcomes.expect_equal("block: the job completes", ended.verdict.get("status"), "completed")
            outcomes.expect(
                "block: the inner groups stay in a node", '"inside_a_node": true' in ended.log, ended.log[-300:]
            )
            outcomes.expect_equal(
                "block: every rank started, on its node", _started(slurm), ["0 n1", "1 n1", "2 n2", "3 n2"]
            )


def _with_trainer(folder: Path, placement: str = "block") -> tuple[StandinSlurm, str]:
    slurm = StandinSlurm(folder, placement=placement)
    (folder / "started").mkdir()
    trainer = folder / "trainer.py"
    trainer.write_text(
        f"import os, pathlib\npathlib.Path({str(folder / 'started')!r}, os.environ['RANK'] + ' ' + "
        "os.environ['SLURMD_NODENAME']).touch()\nprint('iteration 1/1')\n"
    )
    return slurm, str(trainer)


def _started(slurm: StandinSlurm) -> Sequence[str]:
    return sorted(path.name for path in (slurm.folder / "started").iterdir())


if __name__ == "__main__":
    sys.exit(run_parts("rendered_scripts", __doc__, (kinds, missing_facts, hostile_values, broken_launch, placement)))
