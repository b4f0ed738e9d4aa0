"""The tables of `hcp support`: as text, as plain data (`hcp.support/1`) and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from megatron_hcp.cli.reports.json import not_read_json
from megatron_hcp.cli.reports.words import WIDTH, wrapped
from megatron_hcp.cli.screen import Line, Part
from megatron_hcp.ground.visible import visible
from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.support.matrix import UNBOUNDED, ByRelease, ReleaseSpan, SupportCell, SupportTable

_PACKAGES = {"te": "Transformer Engine", "mcore": "megatron-core"}
_COLUMNS = 4
"""Tensor-parallel sizes side by side in one table; more go into another table."""
_HEAD = 21
_WIDTH = 16


def lines(table: SupportTable, name: str) -> Iterator[Line]:
    """A table of types and layouts by tensor-parallel size, then one by release, then the rules."""
    sizes = list(dict.fromkeys(cell.tp for cell in table.cells))
    presumed = ", ".join(f"{_PACKAGES[package]} {version}" for package, version in table.presumed)
    yield f"{name}: largest context-parallel size"
    if presumed:
        yield from wrapped("", f"on {presumed} (assumed, because not stated)", 2)
    for age in table.unread:
        yield from wrapped("note: ", f"{age}; ? where older ones have a limit or a fault", 2)
    for at in range(0, len(sizes), _COLUMNS):
        if at:
            yield ""
        yield from _size_lines(table, sizes[at : at + _COLUMNS])
    yield from _release_lines(table)
    ids = ids_of(table)
    if ids:
        yield ""
    for rule in ids:
        yield from wrapped(f"{rule}: ", BY_ID[rule].title, 2)
    if ids:
        yield "why, and what to do: hcp explain RULE"
    unread = {age.package for age in table.unread}
    unknown = sorted({name for cell in table.cells for name in cell.unknown} - unread)
    if unknown:
        names = ", ".join(unknown)
        yield from wrapped("? ", f"{names} not stated, but some rules depend on it: --assume {unknown[0]}=...")


def _size_lines(table: SupportTable, sizes: Sequence[int]) -> Iterator[Line]:
    width = min(_WIDTH, (WIDTH - _HEAD) // len(sizes))
    yield f"{'cp_comm_type':<13}{'layout':<8}" + "".join(f"{f'tp {size}':<{width}}" for size in sizes).rstrip()
    for row in _rows(table):
        cells = [cell for cell in table.cells if (cell.comm_type, cell.layout) == row and cell.tp in sizes]
        parts: list[str | Part] = [f"{row[0]:<13}{row[1]:<8}"]
        for cell in cells:
            text = cell_text(cell, width - 1)
            filled = text if cell is cells[-1] else f"{text:<{width}}"
            parts.append(Part(filled, "" if cell.largest else "red"))
        yield tuple(parts)


def _rows(table: SupportTable) -> list[tuple[str, str]]:
    return list(dict.fromkeys((cell.comm_type, cell.layout) for cell in table.cells))


def cell_text(cell: SupportCell, room: int = WIDTH) -> str:
    """`any`, `8`, `4 x any` for the inner level of a2a+p2p, or the rules against it, as many as there is room for."""
    if cell.largest is None:
        two = " ".join(cell.blocked[:2]) + (" ..." if len(cell.blocked) > 2 else "")
        return two if len(two) <= room or len(cell.blocked) < 2 else f"{cell.blocked[0]} ..."
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
                yield from wrapped(f"{row.comm_type:<13}{row.layout:<8}", release_text(row))


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
    """The ids of the rules that rule something out, sorted."""
    spans = [span.blocked for row in table.by_release for span in row.spans]
    return sorted({rule for ids in (*(cell.blocked for cell in table.cells), *spans) for rule in ids})


def as_json(table: SupportTable, name: str) -> dict[str, Any]:
    """The tables as plain data, `hcp.support/1`; `largest` is null if no size works, `unbounded` if any does."""
    return {
        "schema": "hcp.support/1",
        "subject": name,
        "presumed": dict(table.presumed),
        **not_read_json(table.unread),
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
    from megatron_hcp.draw.template import fill_template

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
