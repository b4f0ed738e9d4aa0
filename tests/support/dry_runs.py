"""Small launches for dry runs, and the wheels of upstream that they run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megatron_hcp.dryrun.ask import DryRun, HowToRun, dry_run
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.upstream import upstreams_of
from support.needs import UPSTREAM

BASE = (
    "--use-mcore-models --transformer-impl transformer_engine --num-layers 4 --hidden-size 1024 "
    "--ffn-hidden-size 4096 --num-attention-heads 16 --seq-length 8192 --max-position-embeddings 8192 "
    "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear "
    "--untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0 --micro-batch-size 1 "
    "--global-batch-size 16 --train-iters 100 --eval-interval 100 --eval-iters 1 --lr 1e-5 --bf16 "
    "--use-distributed-optimizer --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 "
    "--no-create-attention-mask-in-dataloader"
)
"""A dense model that starts on every release from 0.12, on eight ranks."""
FACTS = "world_size=8 env.CUDA_DEVICE_MAX_CONNECTIONS=1"


def launch_of(
    more: str = "", *, mcore: str | Path = "0.17.1", te: str = "2.14", facts: str = FACTS, without: str = ""
) -> Launch:
    """The base launch, more words and `without` one option, on a wheel of megatron-core or in a tree of upstream."""
    tree = UPSTREAM / f"megatron-core-{mcore}" if isinstance(mcore, str) else mcore
    base = [f"--{option}" for option in BASE[2:].split(" --") if f"--{option.split()[0]}" != without]
    options = LoadOptions(
        dialect="mlm",
        words=(*" ".join(base).split(), *more.split()),
        assumes=(f"te={te} {facts}",),
        upstream=upstreams_of([str(tree)]),
    )
    return load_launch("", options)


def run(more: str = "", *, ranks: str = "0", until: str = "backward", **how: Any) -> DryRun:
    """The dry run of `launch_of` on one rank."""
    return dry_run(launch_of(more, **how), HowToRun(ranks=ranks, until=until))
