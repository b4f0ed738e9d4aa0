"""The programs that run rendered jobs on a stand-in Slurm pass, and fail when what they verify is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.processes import HANG_S

PARTS = {
    "careless_scripts": ("launch", "resiliency"),
    "dead_jobs": ("first-cause", "context-parallelism"),
    "rendered_scripts": ("kinds", "missing-facts", "hostile-values", "broken-launch", "placement"),
    "requeue_guard": ("failures", "limit", "preemption", "exit-codes"),
    "rendered_job": ("trains", "killed-rank", "interrupted"),
}
RENDERED = """
import megatron_hcp.render.script as render
fill = render._fill
def spoiled(job):
    return fill(job).replace({old!r}, {new!r})
render._fill = spoiled
"""
SPOILED = """
import importlib.machinery, sys
class Spoiled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "megatron_hcp.job." + {module!r}:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        text = open(spec.origin, encoding="utf-8").read()
        assert {old!r} in text
        spec.loader.get_code = lambda _: compile(text.replace({old!r}, {new!r}), spec.origin, "exec")
        return spec
sys.meta_path.insert(0, Spoiled)
"""
UNQUOTED = """
import megatron_hcp.render.shell_words as render
render.shlex = type("shlex", (), {"quote": staticmethod(str)})
"""
NO_RULE = """
import megatron_hcp.rules.rule as rules
register = rules.register
rules.register = lambda made: register(made._replace(check=lambda v: None) if made.id == {rule!r} else made)
"""
NO_SIGNATURE = """
import megatron_hcp.triage.read as triage
triage.SIGNATURES = tuple(row for row in triage.SIGNATURES if row.rule != {rule!r})
"""


@pytest.fixture
def program(checks_dir, tmp_path):
    """`program(name, *parts, patch=CODE)`: its exit code and the results that did not hold; CODE runs in every Python
    process that it starts, first."""

    def run(name, *parts, patch=""):
        (tmp_path / "sitecustomize.py").write_text(patch)
        path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
        done = subprocess.run(
            [sys.executable, checks_dir / f"{name}.py", *parts, "--json"],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        print(done.stdout, done.stderr)  # shown where the test fails: what was found
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0) and (report["schema"], report["program"]) == ("hcp.step/1", name)
        assert report["error"] is None, report["error"]
        assert report["results"]
        return [result["name"] for result in report["results"] if not result["ok"]]

    return run


@pytest.mark.parametrize("name", [name for name in PARTS if name != "rendered_job"])
@pytest.mark.slow
def test_a_program_passes_without_a_cluster_and_without_torch(program, name):
    assert program(name) == []


@pytest.mark.torch
def test_a_rendered_job_trains_names_the_killed_rank_and_loses_nothing(program):
    assert program("rendered_job") == []


@pytest.mark.parametrize(
    ("name", "part", "old", "new", "failed"),
    [
        ("rendered_scripts", "kinds", "set -euo pipefail", "if then", "bash parses it"),
        ("requeue_guard", "failures", 'scontrol requeue "$SLURM_JOB_ID"', "true", "failed after a checkpoint"),
        (
            "requeue_guard",
            "preemption",
            """timeout 10 scancel --signal=USR1 "$SLURM_JOB_ID" || true' USR1""",
            "true' USR1",
            "preempted, next requeue",
        ),
        ("requeue_guard", "exit-codes", 'exit "$(sed', 'exit 1 # "$(sed', "exit code 16 is the job's"),
    ],
)
@pytest.mark.slow
def test_a_script_that_is_broken_is_found(program, name, part, old, new, failed):
    found = program(name, part, patch=RENDERED.format(old=old, new=new))
    assert any(failed in result for result in found), found


@pytest.mark.parametrize(
    ("name", "part", "module", "old", "new", "failed"),
    [
        (
            "rendered_scripts",
            "broken-launch",
            "preparing",
            'raise StoppedError(f"hcp check found errors {where}")',
            "pass",
            "stopped in phase 0",
        ),
        (
            "rendered_scripts",
            "placement",
            "preparing",
            'raise StoppedError(f"the ranks are not placed as planned: {error}") from None',
            "pass",
            "cyclic: stopped",
        ),
        (
            "requeue_guard",
            "failures",
            "verdict",
            "!= self.mark or saved_in(tails)",
            "!= -1",
            "failed before a checkpoint: failed, next none",
        ),
        ("requeue_guard", "limit", "verdict", "max_requeues=self.spec.requeue", "max_requeues=99", "the last attempt"),
        (
            "requeue_guard",
            "limit",
            "leader",
            "self.task.attempt > spec.requeue",
            "False",
            "started by Slurm once more",
        ),
    ],
)
@pytest.mark.slow
def test_a_supervisor_that_is_broken_is_found(program, name, part, module, old, new, failed):
    found = program(name, part, patch=SPOILED.format(module=module, old=old, new=new))
    assert any(failed in result for result in found), found


@pytest.mark.torch
def test_a_trainer_that_is_not_asked_to_save_is_found(program):
    spoiled = SPOILED.format(module="supervisor", old="self.program.ask(signal.SIGTERM)", new="self.program.kill()")
    found = program("rendered_job", "interrupted", patch=spoiled)
    assert "srun: saved in the middle" in found, found


@pytest.mark.slow
def test_values_without_quotes_are_found(program):
    assert program("rendered_scripts", "hostile-values", patch=UNQUOTED) != []


@pytest.mark.parametrize(("part", "rule"), [("launch", "SLURM004"), ("resiliency", "SLURM010")])
@pytest.mark.slow
def test_a_rule_that_is_silent_is_found(program, part, rule):
    found = program("careless_scripts", part, patch=NO_RULE.format(rule=rule))
    assert len(found) == 1 and found[0].endswith(rule)


@pytest.mark.slow
def test_a_signature_that_is_missing_is_found(program):
    found = program("dead_jobs", "first-cause", patch=NO_SIGNATURE.format(rule="HCP007"))
    assert found == ["a head split that does not divide"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PARTS)
def test_a_program_says_what_it_can_do_and_refuses_what_it_cannot(checks_dir, name):
    done = subprocess.run([sys.executable, checks_dir / f"{name}.py", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and all(part in done.stdout for part in PARTS[name])
    done = subprocess.run([sys.executable, checks_dir / f"{name}.py", "no-such-part"], capture_output=True, text=True)
    assert done.returncode == 2 and "no-such-part" in done.stderr
