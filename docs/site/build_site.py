"""The site: rules with search, skills, commands, guides, results and more, out of the sources that own them.

    python docs/site/build_site.py DIR

writes static pages that need no network: style, script and pictures are inside each. A rule's place on it is
`rules.html#HCP001`.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import posixpath
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import click  # noqa: E402
from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: E402
from markdown_page import Markdown, anchor  # noqa: E402
from markupsafe import Markup  # noqa: E402
from results_page import RESULTS, results  # noqa: E402

from megatron_hcp.cli.explain.command import example_text, source_text  # noqa: E402
from megatron_hcp.cli.main import cli  # noqa: E402
from megatron_hcp.resources import pack_dir  # noqa: E402
from megatron_hcp.rules.registry import RULES  # noqa: E402
from megatron_hcp.rules.rule import Rule  # noqa: E402
from megatron_hcp.skills.card import load_card, skill_dirs  # noqa: E402
from megatron_hcp.skills.skill import front_matter  # noqa: E402

HERE = Path(__file__).parent
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
LOOK, STYLE, SCRIPT = (
    path.read_text(encoding="utf-8")
    for path in (pack_dir("templates") / "_look.css", HERE / "style.css", HERE / "search.js")
)
MENU = (
    ("index.html", "megatron-hcp"),
    ("guides/index.html", "Guides"),
    ("rules.html", "Rules"),
    ("skills.html", "Skills"),
    ("commands.html", "Commands"),
    ("support.html", "Support matrix"),
    ("results.html", "Results"),
)
TEXTS = {
    "README.md": "index.html",
    "SECURITY.md": "security.html",
    "CONTRIBUTING.md": "contributing.html",
    "CHANGELOG.md": "changelog.html",
    "docs/_generated/support.md": "support.html",
    "docs/README.md": "guides/index.html",
}
"""Markdown of the repository -> its page; the other files of docs/ are pages of guides/."""


class Site:
    """The pages of these rules and skills; `pages` yields them by name."""

    def __init__(self, rules: Sequence[Rule], skills: Sequence[Path]) -> None:
        self.rules, self.skills = rules, skills
        self.cards = {folder.name: load_card(folder) for folder in skills}
        self.names = {rule.id for rule in rules}
        self.texts = {file: f"guides/{file.stem}.html" for file in sorted(ROOT.glob("docs/*.md"))}
        self.texts |= {ROOT / file: page for file, page in TEXTS.items()}
        for folder in skills:
            self.texts[folder / "SKILL.md"] = f"skills/{folder.name}.html"
            for file in sorted(folder.glob("references/*.md")):
                self.texts[file] = f"skills/{folder.name}-{file.stem}.html"

    def pages(self) -> Iterator[tuple[str, str]]:
        """(name, HTML) of each page."""
        yield "rules.html", self._page("rules.html", "Rules", self._rules(), search="rules")
        yield "skills.html", self._page("skills.html", "Skills", self._skills(), search="skills")
        yield "commands.html", self._page("commands.html", "Commands", _commands(), search="commands")
        for file, page in self.texts.items():
            text = file.read_text(encoding="utf-8")
            yield page, self._page(page, _title(text), self._text(text, file, page))
        text = results()
        yield "results.html", self._page("results.html", _title(text), self._text(text, RESULTS, "results.html"))

    def _page(self, name: str, title: str, body: str, search: str = "") -> str:
        digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
        return TEMPLATES.get_template("page.html.j2").render(
            title=title, body=Markup(body), search=search, here=name, menu=MENU, up="../" * name.count("/"),
            style=Markup(LOOK + STYLE), script=Markup(SCRIPT), script_hash=digest,
        )  # fmt: skip

    def _rules(self) -> str:
        families = []
        for name, members in groupby(self.rules, lambda rule: rule.id.rstrip("0123456789")):
            rules = list(members)
            module = sys.modules[".".join((rules[0].table or rules[0].check.__module__).split(".")[:3])]
            about = (module.__doc__ or "").split("\n")[0]
            families.append({"name": name, "about": about, "rules": map(self._rule, rules)})
        return TEMPLATES.get_template("rules.html.j2").render(families=families, count=len(self.rules))

    def _rule(self, rule: Rule) -> dict[str, Any]:
        return {
            **{name: getattr(rule, name) for name in ("id", "title", "severity", "effect", "stage", "why")},
            "good": example_text(rule.good),
            "bad": example_text(rule.bad),
            "sources": [source_text(source) for source in rule.source],
            "skills": [name for name, card in self.cards.items() if rule.id in card.rules],
        }

    def _skills(self) -> str:
        skills = [
            {"name": folder.name, "description": front_matter(folder)[0]["description"], "card": card}
            for folder, card in zip(self.skills, self.cards.values())
        ]
        return TEMPLATES.get_template("skills.html.j2").render(skills=skills)

    def _text(self, markdown: str, file: Path, page: str) -> str:
        """The Markdown of a file; a skill's is followed by what its card says."""
        up = "../" * page.count("/")

        def link(target: str) -> str | None:
            path, mark, part = target.partition("#")
            if target.startswith(("https://", "http://", "#")):
                return target
            place = Path(posixpath.normpath(file.parent / path))
            name = "results.html" if place == RESULTS else self.texts.get(place)
            return f"{up}{name}{mark}{part}" if name else None

        def rule(text: str) -> str | None:
            return f"{up}rules.html#{text}" if text in self.names else None

        text = Markdown(link, lambda target: _picture(file.parent / target), rule).page(markdown)
        if file.name != "SKILL.md":
            return text
        folder = file.parent
        references = [(file.stem, Path(page).name) for file, page in self.texts.items() if file.parent.parent == folder]
        return TEMPLATES.get_template("skill.html.j2").render(
            text=Markup(text), card=self.cards[folder.name], references=references
        )


def _title(markdown: str) -> str:
    return next(line[2:] for line in markdown.split("\n") if line.startswith("# "))


def _picture(file: Path) -> str | None:
    """A picture of the repository, as an address that holds it."""
    if file.suffix != ".svg" or not file.resolve().is_relative_to(ROOT) or not file.is_file():
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode()


def _commands() -> str:
    context = click.Context(cli, info_name="hcp", terminal_width=100)
    return TEMPLATES.get_template("commands.html.j2").render(commands=_below(cli, context))


def _below(command: click.Command, context: click.Context) -> Iterator[dict[str, Any]]:
    """A command, and all that are below it."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    records = (param.get_help_record(context) for param in command.get_params(context))
    yield {
        "name": context.command_path,
        "anchor": anchor(context.command_path),
        "usage": command.get_usage(context),
        "about": [(text.replace("\b\n", ""), True) if "\b" in text else (text, False) for text in paragraphs],
        "options": [record for record in records if record],
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _below(inner, click.Context(inner, info_name=name, parent=context))


def write_site(folder: Path, pages: Iterable[tuple[str, str]]) -> int:
    """Writes the pages, and says how many there are."""
    number = 0
    for name, text in pages:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        number += 1
    return number


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    number = write_site(folder, Site(RULES, skill_dirs()).pages())
    print(f"{number} pages in {folder}; open {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
