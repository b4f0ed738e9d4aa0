"""Generated parts of a Markdown file, between `<!-- hcp:KIND WORDS -->` and `<!-- /hcp -->`.

A part whose opening mark ends its line is a block of lines; any other is inside a line. A part's text is written by
its renderer, never by hand: `hcp skills build` updates it, and `--check` tells whether it is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.ground.visible import visible
from megatron_hcp.rules.known.row import KNOWN, PACKAGES
from megatron_hcp.rules.registry import BY_ID, RULES
from megatron_hcp.rules.rule import Rule
from megatron_hcp.skills.card import Card
from megatron_hcp.skills.json_schema import described_fields

_OPEN = re.compile(r"<!-- hcp:(?P<kind>[a-z-]+)(?P<words>(?: [^ \n<>]+)*) -->")
_CLOSE = "<!-- /hcp -->"


class RenderedPart(NamedTuple):
    """A part to be written: the words of its mark, and the card of the skill that the file belongs to."""

    words: tuple[str, ...]
    card: Card | None

    def of_card(self) -> Card:
        """The card.

        Raises:
            HcpError: the file does not belong to a skill with a card.
        """
        if self.card is None:
            raise HcpError("comes from a card, and there is none", wanted="it in a skill with config/card.yaml")
        return self.card


Renderer = Callable[[RenderedPart], list[str]]
"""The lines of a part."""


def rendered(text: str, file: str, card: Card | None, renderers: Mapping[str, Renderer]) -> str:
    """The text with every part rendered anew.

    Raises:
        HcpError: a mark is not closed, its kind is unknown, or its words are not valid for the kind.
    """
    pieces, at = [], 0
    while (mark := _OPEN.search(text, at)) is not None:
        at_line = (visible(file), text.count("\n", 0, mark.start()) + 1)
        part = visible(mark[0])[:100]
        end = text.find(_CLOSE, mark.end())
        if end < 0 or _OPEN.search(text, mark.end(), end):
            raise HcpError(f"{part} is not closed", wanted=f"{_CLOSE} after it", do="add it", at=at_line)
        if mark["kind"] not in renderers:
            kinds = ", ".join(renderers)
            raise HcpError(f"{part} is not a known part", wanted=f"one of {kinds}", do="correct it", at=at_line)
        try:
            lines = renderers[mark["kind"]](RenderedPart(tuple(mark["words"].split()), card))
        except HcpError as error:
            raise HcpError(f"{part} {error.found}", wanted=error.wanted, do=error.do, at=at_line) from None
        line = text.rfind("\n", 0, mark.start()) + 1
        indent = text[line : mark.start()]
        if text[mark.end() : mark.end() + 1] == "\n":
            indent = indent if not indent.strip() else ""
            said = "\n" + "".join(f"{indent}{line}".rstrip() + "\n" for line in lines) + indent
        else:
            said = " ".join(lines)
        pieces += [text[at : mark.end()], said, _CLOSE]
        at = end + len(_CLOSE)
    return "".join([*pieces, text[at:]])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    cells = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |" for row in cells]


def _rules(part: RenderedPart) -> list[str]:
    """A table; without words, but for the known faults, which are a part of their own."""
    rows = (
        (rule.id, rule.severity, rule.effect, rule.title)
        for rule in _rules_of(part)
        if part.words or rule.id not in KNOWN
    )
    return table(("rule", "severity", "effect", "requirement"), rows)


def _rules_of(part: RenderedPart) -> list[Rule]:
    """The rules that the words name, by id or by prefix (`HCP`); without words, those of the card."""
    wanted = part.words or part.of_card().rules
    for word in wanted:
        if word not in BY_ID and not any(rule.id.rstrip("0123456789") == word for rule in RULES):
            raise HcpError(
                f"names {visible(word)[:50]}, which is not a rule", wanted="an id such as HCP001", do="see hcp explain"
            )
    return [rule for rule in RULES if rule.id in wanted or rule.id.rstrip("0123456789") in wanted]


def _rule(part: RenderedPart) -> list[str]:
    (rule,) = _rules_of(part) if len(part.words) == 1 and part.words[0] in BY_ID else (None,)
    if rule is None:
        raise HcpError("names no rule", wanted="one id, such as hcp:rule HCP001")
    return [f"{rule.title} ({rule.id})"]


def _steps(part: RenderedPart) -> list[str]:
    rows = ((step.id, step.level, step.proves) for step in part.of_card().verify)
    return table(("step", "level", "proves"), rows)


def _claims(part: RenderedPart) -> list[str]:
    # The card names the tests, which only a checkout has.
    rows = []
    for claim in part.of_card().claims:
        proofs = dict.fromkeys("a test" if proof.startswith("test:") else proof for proof in claim.proved_by)
        rows.append((claim.text, ", ".join(proofs)))
    return table(("claim", "proved by"), rows)


def _stack(part: RenderedPart) -> list[str]:
    return [", ".join(f"{package} {versions}" for package, versions in part.of_card().stack.items())]


def _launch(part: RenderedPart) -> list[str]:
    launches = part.of_card().recommended
    number = (whole_number(part.words[0]) if len(part.words) == 1 else None) or 0
    if not 1 <= number <= len(launches):
        raise HcpError("names no launch", wanted=f"a number from 1 to {len(launches)}, of the card's recommended ones")
    return ["```", *launches[number - 1].text.splitlines(), "```"]


def _number(part: RenderedPart) -> list[str]:
    """A count: all of hcp's rules, or a card's rules, claims or steps."""
    (what,) = part.words if len(part.words) == 1 else ("",)
    if what == "all-rules":
        return [str(len(RULES))]
    counts = {"rules": len, "claims": len, "verify": len}
    if what not in counts:
        raise HcpError("counts nothing", wanted=f"one of all-rules, {', '.join(counts)}")
    return [str(len(getattr(part.of_card(), what)))]


def _fields(part: RenderedPart) -> list[str]:
    (name,) = part.words if len(part.words) == 1 else ("",)
    try:
        rows = list(described_fields("hcp.card.2", name))
    except KeyError:
        raise HcpError(
            "names no part of the card", wanted="one of card, launch, claim, source, step, needs, expect"
        ) from None
    return table(("key", "", "value", "meaning"), rows)


def _known(part: RenderedPart) -> list[str]:
    """The rules about known faults, by package: `hcp check` reports the symptom, `hcp explain` has the way round."""
    by_package: dict[str, list[str]] = {}
    for row in (KNOWN[rule.id] for rule in _rules_of(part) if rule.id in KNOWN):
        by_package.setdefault(PACKAGES[row.package], []).append(f"{row.id} ({row.versions})")
    return [f"- {package}: {', '.join(rows)}" for package, rows in sorted(by_package.items())]


RENDERERS: dict[str, Renderer] = {
    "claims": _claims,
    "fields": _fields,
    "known": _known,
    "launch": _launch,
    "limitations": lambda part: [f"- {line}" for line in part.of_card().limitations],
    "number": _number,
    "rule": _rule,
    "rules": _rules,
    "stack": _stack,
    "steps": _steps,
    "unknown": lambda part: [f"- {line}" for line in part.of_card().unknown],
}
"""The renderers that need no command line."""
