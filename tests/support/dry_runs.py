"""Small launches for dry runs, and the wheels of upstream that they run on."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.dryrun.ask import Ask, DryRun, dry_run
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


def launch_of(more: str = "", *, mcore: str | Path = "0.17.1", te: str = "2.14", facts: str = FACTS) -> Launch:
    """The base launch and more words, on a wheel of megatron-core or in a tree of upstream."""
    tree = UPSTREAM / f"megatron-core-{mcore}" if isinstance(mcore, str) else mcore
    options = LoadOptions(
        dialect="mlm",
        words=(*BASE.split(), *more.split()),
        assumes=(f"te={te} {facts}",),
        upstream=upstreams_of([str(tree)]),
    )
    return load_launch("", options)


def run(
    more: str = "",
    *,
    mcore: str = "0.17.1",
    te: str = "2.14",
    ranks: str = "0",
    until: str = "backward",
    facts: str = FACTS,
) -> DryRun:
    """Its dry run, on one rank."""
    return dry_run(launch_of(more, mcore=mcore, te=te, facts=facts), Ask(ranks=ranks, until=until))
