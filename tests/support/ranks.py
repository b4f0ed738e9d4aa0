"""Worker processes for tests that need several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.processes import HANG_S


def run_ranks(work: Callable[[int], Any], size: int = 4) -> list[Any]:
    """What `work(rank)` returned on each of `size` ranks that share a gloo world."""
    import tempfile
    from argparse import Namespace

    from megatron_hcp.proofs.procs import run_workers
    from megatron_hcp.proofs.world import joined_world

    with tempfile.TemporaryDirectory() as folder:

        def in_world(rank: int) -> Any:
            with joined_world(rank, size, Namespace(timeout=HANG_S), f"{folder}/store"):
                return work(rank)

        return run_workers(in_world, size, HANG_S)


@pytest.fixture
def ranks():
    return run_ranks
