"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

OVERRIDES = ("my.own_key=1", "model.context_parallel_size=4")


@pytest.mark.parametrize("option", ["--dialect", "--launcher"])
def test_the_dialect_has_its_older_name_too(hcp, option: str) -> None:
    done = hcp("check", "--show", option, "bridge-provider", "--", *OVERRIDES)
    assert done.stdout.startswith("<command line>: bridge-provider (overrides): "), done.stderr


@pytest.mark.parametrize("command", ["check", "render", "triage"])
def test_every_command_that_reads_a_launch_offers_the_same_dialects(hcp, command: str) -> None:
    text = " ".join(hcp(command, "--help").stdout.split())
    assert "--dialect, --launcher [auto|mlm|bridge|bridge-provider|verl|nemo-rl|ms-swift|slime]" in text


def test_a_word_wins_over_the_site_file(hcp, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("nodes: 2\narch: sm90\n")
    done = hcp("check", "--show", "--site", "site.yaml", "--assume", "nodes=4", "--", *OVERRIDES, cwd=tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["nodes", "4", "[assumed]"] in lines and ["arch", "sm90", "[assumed]"] in lines
