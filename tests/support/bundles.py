"""Hands several tests of a file to a process at once: most take less time than asking for the next one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

SIZE = 8
"""Tests at once; more would leave one process alone with the last slow ones."""


class Bundles(LoadGroupScheduling):
    """The scheduler of `--dist=loadgroup`, for which the next few tests of a file are a group too."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._bundles: dict[str, str] = {}
        self._seen: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test: its own, or its bundle."""
        own: str = super()._split_scope(nodeid)
        if own != nodeid:
            return own
        if nodeid not in self._bundles:
            file = nodeid.partition("::")[0]
            self._bundles[nodeid] = f"{file} {self._seen[file] // SIZE}"
            self._seen[file] += 1
        return self._bundles[nodeid]

    def remove_node(self, node: Any) -> str | None:
        """The test that the process died of, if any. It counts as done: another process would die of it as well, and
        nobody would run the rest of its bundle.
        """
        units = self.assigned_work[node].values()
        fatal: str | None = next((test for unit in units for test, is_done in unit.items() if not is_done), None)
        for unit in units:
            if fatal in unit:
                unit[fatal] = True
        super().remove_node(node)
        return fatal
