"""The keys of verl's composed Megatron configuration: Hydra refuses a plain override of any other key."""

from __future__ import annotations

import os
from functools import cache

from megatron_hcp.ground.record import NamedTuple

Release = tuple[int, int, int]

NAME = "ppo_megatron_trainer"
"""The configuration of `verl.trainer.main_ppo`; `model_engine=megatron` composes the same keys (0.8.0 to main)."""
_OLDEST = (0, 7, 1)
"""The oldest release that an unstated version may be, for `has_value`."""


class VerlKey(NamedTuple):
    """One key: the first and last release that has it, those between that lack it, and whether every release gives it
    a plain value.

    A plain value is no null, `???`, list, mapping or reference: Hydra's `+key` refuses to replace it.
    """

    first: Release
    last: Release
    has_value: bool
    lacking: tuple[Release, ...] = ()

    def is_in(self, release: Release) -> bool:
        return self.first <= release <= self.last and release not in self.lacking


class VerlConfig(NamedTuple):
    """The configuration as read from `first` to `last`."""

    keys: dict[str, VerlKey]
    first: Release
    last: Release

    def has(self, key: str, release: Release | None) -> bool:
        """Whether the release has the key; for None, whether any release that was read has it."""
        found = self.keys.get(key)
        return found is not None and (release is None or found.is_in(release))

    def has_value(self, key: str, release: Release | None) -> bool:
        """Whether the key has a plain value in the release; for None, in all since the oldest supported."""
        found = self.keys.get(key)
        if found is None or not found.has_value:
            return False
        lower, upper = (_OLDEST, self.last) if release is None else (release, release)
        return found.first <= lower and upper <= found.last


@cache
def megatron_config() -> VerlConfig:
    """The table, read once."""
    with open(os.path.join(os.path.dirname(__file__), "config.txt"), encoding="utf-8") as file:
        text = file.read()
    head, _, body = text.partition(f"[{NAME} ")[2].partition("]\n")
    first, last = map(_release, head.split())
    keys: dict[str, VerlKey] = {}
    for line in body.splitlines():
        parent, _, names = line.partition(": ")
        for written in names.split():
            written, *holes = written.split("!")
            own, _, span = written.partition("@")
            since, _, until = span.partition("-")
            full = own.removesuffix("=") if parent == "-" else f"{parent}.{own.removesuffix('=')}"
            keys[full] = VerlKey(
                _release(since) if since else first,
                _release(until) if until else last,
                own[-1] == "=",
                tuple(map(_release, holes)),
            )
    return VerlConfig(keys, first, last)


def _release(text: str) -> Release:
    major, minor, micro = map(int, text.split("."))
    return major, minor, micro
