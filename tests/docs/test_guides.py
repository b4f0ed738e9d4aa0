"""The README and the guides: every command runs, every console block and picture is what its command prints or draws,
every link of the repository's texts leads somewhere."""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.rows import rows
from support.shown_commands import SHORTER, lines_of, run_lines, spans_of, strange_options

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))

from terminal_picture import COLUMNS, PICTURES, commands, picture, terminal_svg  # noqa: E402

GUIDES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md"))}
TEXTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "skills/**/*.md", ".github/**/*.md")
    for path in sorted(ROOT.glob(pattern))
    if "evals" not in path.parts
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(markdown: str) -> set[str]:
    from markdown_page import anchor

    return {anchor(found) for found in re.findall(r"(?m)^#{1,6} +(.*)$", markdown)}


def dead_links(path: Path) -> list[str]:
    """The links of a text that name no file, or no heading of one."""
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", path.read_text(encoding="utf-8"))
    found = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, part = link.partition("#")
        target = Path(posixpath.normpath(path.parent / name)) if name else path
        if not target.exists() or (part and part not in _anchors(target.read_text(encoding="utf-8"))):
            found.append(link)
    return found


@rows("path", TEXTS)
def test_no_link_of_a_text_is_dead(path: Path) -> None:
    assert dead_links(path) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    text = tmp_path / "a.md"
    text.write_text("# One two\n[a](b.md) [c](a.md#one-two) [d](a.md#three) `[e](f.md)` [g](https://h)\n")
    assert dead_links(text) == ["b.md", "a.md#three"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, text in GUIDES.items() if lines_of(text)])
def test_every_command_line_of_a_guide_runs(tmp_path: Path, name: str) -> None:
    if name == "agents.md":
        (tmp_path / "skills").symlink_to(ROOT / "skills")
    run_lines(tmp_path, lines_of(GUIDES[name]))


def test_a_command_that_is_shortened_is_one_that_a_guide_shows() -> None:
    assert set(SHORTER) <= {line for text in GUIDES.values() for line in lines_of(text)}


BLOCKS = {
    command: (path, shown)
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
    if path.name != "card.md"  # its block is of a skill that its own test makes
    for command, shown in re.findall(r"```console\n\$ (.*?)\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
}


def test_the_guides_have_console_blocks() -> None:
    assert {path.name for path, _ in BLOCKS.values()} >= {"plan.md", "groups.md", "dcp.md"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", BLOCKS)
def test_a_console_block_shows_the_real_output(hcp, tmp_path: Path, command: str) -> None:
    """HCP_UPDATE=1 writes the blocks anew; the run that does so still fails."""
    path, shown = BLOCKS[command]
    os.symlink(ROOT / "examples", tmp_path / "examples")
    printed = hcp(*shlex.split(command)[1:], cwd=tmp_path).stdout
    if os.environ.get("HCP_UPDATE"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f"$ {command}\n{shown}```", f"$ {command}\n{printed}```"), encoding="utf-8")
    assert shown == printed


@pytest.mark.parametrize("name", [*GUIDES, "../CONTRIBUTING.md"])
def test_a_command_in_the_text_of_a_guide_is_one_with_these_options(name: str) -> None:
    spans = spans_of((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert [(span, strange) for span in spans if (strange := strange_options(span))] == []


EXAMPLES = {
    "groups_inside.svg": "groups --world-size 32 --tp 1 --cp 16 --hcp 8,2",
    "groups_crossing.svg": "groups --world-size 32 --tp 2 --cp 16 --hcp 8,2",
    "dcp_plan.svg": "dcp plan --world-size 16 --max-seqlen 8192 --lengths examples/lengths.txt --compare",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "command"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_picture_of_the_examples_is_what_its_command_draws(hcp, tmp_path: Path, name: str, command: str) -> None:
    drawn, kept = tmp_path / name, ROOT / "examples" / name
    hcp(*command.split(), "--svg", drawn, cwd=ROOT)
    assert f"](../examples/{name})" in "".join(GUIDES.values())
    if os.environ.get("HCP_UPDATE"):
        kept.write_text(drawn.read_text(encoding="utf-8"), encoding="utf-8")
    assert drawn.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", commands())
def test_a_picture_is_what_its_command_draws(name: str) -> None:
    pytest.importorskip("rich")
    drawn = picture(commands()[name])
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "draw it anew: python docs/site/terminal_picture.py"


def test_every_picture_is_on_a_page_and_every_guide_of_a_capability_has_one() -> None:
    shown = {name: re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text) for name, text in GUIDES.items()}
    used = {Path(target).name for targets in shown.values() for target in targets}
    assert set(commands()) == {path.name for path in PICTURES.glob("*.svg")} <= used
    capabilities = "check groups plan dcp packing jobs triage verify support agents".split()
    assert [name for name in capabilities if not shown[f"{name}.md"]] == []


def test_a_terminal_picture_keeps_the_colours_and_breaks_long_lines() -> None:
    pytest.importorskip("rich")
    svg = terminal_svg("hcp x", ["read 3 of 4\r\x1b[K\x1b[31m\x1b[1merror\x1b[0m <a>" + "b" * COLUMNS])
    rows = [html.unescape(row).strip("\n\xa0") for row in re.findall(r">([^<]+)</text>", svg)]
    assert [row for row in rows if row] == ["$\xa0hcp\xa0x", "error", f"<a>{'b' * (COLUMNS - 3)}", "b" * 3]
    (style,) = re.findall(r'class="terminal-(r\d+)"[^>]*>error<', svg)
    (red, weight) = re.findall(rf"\.terminal-{style} {{ fill: (#\w+);(font-weight: bold)", svg)[0]
    assert weight and red not in re.findall(r"\.terminal-r1 { fill: (#\w+)", svg)
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")


def test_the_page_of_results_has_a_row_for_every_run_and_its_commit() -> None:
    from results_page import RESULTS, results

    text = results()
    assert len(re.findall(r"(?m)^\|---", text)) == 6
    for name in ("megatron_lm", "bridge", "verl"):
        for run in json.loads((RESULTS / f"agree_{name}.json").read_text(encoding="utf-8")):
            if "counts" in run and run["commit"] != "unknown":
                (row,) = re.findall(rf"(?m)^\| {run['upstream']} .*\| {run['commit'][:10]} \|(.*)\|$", text)
                launches, *parts = map(int, row.split("|"))
                assert launches == run["counts"]["launches"] == sum(parts)
