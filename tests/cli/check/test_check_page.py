"""The page of `hcp check --html FILE`: whole, of itself alone, and with nothing from outside that acts on it."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

Hcp = Callable[..., "CompletedProcess[str]"]
HARMLESS = {"article", "body", "div", "h1", "h2", "h3", "head", "html", "i", "img", "li", "main", "meta", "p", "pre"}
HARMLESS |= {"section", "span", "style", "summary", "table", "td", "th", "title", "tr", "ul", "details"}


class Page(HTMLParser):
    """Its elements, the addresses that it loads, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.loaded: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(hcp: Hcp, folder: Path, *words: str) -> Page:
    done = hcp("check", *words, "--html", "page.html", cwd=folder)
    assert "wrote page.html\n" in done.stderr, done.stderr
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def test_it_shows_findings_with_their_fixes_groups_and_facts_with_their_lines(
    hcp: Hcp, root: Path, tmp_path: Path
) -> None:
    shutil.copy(root / "examples" / "mlm_broken.sh", tmp_path)
    text = page_of(hcp, tmp_path, "mlm_broken.sh").text
    found = json.loads(hcp("check", "mlm_broken.sh", "--format", "json", "--full", cwd=tmp_path).stdout)["findings"]
    for finding in found:
        assert finding["message"] in text and f"mlm_broken.sh:{finding['location']['line']}" in text
        assert all(fix["effect"] in text and " ".join(fix["cli"]) in text for fix in finding["fixes"])
    assert re.search(r"cp_comm_type\s*a2a\+p2p\s*launch\s*:38\b", text)
    assert re.search(r"\btp-cp\s*8\s*1\s*-\s*0-7", text)


def test_memory_and_time_are_the_plans(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "examples" / "mlm_hcp.sbatch", tmp_path)
    words = ("mlm_hcp.sbatch", "--assume", "arch=sm90")
    text = page_of(hcp, tmp_path, *words).text
    (layout,) = json.loads(hcp("plan", *words, "--format", "json", cwd=tmp_path).stdout)["layouts"]
    assert f"{layout['memory_gib']['peak']:.1f} of {layout['memory_gib']['usable']:.1f} GiB" in text
    assert f"{layout['step_s']:.4g} s, " in text
    without = page_of(hcp, tmp_path, "mlm_hcp.sbatch").text  # the kind of GPU is open
    assert "hcp plan needs more: --gpu: not given" in without and "GiB" not in without


def test_it_loads_nothing_and_runs_nothing(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "examples" / "mlm_hcp.sbatch", tmp_path)
    page = page_of(hcp, tmp_path, "mlm_hcp.sbatch", "--assume", "arch=sm90")
    assert page.elements <= HARMLESS
    (picture,) = page.loaded
    drawn = base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,")).decode()
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_a_launch_cannot_write_into_it_nor_show_a_secret(hcp: Hcp, tmp_path: Path) -> None:
    name = "<b>\u202e\x1b[31m.sh"
    launch = "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345 torchrun pretrain_gpt.py --context-parallel-size 3 "
    launch += "--save '<script>alert(1)</script>' --load https://me:secret@host/x --seq-length 64\n"
    (tmp_path / name).write_text(launch)
    page = page_of(hcp, tmp_path, name)
    assert page.elements <= HARMLESS and "<script>alert(1)</script>" in page.text
    assert not re.search("[\x1b\u202e]", page.text)
    assert "hf_abc" not in page.text and "me:secret" not in page.text


def test_each_launch_of_a_call_has_a_part_and_a_file_that_is_none_a_line(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    for name in ("mlm_broken.sh", "mlm_hcp.sbatch"):
        shutil.copy(root / "examples" / name, tmp_path)
    (tmp_path / "other.yaml").write_text("a: 1\n")
    text = page_of(hcp, tmp_path, "mlm_broken.sh", "mlm_hcp.sbatch", "other.yaml").text
    assert text.count("Groups on the nodes") == 2 and "FAILED: 2 errors" in text and "ok as far as checked" in text
    assert "other.yaml" in text


def test_it_is_written_by_both_options_alike_and_only_over_a_page_of_hcp(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "examples" / "mlm_broken.sh", tmp_path)
    done = hcp("check", "mlm_broken.sh", "-o", "html=a.html", "--html", "b.html", cwd=tmp_path)
    assert done.returncode == 1 and (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()
    (tmp_path / "mine.html").write_text("mine")
    done = hcp("check", "mlm_broken.sh", "--html", "mine.html", cwd=tmp_path)
    assert done.returncode == 2 and "was not made by hcp" in done.stderr
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_it_lists_what_is_accepted_with_its_place(hcp: Hcp, tmp_path: Path) -> None:
    words = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8 --cp-comm-type a2a+p2p\n"
    (tmp_path / "run.sh").write_text("# hcp: ignore=HCP001 a test of the launcher\n" + words)
    text = page_of(hcp, tmp_path, "run.sh").text
    assert re.search(r"Accepted\s+HCP001 .+ run\.sh:2\s", text)
