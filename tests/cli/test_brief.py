"""The JSON of a check fits into an agent's window: a broken launch in 4 kB, a clean one in 1 kB, each cut named."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.cli.reports.brief import brief
from megatron_hcp.cli.reports.json import dump, report_json
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target, read_text
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Example

LISTS = ("undecided", "presumed", "findings", "accepted", "not_checked", "facts")


def data_of(example: Example) -> dict[str, Any]:
    if "\n" in example.text:
        reading = read_text(example.text + "\n", "launch.txt", dialect=example.dialect)
    else:
        reading = read_target("", dialect=example.dialect, words=shlex.split(example.text))
    launch = build_launch(reading, assumed=parse_assumptions(example.assume.split()))
    return report_json(check_launch(launch, RULES))


def fits(data: dict[str, Any]) -> dict[str, Any]:
    """The brief form, of the size that was promised, with a note for each thing that it lacks."""
    short = brief(data)
    is_clean = not data["findings"] and not data["undecided"] and not data.get("faults")
    assert len(dump(short).encode()) + 1 < (1_000 if is_clean else 4_000)
    if short != data:
        assert short["cut"][-1] == "all of it: add --full"
    for name in LISTS:
        note = f"{name}: {len(short[name])} of {len(data[name])}"
        assert (note in short.get("cut", ())) == (len(short[name]) < len(data[name]))
    return short


@pytest.mark.slow
@pytest.mark.parametrize("side", ["good", "bad"])
def test_every_rules_example_fits_with_its_findings_and_their_fixes(side: str) -> None:
    for rule in RULES:
        data = data_of(getattr(rule, side))
        short = fits(data)
        kept = [{**found, "source": [], "presumed": []} for found in short["findings"]]
        assert kept == [{**found, "source": [], "presumed": []} for found in data["findings"]], rule.id
        assert {name: short[name] for name in ("verdict", "summary")} == {
            name: data[name] for name in ("verdict", "summary")
        }


def test_the_example_launches_fit(root: Path) -> None:
    launches = [path for path in (root / "examples").iterdir() if path.suffix in (".sh", ".sbatch", ".yaml")]
    assert len(launches) >= 4
    for path in launches:
        for launch in load_launches(str(path), LoadOptions()):
            fits(report_json(check_launch(launch, RULES)))


@pytest.mark.slow
def test_of_many_findings_the_most_severe_stay() -> None:
    every = [finding for rule in RULES[:60] for finding in data_of(rule.bad)["findings"]]
    assert {finding["severity"] for finding in every} == {"error", "warning", "info"}
    short = fits({**data_of(RULES[0].bad), "findings": every})
    assert {finding["severity"] for finding in short["findings"]} == {"error"}
    assert [found["rule"] for found in short["findings"]] == [
        found["rule"] for found in every if found["severity"] == "error"
    ][: len(short["findings"])]


@pytest.mark.slow
def test_a_text_without_end_fits_and_a_patch_stays_whole() -> None:
    data = data_of(RULES[0].bad)
    long = {**data["findings"][0], "message": "x" * 50_000, "keys": ["y" * 900] * 90}
    short = fits({**data, "findings": [long], "target": {**data["target"], "notes": ["z" * 9_000] * 99}})
    assert short["cut"][0].startswith("texts and lists: ")
    patch = "+" * 9_000
    assert brief({**data, "patch": patch})["patch"] == patch


@pytest.mark.slow
def test_full_prints_all_of_it(hcp, root: Path) -> None:
    words = ("check", "examples/bridge_overrides.txt", "--format", "json")
    short = json.loads(hcp(*words, cwd=root).stdout)
    full = json.loads(hcp(*words, "--full", cwd=root).stdout)
    assert short["cut"] and "cut" not in full and brief(full) == short
    assert "wanted json" in hcp("check", "examples/bridge_overrides.txt", "--full", cwd=root).stderr


def test_a_file_holds_all_of_it(hcp, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    hcp("check", "examples/bridge_overrides.txt", "-o", f"json={out}", cwd=root)
    assert "cut" not in json.loads(out.read_text())
