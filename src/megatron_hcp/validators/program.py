"""Upstream's validators as one intermediate program."""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """The statements of upstream's validators for one revision."""

    release: str
