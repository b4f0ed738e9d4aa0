"""The page of a day: the machine, what each part found, and how the planner's constants compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_NOT_MEASURED = "This ran on a CPU at small sizes, to show that it runs. No GPU has been measured."


def page_of(day: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    return "\n".join(_lines(day)) + "\n"


def _lines(day: Mapping[str, Any]) -> Iterator[str]:
    machine = day["machine"]
    yield f"# A day with {machine['device']}"
    yield ""
    if machine["device"] == "cpu":
        yield _NOT_MEASURED
        yield ""
    versions = ", ".join(f"{name} {text}" for name, text in machine["packages"].items())
    yield f"Python {machine['python']}, {versions}. {day['seconds']:.0f} seconds in all."
    for name, part in day["parts"].items():
        yield ""
        yield f"## {name.replace('_', ' ')}: {part['status']}, {part['seconds']:.0f} s"
        yield ""
        if part["status"] != "done":
            yield str(part.get("reason", "")).replace("|", "/")
        else:
            yield from _table(part["rows"])


def _table(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """The rows' plain values; what has parts of its own stands in day.json alone."""
    names = [name for name in rows[0] if not isinstance(rows[0][name], (dict, list))] if rows else []
    if not names:
        yield "in day.json"
        return
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_cell(row.get(name)) for name in names)} |"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)
