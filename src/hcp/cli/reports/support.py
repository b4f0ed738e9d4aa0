"""The tables of `hcp support`: as text, as plain data (`hcp.support/1`) and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcp.cli.screen import Line, Part
from hcp.core.visible import visible
from hcp.rules.registry import BY_ID
from hcp.support.matrix import UNBOUNDED, ByRelease, ReleaseSpan, SupportCell, SupportTable

_PACKAGES = {"te": "Transformer Engine", "mcore": "megatron-core"}
_WIDTH = 16


def lines(table: SupportTable, name: str) -> Iterator[Line]:
    """A row for each type and layout, a column for each tensor-parallel size; then by release; then the rules."""
    sizes = list(dict.fromkeys(cell.tp for cell in table.cells))
    presumed = ", ".join(f"{_PACKAGES[package]} {version}" for package, version in table.presumed)
    yield f"{name}: largest context-parallel size" + (f" on {presumed}, which nobody stated" if presumed else "")
    yield f"{'cp_comm_type':<13}{'layout':<8}" + "".join(f"{f'tp {size}':<{_WIDTH}}" for size in sizes).rstrip()
    for comm_type, layout in _rows(table):
        cells = [cell for cell in table.cells if (cell.comm_type, cell.layout) == (comm_type, layout)]
        parts: list[str | Part] = [f"{comm_type:<13}{layout:<8}"]
        for cell in cells:
            text = cell_text(cell)
            width = 0 if cell is cells[-1] else _WIDTH
            parts.append(Part(f"{text:<{width}}", "" if cell.largest else "red"))
        yield tuple(parts)
    yield from _release_lines(table)
    ids = ids_of(table)
    if ids:
        yield ""
    for rule in ids:
        yield f"{rule}: {BY_ID[rule].title}; hcp explain {rule}"
    unknown = sorted({name for cell in table.cells for name in cell.unknown})
    if unknown:
        yield f"? {', '.join(unknown)} not stated, and some rule asks for it: --assume {unknown[0]}=..."


def _rows(table: SupportTable) -> list[tuple[str, str]]:
    return list(dict.fromkeys((cell.comm_type, cell.layout) for cell in table.cells))


def cell_text(cell: SupportCell) -> str:
    """`any`, `8`, `4 x any` for the inner level of a2a+p2p, or the rules that stop it."""
    if cell.largest is None:
        shown = list(cell.blocked[:2])
        return " ".join(shown) + (" ..." if len(cell.blocked) > 2 else "")
    text = "any" if cell.largest >= UNBOUNDED else str(cell.largest)
    if cell.comm_type == "a2a+p2p":
        text += " x any"
    return text + (" ?" if cell.unknown else "")


def _release_lines(table: SupportTable) -> Iterator[Line]:
    for package in dict.fromkeys(row.package for row in table.by_release):
        yield ""
        yield f"by release of {_PACKAGES[package]}, at tp 1 and the smallest sizes"
        for row in table.by_release:
            if row.package == package:
                yield f"{row.comm_type:<13}{row.layout:<8}{release_text(row)}"


def release_text(row: ByRelease) -> str:
    """`from 2.10`, `1.12 to 2.17 PACK007, from 2.18`, or `no: CP009`."""
    return ", ".join(_span_text(span, len(row.spans) == 1) for span in row.spans)


def _span_text(span: ReleaseSpan, is_all: bool) -> str:
    ids = " ".join(span.blocked)
    if is_all:
        return f"no: {ids}" if ids else "all"
    where = f"from {_short(span.first)}" if span.last is None else f"{_short(span.first)} to {_short(span.last)}"
    where = _short(span.first) if span.first == span.last else where
    return f"{where}{' ' + ids if ids else ' yes'}"


def _short(release: str) -> str:
    return ".".join(release.split(".")[:2])


def ids_of(table: SupportTable) -> list[str]:
    """The rules that stop something, by id."""
    spans = [span.blocked for row in table.by_release for span in row.spans]
    return sorted({rule for ids in (*(cell.blocked for cell in table.cells), *spans) for rule in ids})


def as_json(table: SupportTable, name: str) -> dict[str, Any]:
    """The tables as plain data, `hcp.support/1`; a `largest` of null is no size, `unbounded` any."""
    return {
        "schema": "hcp.support/1",
        "subject": name,
        "presumed": dict(table.presumed),
        "cells": [
            {
                "cp_comm_type": cell.comm_type, "layout": cell.layout, "tp": cell.tp,
                "largest": cell.largest, "unbounded": cell.largest is not None and cell.largest >= UNBOUNDED,
                "blocked": list(cell.blocked), "unknown": list(cell.unknown),
            }
            for cell in table.cells
        ],
        "by_release": [
            {
                "package": row.package, "cp_comm_type": row.comm_type, "layout": row.layout,
                "spans": [
                    {"first": span.first, "last": span.last, "blocked": list(span.blocked)} for span in row.spans
                ],
            }
            for row in table.by_release
        ],
        "rules": {rule: BY_ID[rule].title for rule in ids_of(table)},
    }  # fmt: skip


def page(table: SupportTable, name: str) -> str:
    """The tables as HTML."""
    from hcp.draw.template import fill_template

    sizes = list(dict.fromkeys(cell.tp for cell in table.cells))
    rows = [
        (*row, [(cell_text(cell), bool(cell.largest)) for cell in table.cells if (cell.comm_type, cell.layout) == row])
        for row in _rows(table)
    ]
    releases = [
        (_PACKAGES[package], [
            (row.comm_type, row.layout, release_text(row)) for row in table.by_release if row.package == package
        ])
        for package in dict.fromkeys(row.package for row in table.by_release)
    ]  # fmt: skip
    presumed = ", ".join(f"{_PACKAGES[package]} {version}" for package, version in table.presumed)
    rules = [(rule, BY_ID[rule].title) for rule in ids_of(table)]
    return fill_template(
        "support.html.j2",
        subject=visible(name),
        sizes=sizes,
        rows=rows,
        releases=releases,
        presumed=presumed,
        rules=rules,
    )
