"""Shards of samples and of packed rows are those of megatron-core and Transformer Engine, by their own code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.core.packing import pack_row, partition_as_compiled  # noqa: E402
from megatron_hcp.core.shards import pad_multiple, shard_indices, shard_thd_indices  # noqa: E402
from support.upstream_code import Named, function, parameters  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.upstream]

TE_FILE = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
BATCHES = ([8], [1, 2, 3], [5, 40, 7, 1], [16, 16], [31, 3])
SIZES = (2, 3, 4, 8)


def group(size: int, rank: int) -> dict[str, Any]:
    """What upstream's functions ask torch.distributed and megatron-core about a CP group."""
    distributed = SimpleNamespace(
        get_world_size=lambda group=None: size, get_rank=lambda group=None: rank, ProcessGroup=object
    )
    return {
        "torch": SimpleNamespace(**{**vars(torch), "distributed": distributed}),
        "get_pg_size": lambda group: size,
        "get_pg_rank": lambda group: rank,
    }


def releases(upstream: Path, package: str, file: str, name: str) -> list[Path]:
    found = [folder / file for folder in sorted(upstream.glob(f"{package}-*")) if (folder / file).is_file()]
    return [path for path in found if f"\ndef {name}(" in path.read_text(encoding="utf-8")]


def test_transformer_engine_pads_and_cuts_packed_rows_as_core_does(upstream: Path) -> None:
    files = releases(upstream, "transformer-engine", TE_FILE, "get_batch_on_this_cp_rank")
    assert len(files) >= 2, "several releases have these functions"
    for file in files:
        for lengths in BATCHES:
            for size in SIZES:
                check_te(file, lengths, size)


def check_te(file: Path, lengths: list[int], size: int) -> None:
    multiple = pad_multiple(size)
    ours = pack_row(lengths, multiple)
    tokens = torch.arange(sum(lengths))
    cu_seqlens = torch.tensor(ours.cu_seqlens)
    strategy = type("Strategy", (), {})
    strategy.DUAL_CHUNK_SWAP, strategy.NO_LOAD_BALANCE = strategy(), strategy()  # type: ignore[attr-defined]
    for rank in range(size):
        scope = Named(**group(size, rank), CPLoadBalancingStrategy=strategy)
        for name in ("pad_thd_sequences_for_cp", "generate_positional_ids_for_cp", "get_batch_on_this_cp_rank"):
            exec(function(file, name), scope)
        padded, labels, cu_padded = scope["pad_thd_sequences_for_cp"](tokens, tokens, cu_seqlens, multiple)
        assert cu_padded.tolist() == ours.cu_seqlens_padded
        positions = scope["generate_positional_ids_for_cp"](cu_seqlens, multiple)
        cut = scope["get_batch_on_this_cp_rank"]
        rows, _, held = cut(cu_padded, padded[None], labels[None], positions, None)
        mine = shard_thd_indices(ours.cu_seqlens_padded, rank, size)
        assert rows[0].tolist() == padded[mine].tolist()
        assert held.tolist() == positions[mine].tolist()


@pytest.mark.parametrize("name", ["get_batch_on_this_cp_rank", "get_pretrain_batch_on_this_cp_rank"])
def test_megatron_core_cuts_samples_as_core_does(upstream: Path, name: str) -> None:
    files = releases(upstream, "megatron-core", "megatron/core/utils.py", name)
    # Older releases pin memory, which needs a GPU; newer ones hand on to the second name.
    plain = [file for file in files if parameters(file, name) == ("batch", "cp_group")]
    assert plain
    for file in plain:
        for size in SIZES:
            for rank in range(size):
                scope = Named(**group(size, rank), Any=Any, Dict=dict, Optional=Any)
                exec(function(file, name), scope)
                batch = {"tokens": torch.arange(6 * size).expand(2, -1), "labels": None}
                cut = scope[name](batch, object())["tokens"]
                assert cut.tolist() == [shard_indices(6 * size, rank, size)] * 2


@pytest.mark.parametrize(
    ("release", "name"),
    [("0.16.1", "get_thd_batch_on_this_cp_rank"), ("0.18.2", "get_sft_batch_on_this_cp_rank")],
)
def test_megatron_core_cuts_packed_rows_as_core_does(upstream: Path, release: str, name: str) -> None:
    file = upstream / f"megatron-core-{release}" / "megatron/core/utils.py"

    def compiled(cu_seqlens: Any, total: int, size: int, rank: int) -> Any:
        return torch.tensor(partition_as_compiled(cu_seqlens.tolist(), total, rank, size))

    for lengths in BATCHES:
        for size in SIZES:
            ours = pack_row(lengths, pad_multiple(size))
            for rank in range(size):
                scope = Named(
                    **group(size, rank),
                    tex=SimpleNamespace(thd_get_partitioned_indices=compiled),
                    is_te_min_version=lambda version: True,
                )
                exec(function(file, name), scope)
                cu_padded = torch.tensor(ours.cu_seqlens_padded, dtype=torch.int32)
                batch = {"tokens": torch.arange(ours.cu_seqlens_padded[-1])[None]}
                if release == "0.16.1":
                    longest = torch.tensor([max(lengths)])
                    batch, _ = scope[name](batch, cu_padded, cu_padded, longest, size, rank)
                else:
                    boundaries = {"cu_seqlens": cu_padded[None], "cu_seqlens_padded": cu_padded[None]}
                    batch = scope[name]({**batch, **boundaries}, object())
                assert batch["tokens"][0].tolist() == shard_thd_indices(ours.cu_seqlens_padded, rank, size)
