"""The text of a table of what follows options, as `launch/facts/option_table.py` reads it."""

from __future__ import annotations

from collections.abc import Mapping


def written(parser: str, program: str, options: Mapping[str, Mapping[str, str]]) -> str:
    """The file's text: a line for the options that the same revisions have and that take the same.

    The revisions are written as runs of the first line.
    """
    order = list(options)
    lines: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set().union(*options.values())):
        for taken in sorted({having[name] for having in options.values() if name in having}):
            alike = [revision for revision in order if options[revision].get(name) == taken]
            lines.setdefault((_runs(alike, order), taken), []).append(name)
    return "\n".join(
        [
            f"# What follows the options of {parser}, by revision. Written by lab/{program}.py.",
            f"revisions: {' '.join(order)}",
            *(f"{runs} {taken}: {' '.join(names)}" for (runs, taken), names in sorted(lines.items())),
            "",
        ]
    )


def _runs(revisions: list[str], order: list[str]) -> str:
    """Revisions that follow each other as `first..last`, with commas between such runs."""
    runs: list[list[str]] = []
    for revision in revisions:
        if runs and order.index(runs[-1][-1]) + 1 == order.index(revision):
            runs[-1].append(revision)
        else:
            runs.append([revision])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)
