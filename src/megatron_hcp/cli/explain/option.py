"""An option or key of upstream's, as `hcp explain NAME` shows it: who has it, and what start-up checks of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import Any, NamedTuple

from megatron_hcp.cli.explain.mentions import Mention, Revisions, defaults_of, mentions_of, tables_about, words_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.dialects.table import FACTS, SHOWN_ROLE, keys_of
from megatron_hcp.launch.fact import DIALECTS, UpstreamTree
from megatron_hcp.launch.facts.known_keys import section
from megatron_hcp.launch.facts.option_table import OptionTable, option_table
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Rule
from megatron_hcp.validators.table import releases_of, repositories

_PARSERS = {
    "megatron-lm": "known_options.txt",
    "slime": "framework_options/slime.txt",
    "ms-swift": "framework_options/ms-swift.txt",
}
_KEYS = ("bridge", "verl", "nemo-rl")
_WIDTH = 112
_OWNER = re.compile(r"\b(?:self|args)\.")
_NAME = re.compile(r"(?!(?:args|self|not|and|or|is|in|if|else|for|None|True|False)\Z)[A-Za-z_][A-Za-z0-9_]*")


class ExplainedOption(NamedTuple):
    """A setting's name in upstream's code, and what the tables have about it.

    `takes` are (parser, what follows the option, revisions); `keys` the keys by framework; `defaults` are (upstream,
    class, default, releases); `mentions` by upstream, with the releases that have each.
    """

    name: str
    takes: Sequence[tuple[str, str, Sequence[str]]]
    keys: Mapping[str, Sequence[str]]
    defaults: Sequence[tuple[str, str, str, Sequence[str]]]
    mentions: Mapping[str, Mapping[Mention, Sequence[str]]]
    rules: Sequence[tuple[str, str]]


def option_named(written: str, upstream: Sequence[UpstreamTree] = ()) -> ExplainedOption:
    """The option or key as a user writes it: `--moe-paged-stash`, `moe_paged_stash`, `model.moe_paged_stash`.

    What `upstream` names is read instead of the tables of the same repository.

    Raises:
        HcpError: no upstream has it, or a folder holds no validators.
    """
    name = written.lstrip("-+").partition("=")[0].rpartition(".")[2].replace("-", "_")
    parsers = {parser: option_table(file) for parser, file in _PARSERS.items()}
    trees = {tree.repo: _tree(tree) for tree in upstream if tree.repo in repositories()}
    units = {repo: trees.get(repo) or tables_about(repo, name) for repo in repositories() if _NAME.fullmatch(name)}
    mentions = {repo: mentions_of(revisions, name) for repo, revisions in units.items()}
    takes = [
        (parser, row.takes, row.revisions)
        for parser, table in parsers.items()
        if parser not in trees
        for row in table.rows.get(name, ())
    ]
    found = ExplainedOption(
        name,
        [*_taken_by(trees, name), *takes],
        _keys_of(name),
        [(repo, *field, has) for repo in units for field, has in defaults_of(units[repo], name).items()],
        {repo: said for repo, said in mentions.items() if said},
        [(rule.id, rule.title) for rule in RULES if _is_about(rule, name)],
    )
    if not (found.takes or found.keys or found.defaults or found.mentions):
        raise _unknown(written, name, parsers)
    return found


def _tree(tree: UpstreamTree) -> Revisions:
    from megatron_hcp.validators.reader.checkout import read_folder, roots_of, texts_of

    roots = roots_of(tree.repo)
    version, units = read_folder(tree.path, roots, texts_of(tree.path, roots))
    return {f"{version or 'the code'} of --upstream": [*units.values()]}


def _taken_by(trees: Mapping[str, Revisions], name: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """What the parsers of trees take after an option: `fitting`'s words for it."""
    for repo, revisions in trees.items():
        for revision, units in revisions.items():
            for line in (line for unit in units if unit.name == "options" for line in unit.lines):
                names, _, action, kind, count, *_ = f"{line}{chr(9) * 8}".split("\t")
                if f"--{name.replace('_', '-')}" in names.replace("_", "-").split():
                    yield repo, "switch" if action.startswith("store_") else f"{count}{kind}", (revision,)


def _keys_of(name: str) -> dict[str, list[str]]:
    """The keys with that last part, and those of the facts that have it in any dialect."""
    keys = {dialect: {key for key in section(dialect) if key.rpartition(".")[2] == name} for dialect in _KEYS}
    for spec in FACTS.values():
        of = {dialect: keys_of(spec, dialect, SHOWN_ROLE.get(dialect, "")) for dialect in DIALECTS}
        if any(key.rpartition(".")[2] == name for known in of.values() for key in known):
            for dialect, known in of.items():
                keys.setdefault(dialect, set()).update(known[:1])
    same = {"mlm", "bridge-provider"} | {parser for parser in _PARSERS if keys.get(parser) == {name}}
    return {
        dialect: sorted(known, key=lambda key: (len(key), key))
        for dialect, known in keys.items()
        if known and dialect not in same
    }


def _is_about(rule: Rule, name: str) -> bool:
    """Whether the rule's text names the setting, or its good and bad examples differ in it."""
    differ = _settings_in(rule.good.text) ^ _settings_in(rule.bad.text)
    return name in words_of(f"{rule.title} {rule.why}") or any(option == name for option, _ in differ)


def _settings_in(text: str) -> set[tuple[str, str]]:
    """(option, the word after it) and (last part of a key, its value) of an example."""
    words = [*text.split(), ""]
    found = {(word.lstrip("-").replace("-", "_"), after) for word, after in pairwise(words) if word[:2] == "--"}
    pairs = (word.partition("=") for word in words if "=" in word)
    return found | {(key.rpartition(".")[2], value) for key, _, value in pairs}


def _unknown(written: str, name: str, tables: Mapping[str, OptionTable]) -> HcpError:
    from difflib import get_close_matches

    every = {rule.id: rule.id for rule in RULES}
    every |= {option: f"--{option.replace('_', '-')}" for table in tables.values() for option in table.rows}
    every |= {key.rpartition(".")[2]: key.rpartition(".")[2] for dialect in _KEYS for key in section(dialect)}
    near = get_close_matches(name.upper(), every, 1, 0.8) or get_close_matches(name, every, 3, 0.8)
    return HcpError(
        f"found no rule and no option {visible(written)[:100]!r}",
        wanted="an id such as ACCEPT001, or an option such as --cp-comm-type",
        do=f"did you mean {' or '.join(every[one] for one in near)}?" if near else "`hcp explain` lists all rules",
    )


def option_page(option: ExplainedOption, most: int = 30) -> str:
    """The page of an option, in Markdown that reads as plain text, with so many mentions of each upstream."""
    lines = [f"# {option.name}", ""]
    for parser, takes, revisions in option.takes:
        lines.append(f"- {parser} {_span(parser, revisions)}: --{option.name.replace('_', '-')}, {_follows(takes)}")
    for dialect, keys in option.keys.items():
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        lines += wrap(f"{dialect}: {', '.join(keys[:3])}{more}", _WIDTH, initial_indent="- ", subsequent_indent="  ")
    for repo, kind, value, has in option.defaults:
        if value == "...":  # not read
            continue
        lines.append(f"- {kind} of {repo} {_span(repo, has)}: default {value}")
    lines += [f"- hcp explain {rule}: {title}" for rule, title in option.rules[:12]]
    for repo, said in option.mentions.items():
        lines += ["", f"## What {repo} checks and changes at start-up", ""]
        newest = releases_of(repo)[-2:]
        ranked = sorted(said.items(), key=lambda item: (not set(newest) & set(item[1]), _rank(item[0], option.name)))
        function = ""
        for mention, has in ranked[:most]:
            if f"{mention.function} ({mention.path})" != function:
                function = f"{mention.function} ({mention.path})"
                lines.append(function)
            lines += _mention_lines(mention, _span(repo, has))
        if len(ranked) > most:
            lines += ["", f"{len(ranked) - most} more: hcp explain {option.name} --format json"]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def _rank(mention: Mention, name: str) -> tuple[bool, bool, str]:
    """Guards first, then those that name the setting themselves."""
    return mention.kind != "needs", name not in words_of(f"{mention.text} {mention.message}"), mention.function


def _mention_lines(mention: Mention, span: str) -> Iterator[str]:
    def block(head: str, text: str) -> list[str]:
        return wrap(_OWNER.sub("", text), _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))

    yield from block("- ", span + (f", where {' and '.join(mention.where)}" if mention.where else ""))
    yield from block(f"  {mention.kind:5} ", mention.text)
    for given in mention.given[:4]:
        yield from block("  with  ", given)
    if mention.message:
        yield from block("  else  ", f'"{mention.message}"')


def _span(repo: str, has: Sequence[str]) -> str:
    """`0.18.0 to dev`, or several such runs."""
    order = releases_of(repo)
    places = [order.index(one) for one in has if one in order]
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    if not runs:
        return " and ".join(has)
    said = [order[run[0]] + (f" to {order[run[-1]]}" if len(run) > 1 else "") for run in runs]
    return ", ".join(said)


def _follows(takes: str) -> str:
    """What follows an option, as `launch.forms.words.fitting` reads it, in words."""
    takes, _, excluded = takes.partition("^")
    kinds = {"switch": "a switch", "unknown": "what follows was not read", "other": "a value of upstream's own kind"}
    count = takes[: len(takes) - len(takes.lstrip("?*+0123456789"))]
    kind, *choices = takes[len(count) :].split("|")
    said = f"one of {', '.join(choices)}" if choices else kinds.get(kind, kind)
    said += {"": "", "?": ", or nothing", "*": ", any number of them", "+": ", one or more"}.get(count, f", {count}")
    return said + (f"; not with {excluded}" if excluded else "")


def option_json(option: ExplainedOption) -> dict[str, Any]:
    return {
        "option": option.name,
        "takes": [{"parser": a, "takes": b, "releases": list(c)} for a, b, c in option.takes],
        "keys": {dialect: list(keys) for dialect, keys in option.keys.items()},
        "defaults": [{"repo": a, "class": b, "default": c, "releases": list(d)} for a, b, c, d in option.defaults],
        "rules": [rule for rule, _ in option.rules],
        "start": [
            {
                "repo": repo,
                "function": mention.function,
                "path": mention.path,
                "kind": mention.kind,
                "where": list(mention.where),
                "text": mention.text,
                "given": list(mention.given),
                "message": mention.message,
                "releases": list(has),
            }
            for repo, said in option.mentions.items()
            for mention, has in said.items()
        ],
    }
