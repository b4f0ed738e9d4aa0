"""Where a key that a fix renames is written."""

from __future__ import annotations

import re

from megatron_hcp.judge.repair.spots import Change, span_of
from megatron_hcp.launch.dialects.frameworks import as_written
from megatron_hcp.launch.fact import Launch
from megatron_hcp.rules.rule import Rename


def renaming(launch: Launch, text: str, rename: Rename) -> list[Change] | None:
    """The changes that write another name for a key, each time it is written; None if one has no place in the text."""
    old, new = as_written(launch, rename.old), (rename.sign or "") + as_written(launch, rename.new)
    if launch.reading.form in ("yaml", "args-yaml"):
        old, new = old.rpartition(".")[2], new.rpartition(".")[2]
    if rename.sign is None:
        pattern = re.compile(re.sub(r"[-_]", "[-_]", re.escape(old).replace(r"\-", "-")))
    else:
        pattern = re.compile(rf"(?<![\w.])\+{{0,2}}{re.escape(old)}(?![\w.])")
    changes = []
    for setting in launch.reading.settings:
        if setting.key != rename.old:
            continue
        place = setting.location
        if place is None or place.file != launch.reading.target:
            return None
        start, end = span_of(launch, text, place)
        # Some readers locate a setting at its whole word, others at its value: the key is then before it on the line.
        first = text.rfind("\n", 0, start) + 1
        found = pattern.search(text, start, end) or next(
            iter(reversed(list(pattern.finditer(text, first, start)))), None
        )
        if found is None:
            return None
        changes.append(Change(found.start(), found.end(), new))
    return changes
