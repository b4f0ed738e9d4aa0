"""`hcp explain`: the page of a rule."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import click

from megatron_hcp.cli.completion import complete_rules
from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.screen import say
from megatron_hcp.ground.errors import HcpError

if TYPE_CHECKING:
    from megatron_hcp.rules.rule import Example, Rule, Source


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("ids", nargs=-1, metavar="[RULE | OPTION]...", shell_complete=complete_rules)
@click.option("--all", "every", is_flag=True, help="Print one page for every rule.")
@click.option("-o", "folder", metavar="DIR", help="With --all: write the pages to DIR as Markdown, with an index.")
@format_option("text", "json")
@click.option("--upstream", "trees", multiple=True, metavar="[NAME=]DIR", help="Of an option: what this code says.")
def explain(ids: Sequence[str], every: bool, folder: str | None, fmt: str, trees: tuple[str, ...]) -> None:
    """Explain a rule, or an option of upstream's.

    A rule's page says why it holds, its symptom, and where upstream says so. An option's, such as --cp-comm-type or
    model.cp_comm_type, says which releases have it, and what their start-up checks of it. Without arguments: all rules.
    """
    from megatron_hcp.cli.explain.guards import guards_in
    from megatron_hcp.launch.upstream import upstreams_of
    from megatron_hcp.rules.registry import BY_ID, RULES, rule_of
    from megatron_hcp.rules.rule import START

    if folder is not None and not every:
        raise HcpError("found -o without --all", wanted="both", do="run hcp explain --all -o DIR")
    ids = (*ids, *(click.get_current_context().obj or ()))  # after `--`
    if any("/" in name for name in ids):
        _explain_guards(ids, fmt)
        return
    options = [name for name in ids if name.upper() not in BY_ID and not _is_id(name)]
    ids = [name for name in ids if name not in options]
    if trees and not options:
        raise HcpError("found --upstream without an option", wanted="one", do="name it: hcp explain cp_comm_type")
    upstream = upstreams_of(trees) if trees else ()
    if options and fmt == "text":
        from megatron_hcp.cli.explain.option import option_named, option_page

        say("\n\n".join(option_page(option_named(name, upstream)) for name in options).split("\n"))
        if not ids:
            return
        say([""])
    rules = RULES if every or not (ids or options) else tuple(rule_of(rule_id) for rule_id in ids)
    if folder is not None:
        _write_pages(Path(folder), RULES)
    elif fmt == "json":
        from megatron_hcp.cli.explain.option import option_json, option_named
        from megatron_hcp.cli.reports.json import dump

        found = [option_json(option_named(name, upstream)) for name in options]
        rows = [_rule_json(rule) for rule in rules]
        print(dump({"schema": "hcp.explain/2", "rules": rows, "guards": [], "options": found}))
    elif every or ids:
        say("\n\n".join(f"{page(rule)}\n\n{_place_text(rule)}" for rule in rules).split("\n"))
        for rule in rules if ids else ():
            if rule.id.startswith(START):
                say(["", "## Guards", "", *(f"- {name}" for name in guards_in(rule.id))])
    else:
        say(f"{rule.id:<9} {rule.severity:<8} {rule.title}" for rule in rules)


def _explain_guards(names: Sequence[str], fmt: str) -> None:
    from megatron_hcp.cli.explain.guards import guard_json, guard_page, guards_named

    found = [item for name in names for item in guards_named(name)]
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        print(
            dump(
                {"schema": "hcp.explain/2", "rules": [], "guards": [guard_json(item) for item in found], "options": []}
            )
        )
    else:
        say("\n\n".join(map(guard_page, found)).split("\n"))


def _is_id(name: str) -> bool:
    """Whether it looks like a rule's: letters and three digits."""
    return name[:-3].isalpha() and name[-3:].isdigit()


def page(rule: Rule) -> str:
    """The rule's page, in Markdown that reads as plain text."""
    varying = ", ".join(varies(rule)).capitalize()
    lines = [
        f"# {rule.id}: {rule.title}",
        "",
        f"{rule.severity}; effect: {rule.effect}; upstream stops at: {rule.stage}",
        *([f"{varying} can differ by launch; each finding states its own."] if varying else []),
        *(["A note in releases that were not read (hcp --version lists those that were)."] if rule.limit_of else []),
        "",
        rule.why,
        "",
        "## Good",
        "",
        f"    {example_text(rule.good)}",
        "",
        "## Bad",
        "",
        f"    {example_text(rule.bad)}",
        "",
        "## Source",
        "",
        *(f"- {source_text(source)}" for source in rule.source),
    ]
    return "\n".join(lines)


def varies(rule: Rule) -> tuple[str, ...]:
    """Which of severity, effect and stage depend on the launch: those that the rule's code passes to a `Problem`."""
    from megatron_hcp.rules.rule import Problem

    given: set[str] = set()
    found = [inspect.unwrap(rule.check)]
    for check in found:  # grows by the functions of megatron_hcp.rules that the check calls
        for node in ast.walk(ast.parse(dedent(inspect.getsource(check)))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("Problem", "_replace"):
                given |= {*Problem._fields[: len(node.args)], *(str(word.arg) for word in node.keywords)}
            called = check.__globals__.get(node.id) if isinstance(node, ast.Name) else None
            if (
                inspect.isfunction(called)
                and called.__module__.startswith("megatron_hcp.rules.")
                and called not in found
            ):
                found.append(called)
    return tuple(name for name in ("severity", "effect", "stage") if name in given)


def _place(rule: Rule) -> dict[str, str | int]:
    """Where the rule is written in this project's tree: its file, its first line, and its function or row."""
    if rule.table:
        lines = inspect.getsource(sys.modules[rule.table]).splitlines()
        line = next(number for number, text in enumerate(lines, 1) if f'"{rule.id}"' in text)
        return {"file": f"src/{rule.table.replace('.', '/')}.py", "line": line, "function": "ROWS"}
    check = inspect.unwrap(rule.check)
    file = f"src/{check.__module__.replace('.', '/')}.py"
    return {"file": file, "line": check.__code__.co_firstlineno, "function": check.__name__}


def _place_text(rule: Rule) -> str:
    """`file:line`, which editors can open. Pages written to files leave it out: the next edit would move the line."""
    place = _place(rule)
    return f"{place['file']}:{place['line']} {place['function']}"


def example_text(example: Example) -> str:
    """The command that shows an example."""
    assume = "".join(f" --assume {item}" for item in example.assume.split())
    if "\n" in example.text:
        lines = "".join(f"\n        {line}" for line in example.text.splitlines())
        return f"hcp check --dialect {example.dialect}{assume} FILE, where FILE holds{lines}"
    return f"hcp check --dialect {example.dialect}{assume} -- {example.text}"


def source_text(source: Source) -> str:
    """A place in upstream's sources, in one line."""
    branches = "" if source.branches == ("main", "dev") else f", {' and '.join(source.branches) or 'releases'} alone"
    text = f"{source.repo}{source.versions and ' ' + source.versions}{branches}: {source.path}, {source.qualname}"
    if source.contains:
        text += f", has `{source.contains}`"
    if source.absent:
        text += f", lacks `{source.absent}`"
    return text


def _write_pages(folder: Path, rules: Sequence[Rule]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for rule in rules:
            (folder / f"{rule.id}.md").write_text(page(rule) + "\n", encoding="utf-8")
        index = ["# Rules", "", "| rule | severity | effect | what holds |", "|---|---|---|---|"]
        index += [f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {rule.effect} | {rule.title} |" for rule in rules]
        (folder / "README.md").write_text("\n".join(index) + "\n", encoding="utf-8")
    except OSError as error:
        raise HcpError(f"cannot write to {folder}: {error.strerror}", do="name a folder that can be written") from None
    say([f"{len(rules)} pages and README.md in {folder}"])


def _rule_json(rule: Rule) -> dict[str, Any]:
    from megatron_hcp.cli.reports.json import sources_json

    def example(item: Example) -> dict[str, str]:
        return {"dialect": item.dialect, "text": item.text, "assume": item.assume, "command": example_text(item)}

    return {
        "rule": rule.id,
        "title": rule.title,
        "severity": rule.severity,
        "effect": rule.effect,
        "stage": rule.stage,
        "varies": list(varies(rule)),
        "why": rule.why,
        "good": example(rule.good),
        "bad": example(rule.bad),
        "source": sources_json(rule.source),
        "defined_in": _place(rule),
    }
