"""How much Transformer Engine's own context-parallel code sends: counted at torch.distributed, while it runs.

An element counts once for each rank that it is sent to. The unit is elements, so a kernel's type does not matter.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist

from hcp.core.errors import HcpError
from hcp.proofs.procs import run_workers
from hcp.proofs.te_cpu.case import AttentionCall, Inputs
from hcp.proofs.te_cpu.execute import COLLECTIVE_S, HANG_S, build_levels, run_case
from hcp.proofs.te_cpu.load import Release, load


class Sent(NamedTuple):
    """Elements that one rank sends to others in one call: by collective, forward and backward."""

    forward: dict[str, float]
    backward: dict[str, float]


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """While active, adds up what this rank sends by each collective: p2p, a2a, all_gather, reduce_scatter."""
    sent: Counter[str] = Counter()

    def shares(name: str, share: Callable[[Any, int], float], place: int) -> Callable[[Any], Any]:
        def wrapped(real: Any) -> Any:
            def count(*args: Any, **kwargs: Any) -> Any:
                given = args[place] if len(args) > place else kwargs["tensor" if name == "p2p" else "input"]
                sent[name] += share(given.numel(), dist.get_world_size(kwargs.get("group")))  # type: ignore[assignment]
                return real(*args, **kwargs)

            return count

        return wrapped

    replaced = {
        "isend": shares("p2p", lambda count, _: count, 0),
        "all_to_all_single": shares("a2a", lambda count, size: count * (size - 1) / size, 1),
        "all_gather_into_tensor": shares("all_gather", lambda count, size: count * (size - 1), 1),
        "all_gather": shares("all_gather", lambda count, size: count * (size - 1), 1),
        "reduce_scatter_tensor": shares("reduce_scatter", lambda count, size: count * (size - 1) / size, 1),
    }
    with contextlib.ExitStack() as stack:
        for name, wrapped in replaced.items():
            ours = wrapped(getattr(dist, name))
            # A P2POp accepts only this module's own function.
            stack.enter_context(mock.patch.object(dist.distributed_c10d, name, ours))
            stack.enter_context(mock.patch.object(dist, name, ours))
        yield sent


def sent_by(folder: Path, calls: list[tuple[AttentionCall, tuple[int, int]]]) -> list[Sent]:
    """What rank 0 of a release sends in each call, with (inner, outer) ranks.

    Raises:
        HcpError: a call is not right, so that what it sends means nothing.
    """
    limit = HANG_S * (1 + len(calls))
    work = lambda _: [_sent(release, *call) for release in [load(folder)] for call in calls]  # noqa: E731
    return run_workers(work, 1, limit)[0]  # type: ignore[no-any-return]


def tokens_of(case: AttentionCall, size: int) -> tuple[Inputs, int]:
    """The inputs of a call, and the tokens of one rank, of all its sequences."""
    inputs = Inputs(case, size)
    return inputs, inputs.q[..., 0, 0].numel() // size


def _sent(release: Release, case: AttentionCall, sizes: tuple[int, int]) -> Sent:
    size = sizes[0] * sizes[1]
    with tempfile.TemporaryDirectory(prefix="hcp-") as folder:

        def work(rank: int) -> Sent:
            torch.set_num_threads(1)
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
            timeout = timedelta(seconds=COLLECTIVE_S)
            store = f"file://{folder}/store"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timeout)
            levels = build_levels(sizes, rank)
            forward: dict[str, float] = {}
            with counted() as sent:
                result = run_case(release, case, levels, size, lambda: forward.update(sent))
            dist.destroy_process_group()
            if result.verdict != "right":
                raise HcpError(f"{case} on {sizes}: found {result.verdict} ({result.text}), wanted right")
            return Sent(forward, {name: count - forward.get(name, 0) for name, count in sent.items()})

        return run_workers(work, size, HANG_S)[0]  # type: ignore[no-any-return]
