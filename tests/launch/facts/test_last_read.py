"""The table of what was read: its shape, and that other tables and the documents say nothing newer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from megatron_hcp import __version__
from megatron_hcp.backports.table import upstreams
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.facts.known_options import revisions_with
from megatron_hcp.launch.facts.last_read import LastRead, last_read, of_package, parse, written
from megatron_hcp.launch.facts.releases import RELEASES
from megatron_hcp.launch.recipes.table import releases
from megatron_hcp.rules.registry import RULES

_MONTHS = "January February March April May June July August September October November December".split()


def test_each_row_names_a_version_fact_and_a_project_that_rules_cite() -> None:
    cited = {source.repo for rule in RULES for source in rule.source}
    for row in last_read():
        assert FACTS[row.package].type == "version" and row.project in cited
        assert re.fullmatch(r"\d+(\.\d+)+", row.version) and row.revision in ("release", "main", "dev")
        assert bool(row.commit) == (row.revision != "release") and len(row.commit) in (0, 40)
        assert date.fromisoformat(row.read_on) >= date.fromisoformat(row.date or row.read_on)
    assert cited - {"megatron-core"} == {row.project for row in last_read()}


def test_a_rewritten_table_reads_the_same() -> None:
    text = "# One line.\na b main 1.2 0123 2026-01-02 2026-01-03\na b release 1.1 - - 2026-01-03\n"
    assert written(text, parse(text)) == text
    assert parse(text)[1] == LastRead("a", "b", "release", "1.1", "", "", "2026-01-03")


@pytest.mark.parametrize("package", RELEASES)
def test_support_ends_with_the_release_that_was_read_last(package: str) -> None:
    read = of_package(package)
    assert read is not None and RELEASES[package][-1] == read.version


def test_backports_and_recipes_claim_no_release_that_was_not_read() -> None:
    for package, upstream in upstreams().items():
        read = of_package(package)
        assert read is not None and upstream.newest.split(".") <= read.version.split(".")
        assert upstream.date <= max(row.read_on for row in last_read() if row.package == package)
    main = of_package("bridge", "main")
    assert main is not None and releases()[-1] == f"{main.version}+{main.commit[:7]}"


def test_the_table_of_options_has_the_branches_that_were_read() -> None:
    assert {"main", "dev"} <= set(revisions_with("context_parallel_size"))


def test_the_documents_name_no_month_in_which_nothing_was_read(root: Path) -> None:
    known = {day[:7] for row in last_read() for day in (row.date, row.read_on)}
    for file in (root / "README.md", *(root / "docs").glob("*.md")):
        for month, year in re.findall(rf"({'|'.join(_MONTHS)}) (20\d\d)", file.read_text(encoding="utf-8")):
            assert f"{year}-{_MONTHS.index(month) + 1:02}" in known, f"{file.name} says {month} {year}"


def test_the_version_comes_first_and_then_what_was_read(hcp: Callable[..., CompletedProcess[str]]) -> None:
    first, *rest = hcp("--version").stdout.splitlines()
    assert first == f"hcp, version {__version__}"
    assert len(rest) == len(last_read())
    for line, row in zip(rest, last_read(), strict=True):
        assert line.replace(",", "").split()[:3] == [row.project, row.revision, row.version] and line.endswith(
            f"read {row.read_on}"
        )


def test_facts_say_what_was_read(hcp: Callable[..., CompletedProcess[str]]) -> None:
    read = json.loads(hcp("facts").stdout)["read"]
    assert [(row["package"], row["revision"], row["version"], row["read_on"]) for row in read] == [
        (row.package, row.revision, row.version, row.read_on) for row in last_read()
    ]
    assert hcp("facts", "--format", "text").stdout.splitlines()[-1].endswith(last_read()[-1].read_on)
