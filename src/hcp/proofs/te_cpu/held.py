"""How much memory Transformer Engine's own context-parallel code holds, counted tensor by tensor while it runs.

Inputs are bfloat16, so that each tensor takes as many bytes as on a GPU; what the code computes with them is judged
elsewhere (`execute`, in float64). The count covers the storages of floating-point tensors from their creation until
nothing refers to them. It leaves out what a GPU kernel would not allocate: the insides of the stand-ins, and of the
small functions that Transformer Engine lets a compiler fuse.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hcp.proofs.procs import run_workers
from hcp.proofs.te_cpu.case import AttentionCall, Inputs
from hcp.proofs.te_cpu.execute import COLLECTIVE_S, HANG_S, arguments_of, build_levels
from hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS
from hcp.proofs.te_cpu.load import STAND_INS, Release, load

_FUSED = "flash_attn_fwd_"
"""Prefixes of the functions that merge the steps of a ring, under Transformer Engine's jit_fuser."""


TIMES = 3
"""Runs of a call, of which the smallest counts: a Gloo thread may still hold a tensor that is no longer needed."""


class BytesHeld(NamedTuple):
    """Bytes on the rank that holds the most.

    `kept`: from the forward to the backward pass, the output included. `forward`: at most at once in the forward pass,
    inputs included, beyond `kept`. `backward`: at most at once in the backward pass, beyond what was there before it.
    """

    kept: int
    forward: int
    backward: int


class _Allocated(TorchDispatchMode):  # type: ignore[misc]
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


def held_by(folder: Path, calls: list[tuple[AttentionCall, tuple[int, int]]]) -> list[BytesHeld]:
    """What a release holds in each call, with (inner, outer) ranks."""
    limit = HANG_S * (1 + len(calls))
    work = lambda _: [_held(release, *call) for release in [load(folder)] for call in calls]  # noqa: E731
    return run_workers(work, 1, limit)[0]  # type: ignore[no-any-return]


def _held(release: Release, case: AttentionCall, sizes: tuple[int, int]) -> BytesHeld:
    size = sizes[0] * sizes[1]
    with tempfile.TemporaryDirectory(prefix="hcp-") as folder:

        def work(rank: int) -> BytesHeld:
            torch.set_num_threads(1)
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
            timeout = timedelta(seconds=COLLECTIVE_S)
            store = f"file://{folder}/store"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timeout)
            levels, inputs = build_levels(sizes, rank), Inputs(case, size)
            found = BytesHeld(*map(min, zip(*[_of_rank(release, case, inputs, levels) for _ in range(TIMES)])))
            dist.destroy_process_group()
            return found

        by_rank = run_workers(work, size, HANG_S)
    return BytesHeld(*map(max, zip(*by_rank)))


def _of_rank(release: Release, case: AttentionCall, inputs: Inputs, levels: Any) -> BytesHeld:
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
