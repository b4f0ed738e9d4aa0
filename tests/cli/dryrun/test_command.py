"""`hcp dryrun`, and `hcp check --dryrun`: exit codes, the JSON, and one line for what can't be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.dry_runs import BASE, FACTS
from support.needs import UPSTREAM

ROOT = Path(__file__).resolve().parents[3]
WHEEL = ("--upstream", str(UPSTREAM / "megatron-core-0.18.2"), "--assume", f"te=2.14 {FACTS}")


WITHOUT_STAND_IN = "--optimizer lion"


def hcp(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "megatron_hcp", *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("examples/mlm_hcp.sbatch",), "no code of Megatron-LM"),
        (("examples/bridge_hcp.yaml", "--upstream", "."), "no code of upstream"),
        (("examples/mlm_hcp.sbatch", "examples/mlm_broken.sh"), "2 targets"),
        ((), "no target"),
        (("examples/mlm_hcp.sbatch", "--until", "never"), "--until"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(words: tuple[str, ...], says: str) -> None:
    done = hcp("dryrun", *words)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done


@pytest.mark.parametrize("words", [(), ("examples/mlm_hcp.sbatch", "--hold", "tp=2")])
def test_memory_is_counted_of_a_launch_with_its_own_layout_alone(words: tuple[str, ...]) -> None:
    done = hcp("plan", *words, "--gpu", "h100", "--measure")
    assert done.returncode == 2 and "--measure" in done.stderr and done.stderr.count("\n") == 1, done


def test_a_report_for_machines_is_not_made_with_a_dry_run() -> None:
    assert hcp("check", "examples/mlm_hcp.sbatch", "--dryrun", "--format", "sarif").returncode == 2


def test_the_help_of_each_command_says_that_it_executes_code() -> None:
    for command in ("dryrun", "check", "plan"):
        assert "EXECUTES" in hcp(command, "--help").stdout


@pytest.mark.torch
@pytest.mark.upstream
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "verdict"),
    [
        ("--until model", 0, "done"),
        ("--until model --hidden-size 1000", 1, "refused"),
        (f"--until optimizer {WITHOUT_STAND_IN}", 4, "undecided"),
    ],
)
def test_the_exit_code_is_the_verdicts_and_the_json_its_schemas(words: str, code: int, verdict: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    until, more = words.split()[:2], words.split()[2:]
    done = hcp("dryrun", *until, "--ranks", "0", "--format", "json", *WHEEL, "--", *BASE.split(), *more)
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"]) == (code, verdict), done.stdout
    schema = json.loads((ROOT / "schemas/hcp.dryrun.1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)


@pytest.mark.torch
@pytest.mark.upstream
@pytest.mark.slow
def test_a_check_with_a_dry_run_fails_where_upstream_refuses_and_no_rule_does() -> None:
    words = BASE.replace("--eval-interval 100 ", "").split()
    done = hcp("check", "--dryrun", "--format", "json", "--full", *WHEEL, "--", *words)
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"], data["dryrun"]["verdict"]) == (1, "failed", "refused")
    assert data["dryrun"]["ranks"][0]["error"]["function"] == "get_train_valid_test_num_samples"


@pytest.mark.torch
@pytest.mark.upstream
@pytest.mark.slow
def test_a_plan_says_what_the_system_does_not_allow_of_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = hcp("plan", "--gpu", "h100", "--measure", *WHEEL, "--", *BASE.split(), "--vocab-size", "128000")
    assert done.returncode == 0 and "network not cut off: this system allows no namespaces" in done.stderr, done


@pytest.mark.torch
@pytest.mark.upstream
@pytest.mark.slow
@pytest.mark.parametrize(("more", "code"), [("", 0), ("--hidden-size 1000 --kv-channels 64", 0), (WITHOUT_STAND_IN, 4)])
def test_a_plan_sets_what_upstreams_run_counts_beside_its_formulas(more: str, code: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    words = (*BASE.split(), "--vocab-size", "128000", *more.split())
    done = hcp("plan", "--gpu", "h100", "--measure", "--format", "json", *WHEEL, "--", *words)
    assert done.returncode == code, done.stderr
    data = json.loads(done.stdout)
    schema = json.loads((ROOT / "schemas/hcp.plan.1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    for one in data["measured"]:
        assert bool(one["missing"]) is bool(code)
        for kind, found in one["bytes"].items():
            if found["formulas"] is not None:
                assert found["counted"] == pytest.approx(found["formulas"], rel=0.01), (kind, found)
