"""The site has every rule, skill and command, every link on it leads somewhere, and no text from outside acts on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.cli.main import COMMANDS
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Example
from megatron_hcp.skills.card import SCHEMA, skill_dirs
from support.processes import HANG_S

ROOT = Path(__file__).resolve().parents[2]
BUILDER = ROOT / "docs" / "site" / "build_site.py"


class Page(HTMLParser):
    """What a page holds: links, ids, addresses of pictures and the like, handlers, texts, names of elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.handlers: list[str] = []
        self.elements: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        for name, value in attrs:
            if name == "href" and tag == "a":
                self.links.append(value)
            elif name in ("src", "href", "srcset", "data", "action", "poster"):
                self.loaded.append(value)
            elif name == "id":
                self.ids.append(value)
            elif name.startswith("on") or name == "style":
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, BUILDER, folder], capture_output=True, text=True, timeout=HANG_S, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {path.relative_to(folder).as_posix(): Page(path.read_text()) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_every_rule_skill_and_command_is_on_it(pages: dict[str, Page]) -> None:
    assert [rule.id for rule in RULES if rule.id not in pages["rules.html"].ids] == []
    assert [folder.name for folder in skill_dirs() if f"skills/{folder.name}.html" not in pages] == []
    assert [name for name in COMMANDS if f"hcp-{name}" not in pages["commands.html"].ids] == []
    assert {"hcp-dcp-plan", "hcp-pack-check", "hcp-skills-install"} <= set(pages["commands.html"].ids)
    assert len(re.findall("cp_comm_type", "".join(pages["support.html"].texts))) > 10
    assert [address[:18] for address in pages["index.html"].loaded] == ["data:image/svg+xml"]


@pytest.mark.slow
def test_guides_and_results_are_on_it(pages: dict[str, Page]) -> None:
    guides = {path.stem for path in ROOT.glob("docs/*.md")} - {"README"}
    assert [name for name in sorted(guides) if f"guides/{name}.html" not in pages] == []
    assert len(pages["guides/groups.html"].loaded) == 2 and "../results.html" in pages["guides/verify.html"].links
    runs = json.loads((ROOT / "lab" / "results" / "agree_megatron_lm.json").read_text(encoding="utf-8"))
    assert {run["commit"][:10] for run in runs} <= set(pages["results.html"].texts)


@pytest.mark.slow
def test_every_link_leads_somewhere(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name
        for link in page.links:
            if link.startswith(("https://", "http://")):
                continue
            path, _, part = link.partition("#")
            target = (ROOT / name).parent / path if path else ROOT / name
            found = pages.get(target.resolve().relative_to(ROOT).as_posix())
            assert found is not None, (name, link)
            assert not part or part in found.ids, (name, link)


@pytest.mark.slow
def test_a_page_loads_nothing(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert [address for address in page.loaded if not address.startswith("data:image/svg+xml;base64,")] == [], name
        assert page.elements.count("script") == 1 and page.handlers == [], name


HOSTILE = (
    "<script>alert(1)</script>\"' onclick=alert(1) </pre></style><img src=https://evil.invalid/x onerror=alert(1)>"
)
SKILL = f"""---
name: evil
description: "A skill. {HOSTILE.replace(chr(34), "")}"
---

# Evil {HOSTILE}

[click](javascript:alert`1`) [click](javascript:alert(1)) [data](data:text/html,x) [quote](" onclick="alert(1)) ![p](https://evil.invalid/p.svg)
![local](../../../../../../../etc/passwd.svg) `{HOSTILE}` **{HOSTILE}** https://evil.invalid/"onclick=alert(1)

| a {HOSTILE} | b |
|---|---|
| {HOSTILE} | c |

- {HOSTILE}

```sh
{HOSTILE}
```
"""


@pytest.mark.slow
def test_hostile_text_stays_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BUILDER.parent))
    from build_site import Site

    def check(v: Any) -> None:
        pass

    check.__doc__ = f"{HOSTILE}\n{HOSTILE}"
    check.__module__ = RULES[0].check.__module__
    example = Example("mlm", HOSTILE)
    rule = RULES[0]._replace(check=check, good=example, bad=example)
    folder = tmp_path / "evil"
    (folder / "config").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    card: dict[str, Any] = {"schema": SCHEMA, "skill": "evil", "title": HOSTILE, "summary": HOSTILE}
    card["stack"] = {"megatron-core": ">=0.16"}
    claim = {"id": "a", "text": HOSTILE, "proved_by": ["rule:<script>alert(2)</script>"]}
    (folder / "config" / "card.yaml").write_text(json.dumps({**card, "claims": [claim], "rules": [HOSTILE]}))
    pages = {name: Page(text) for name, text in Site([rule], [folder]).pages()}
    shown = ("rules.html", "skills.html", "skills/evil.html")
    for name in shown:
        page = pages[name]
        assert "alert(1)" in "".join(page.texts)
        assert page.elements.count("script") == 1 and page.handlers == [] and page.loaded == [], name
        assert all(re.match(r"(\.\./|[a-z#]|https://evil)", link) for link in page.links)
        assert [link for link in page.links if re.match(r"\s*(javascript|data):", link)] == []


@pytest.mark.slow
def test_without_a_folder_it_says_what_it_wants() -> None:
    done = subprocess.run([sys.executable, BUILDER], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 2 and "build_site.py DIR" in done.stdout
