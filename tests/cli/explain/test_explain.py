"""`hcp explain`: the page of a rule, and where the rule is written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_hcp.rules.registry import RULES


def written_at(root: Path, file: str, line: int) -> str:
    """The text of a module from a line on, up to the first function that starts there."""
    lines = (root / file).read_text(encoding="utf-8").splitlines()
    body = "\n".join(lines[line - 1 :])
    end = re.search(r"^def \w+", body, re.M)
    return body[: end.end()] if end else body


@pytest.mark.slow
def test_every_rule_names_the_line_of_its_own_decorator_or_row(hcp, root: Path) -> None:
    data = json.loads(hcp("explain", "--format", "json").stdout)
    places = {rule["rule"]: rule["defined_in"] for rule in data["rules"]}
    assert list(places) == [rule.id for rule in RULES]
    for rule_id, place in places.items():
        if place["function"] == "ROWS":
            line = (root / place["file"]).read_text(encoding="utf-8").splitlines()[place["line"] - 1]
            assert line.strip().removeprefix("id=") == f'"{rule_id}",', place
            continue
        text = written_at(root, place["file"], place["line"])
        assert text.startswith("@rule(") and f'"{rule_id}"' in text, (rule_id, place)
        assert text.endswith(f"def {place['function']}"), (rule_id, place)


def test_a_page_ends_with_the_rules_file_and_line(hcp, root: Path) -> None:
    last = hcp("explain", "HCP002").stdout.splitlines()[-1]
    match = re.fullmatch(r"(src/megatron_hcp/rules/hcp/\w+\.py):(\d+) \w+", last)
    assert match is not None, last
    assert '"HCP002"' in written_at(root, match[1], int(match[2]))


def test_a_page_says_what_depends_on_the_launch(hcp) -> None:
    # TP004 stops every launch in the same way; the sizes of HCP011 stop Megatron-LM's command line and pass in Bridge.
    assert "can differ by launch" not in hcp("explain", "TP004").stdout
    assert "Effect, stage can differ by launch; each finding states its own." in hcp("explain", "HCP011").stdout


@pytest.mark.slow
def test_pages_that_are_kept_name_no_line(hcp, tmp_path: Path) -> None:
    assert hcp("explain", "--all", "-o", "pages", cwd=tmp_path).returncode == 0
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == {"README", *(rule.id for rule in RULES)}
    assert not re.search(r"\.py:\d", (tmp_path / "pages" / "HCP002.md").read_text())


@pytest.mark.parametrize("which", ["good", "bad"])
def test_the_command_of_an_example_runs(hcp, tmp_path: Path, which: str) -> None:
    (rule,) = json.loads(hcp("explain", "HCP002", "--format", "json").stdout)["rules"]
    words = shlex.split(rule[which]["command"])
    assert words[:2] == ["hcp", "check"]
    done = hcp("check", "--select", "HCP002", *words[2:], cwd=tmp_path)
    assert done.returncode == (1 if which == "bad" else 0), done.stdout


def test_a_guard_of_upstream_is_explained_by_its_name(hcp: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    name = "START001/validate_args/bf16-c4ee"
    assert f"- {name}\n" in hcp("explain", "START001").stdout
    said = hcp("explain", name).stdout
    for part in ("validate_args of megatron/training/arguments.py", "    not args.bf16\n", "where\n\n    args.fp16\n"):
        assert part in said
    (one,) = json.loads(hcp("explain", name, "--format", "json").stdout)["guards"]
    assert one["condition"] == "not args.bf16" and "0.16.1" in one["releases"]


def test_a_guard_that_no_release_has_is_one_line(hcp: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = hcp("explain", "START001/validate_args/nothing-0000")
    assert (done.returncode, done.stdout) == (2, "") and "one that hcp explain START001 lists" in done.stderr


def test_a_guard_without_its_rule_is_answered_with_the_whole_name(
    hcp: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = hcp("explain", "validate_args/bf16-c4ee")
    assert done.returncode == 2 and "wanted START001/validate_args/bf16-c4ee" in done.stderr
