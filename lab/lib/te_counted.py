"""What Transformer Engine's own context-parallel code sends and holds, counted while it runs.

Sent are elements, so a kernel's type does not matter; each counts once for each rank that it is sent to.

Held are bytes, tensor by tensor. Inputs are bfloat16, so that each tensor takes as many bytes as on a GPU; what the
code computes with them is judged elsewhere (`execute`, in float64). The count covers the storages of floating-point
tensors from their creation until nothing refers to them. It leaves out what a GPU kernel would not allocate: the
insides of the stand-ins, and of the small functions that Transformer Engine lets a compiler fuse.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.procs import run_workers
from megatron_hcp.proofs.te_cpu.case import AttentionCall, Inputs
from megatron_hcp.proofs.te_cpu.execute import HANG_S, Levels, arguments_of, join_ranks, run_case
from megatron_hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS
from megatron_hcp.proofs.te_cpu.load import STAND_INS, Release, load

_FUSED = "flash_attn_fwd_"
"""Prefixes of the functions that merge the steps of a ring, under Transformer Engine's jit_fuser."""
TIMES = 3
"""Runs of a call, of which the smallest counts: a Gloo thread may still hold a tensor that is no longer needed."""


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


class BytesHeld(NamedTuple):
    """Bytes on the rank that holds the most.

    `kept`: from the forward to the backward pass, the output included. `forward`: at most at once in the forward pass,
    inputs included, beyond `kept`. `backward`: at most at once in the backward pass, beyond what was there before it.
    """

    kept: int
    forward: int
    backward: int


class _Allocated(TorchDispatchMode):
    """While active, counts the bytes of the tensors that operations create."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._inside = False
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(func, args, kwargs or {})

    def as_kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, of whose tensors only the returned ones count."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            try:
                found = function(*args, **kwargs)
            finally:
                self._inside = False
            return self._counted(found, args, kwargs)

        return call

    def _run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return found if self._inside else self._counted(found, args, kwargs)

    def _counted(self, found: Any, *given: Any) -> Any:
        old = _storages(given)
        for number, storage in _storages(found).items():
            if number not in old and storage not in self._known:
                self._add(storage)
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        size = self._known[storage] = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, size)

    def _remove(self, size: int) -> None:
        self.live -= size


def _storages(values: Any) -> dict[int, torch.UntypedStorage]:
    tensors = [x for x in tree_iter(values) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return {x.untyped_storage()._cdata: x.untyped_storage() for x in tensors}


Call = tuple[AttentionCall, tuple[int, int]]
"""A call, and its (inner, outer) ranks."""


def sent_by(folder: Path, calls: list[Call]) -> list[Sent]:
    """What rank 0 of a release sends in each call.

    Raises:
        HcpError: a call is not right, so that what it sends means nothing.
    """
    return [of_ranks[0] for of_ranks in _by_rank(folder, calls, _sent)]


def held_by(folder: Path, calls: list[Call]) -> list[BytesHeld]:
    """What a release holds in each call."""
    return [BytesHeld(*map(max, zip(*of_ranks))) for of_ranks in _by_rank(folder, calls, _held)]


def tokens_of(case: AttentionCall, size: int) -> tuple[Inputs, int]:
    """The inputs of a call, and the tokens of one rank, of all its sequences."""
    inputs = Inputs(case, size)
    return inputs, inputs.q[..., 0, 0].numel() // size


def _by_rank(folder: Path, calls: list[Call], count: Callable[[Release, Call, Levels], Any]) -> list[list[Any]]:
    """What is counted on each rank of each call. The release is imported once, in a process of its own."""

    def of_call(release: Release, call: Call) -> list[Any]:
        with tempfile.TemporaryDirectory(prefix="hcp-") as place:

            def work(rank: int) -> Any:
                found = count(release, call, join_ranks(call[1], rank, Path(place)))
                dist.destroy_process_group()
                return found

            return run_workers(work, call[1][0] * call[1][1], HANG_S)

    def of_all(_: int) -> list[list[Any]]:
        release = load(folder)
        return [of_call(release, call) for call in calls]

    found: list[list[Any]] = run_workers(of_all, 1, HANG_S * (1 + len(calls)))[0]
    return found


def _sent(release: Release, call: Call, levels: Levels) -> Sent:
    case, sizes = call
    forward: dict[str, float] = {}
    with counted() as sent:
        result = run_case(release, case, levels, sizes[0] * sizes[1], lambda: forward.update(sent))
    if result.verdict != "right":
        raise HcpError(f"{case} on {sizes}: found {result.verdict} ({result.text})", wanted="right")
    return Sent(forward, {name: count - forward.get(name, 0) for name, count in sent.items()})


def _held(release: Release, call: Call, levels: Levels) -> BytesHeld:
    case, sizes = call
    inputs = Inputs(case, sizes[0] * sizes[1])
    return BytesHeld(*map(min, zip(*[_held_once(release, case, inputs, levels) for _ in range(TIMES)])))


def _held_once(release: Release, case: AttentionCall, inputs: Inputs, levels: Levels) -> BytesHeld:
    rows, dim = inputs.rows_of(dist.get_rank()), DIM_OF_TOKENS[case.format]
    given = arguments_of(release, case, inputs, levels, torch.bfloat16)
    dout = inputs.dout.index_select(dim, rows).to(torch.bfloat16)
    allocated = _Allocated()
    with _kernels_as_one(release, allocated), allocated:
        out = release.context_parallel.attn_forward_func_with_cp(**given)
        kept = sum(storage.nbytes() for storage in _storages([out, _saved(out)]).values())
        passed = sum(given[name].untyped_storage().nbytes() for name in "qkv") + allocated.peak
        before = allocated.peak = allocated.live
        out.backward(dout.view(out.shape))
    return BytesHeld(kept, passed - kept, allocated.peak - before)


def _saved(out: torch.Tensor) -> list[Any]:
    """What the function behind the output keeps for its backward pass; views of an output stand between them."""
    node: Any = out.grad_fn
    while not hasattr(node, "saved_tensors"):
        node = node.next_functions[0][0]
    return list(node.saved_tensors)


@contextlib.contextmanager
def _kernels_as_one(release: Release, allocated: _Allocated) -> Iterator[None]:
    module = release.context_parallel
    kernels = {stand_in.name for stand_in in STAND_INS if "attn" in stand_in.name}
    with contextlib.ExitStack() as stack:
        for name, function in list(vars(module).items()):
            if name in kernels or name.startswith(_FUSED):
                stack.enter_context(mock.patch.object(module, name, allocated.as_kernel(function)))
        yield
