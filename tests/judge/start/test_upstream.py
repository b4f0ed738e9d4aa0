"""`--upstream`: the user's own code of upstream judges the launch, and every output says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.small_upstream import ARGUMENTS, small_upstream

Check = Callable[..., subprocess.CompletedProcess[str]]
HELPER = """
def _check(size, said):
    assert size != 2, "two is no size"


"""
BAD = ("--micro-batch-size", "1", "--our-own-switch", "--context-parallel-size", "2")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = small_upstream(tmp_path / "tree")

    def run(*options: str, words: tuple[str, ...] = BAD) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "megatron_hcp", "check", "--upstream", tree, *options, "--", *words]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def test_a_guard_of_the_users_own_code_is_an_error_that_names_it(check: Check, tmp_path: Path) -> None:
    done = check("--format", "json", "--full")
    data = json.loads(done.stdout)
    (finding,) = data["findings"]
    assert (done.returncode, finding["rule"], finding["keys"]) == (
        1,
        "START001",
        ["context_parallel_size", "our_own_switch"],
    )
    assert finding["guard"].startswith("validate_args/context_parallel_size-")
    assert "our own switch has no context parallelism" in finding["message"] and "0.21.0" in finding["message"]
    assert finding["fixes"][0]["without"] == ["--our-own-switch"]
    assert data["judged_by"] == [
        {
            "repository": "megatron-lm",
            "source": "upstream",
            "path": str(tmp_path / "tree"),
            "release": "0.21.0",
            "evaluated": 1,
            "open": 0,
            "unreadable": 0,
        }
    ]


def test_sarif_names_the_guard_in_the_id_and_in_the_fingerprint(check: Check) -> None:
    (run,) = json.loads(check("--format", "sarif").stdout)["runs"]
    (result,) = run["results"]
    assert result["ruleId"].startswith("START001/validate_args/")
    assert result["partialFingerprints"] == {"hcpFinding/v1": result["ruleId"]}
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "START001"


def test_the_guard_that_the_finding_names_can_be_ignored(check: Check) -> None:
    name = next(word for word in check().stdout.split() if word.startswith("START001/"))
    assert check("--ignore", name).returncode == 0
    refused = check("--ignore", "START001")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1


def test_a_launch_that_the_code_accepts_says_how_much_of_it_was_read(check: Check) -> None:
    done = check(words=BAD[:3])
    assert "upstream's start-up (0.21.0): 1 of 1 guards passed, 0 open\n" in done.stdout


def test_a_folder_that_is_no_code_of_upstream_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "megatron_hcp", "check", "--upstream", str(tmp_path), "--", *BAD]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "which is no code of upstream; wanted" in done.stderr


def test_a_release_that_no_table_has_is_said_not_to_be_judged() -> None:
    """No tree is named here: nothing of 0.25.0 was read."""
    words = ["--assume", "mcore=0.25.0", "--", "--num-layers", "2"]
    done = subprocess.run([sys.executable, "-m", "megatron_hcp", "check", *words], capture_output=True, text=True)
    assert "upstream's start-up: not judged, 0.25.0 was not read; --upstream DIR reads your own\n" in done.stdout


def test_a_stated_release_beside_another_tree_is_said(check: Check) -> None:
    said = check("--assume", "mcore=0.19.0").stdout
    assert "--upstream is mcore 0.21.0, and mcore=0.19.0 is stated: rules go by what is stated" in said
    assert "is stated" not in check("--assume", "mcore=0.21.0").stdout


def test_a_guard_that_is_ignored_did_not_pass(check: Check) -> None:
    name = next(word for word in check().stdout.split() if word.startswith("START001/"))
    assert "(0.21.0): 0 of 1 guards passed, 0 open, 1 not shown\n" in check("--ignore", name).stdout


def test_with_upstreams_guards_alone_they_are_counted(check: Check) -> None:
    assert "1 guard applied, 0 not checked" in check("--select", "START001").stdout


def test_an_option_of_hcps_own_after_the_dashes_is_one_line(check: Check) -> None:
    done = check(words=("--upstream", "x", *BAD))
    assert done.returncode == 2 and done.stderr == (
        "hcp: found --upstream after --; wanted the launch's own words there; write it before --\n"
    )


def test_a_helper_that_is_given_a_text_with_a_sign_of_equality_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = ARGUMENTS.replace("def validate_args", HELPER + "def validate_args").replace(
        "    return args\n", "    _check(args.context_parallel_size, 'size = 2')\n    return args\n"
    )
    tree = small_upstream(tmp_path / "tree", own)
    command = [sys.executable, "-m", "megatron_hcp", "check", "--upstream", tree, "--format", "json", "--", *BAD[:2]]
    done = subprocess.run([*command, "--context-parallel-size", "2"], capture_output=True, text=True)
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["keys"] == ["size", "context_parallel_size"] and "two is no size" in finding["message"]
