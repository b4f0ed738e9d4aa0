"""Random command lines of Megatron-LM, made of the options that a revision's own parser has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

Options = Mapping[str, Mapping[str, Any]]


class Drawn(NamedTuple):
    """A command line, the number of ranks and the environment it is started with."""

    words: tuple[str, ...]
    world_size: int
    env: dict[str, str | None]
    """None: not set."""

    def __str__(self) -> str:
        env = "".join(f"{name}={value} " for name, value in self.env.items() if value is not None)
        return f"{env}[{self.world_size} ranks] {' '.join(self.words)}"


_ALWAYS = ("--bf16", "--mock-data", "--no-gradient-accumulation-fusion")
_OPTIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    # Option: how often it is drawn, and the words that may follow ("" = none).
    "--tensor-model-parallel-size": (0.5, ("1", "2", "2", "4", "3")),
    "--context-parallel-size": (0.8, ("1", "2", "2", "4", "4", "8", "3", "6")),
    "--pipeline-model-parallel-size": (0.3, ("1", "2", "2", "4", "3")),
    "--sequence-parallel": (0.4, ("",)),
    "--expert-model-parallel-size": (0.15, ("1", "2", "4", "8")),
    "--expert-tensor-parallel-size": (0.1, ("1", "2", "4")),
    "--num-experts": (0.2, ("4", "8", "6")),
    "--tensor-parallel-num-weight-shards": (0.05, ("1", "2", "4", "8", "3")),
    "--expert-tensor-parallel-num-weight-shards": (0.05, ("1", "2", "4")),
    "--num-distributed-optimizer-instances": (0.06, ("1", "2", "4")),
    "--use-distributed-optimizer": (0.3, ("",)),
    "--use-tp-pp-dp-mapping": (0.08, ("",)),
    "--cp-comm-type": (0.4, ("p2p", "a2a", "allgather", "all_gather", "a2a+p2p", "a2a+p2p", "p2p a2a", "ring")),
    "--hierarchical-context-parallel-sizes": (0.25, ("2 2", "2 4", "4 2", "1 4", "2 2 2", "8", "2 3", "4 1")),
    "--hybrid-context-parallel": (0.08, ("",)),
    "--dynamic-context-parallel": (0.08, ("",)),
    "--max-seqlen-per-dp-cp-rank": (0.12, ("1024", "2048", "4096")),
    "--min-dynamic-context-parallel-size": (0.05, ("1", "2", "4")),
    "--sequence-packing-scheduler": (0.08, ("dp_balanced", "default_dynamic_cp")),
    "--cp-partition-mode": (0.04, ("zigzag", "contiguous")),
    "--sft": (0.15, ("",)),
    "--dataloader-inter-document-masking": (0.05, ("",)),
    "--calculate-per-token-loss": (0.3, ("",)),
    "--ddp-average-in-collective": (0.08, ("",)),
    "--dataloader-type": (0.15, ("single", "cyclic", "external")),
    "--global-batch-size": (0.5, ("64", "128", "256", "192", "512", "8", "12")),
    "--eval-global-batch-size": (0.05, ("8", "6")),
    "--eval-micro-batch-size": (0.05, ("1", "2")),
    "--rampup-batch-size": (0.02, ("2 2 100",)),
    "--num-virtual-stages-per-pipeline-rank": (0.06, ("1", "2", "3")),
    "--num-layers-per-virtual-pipeline-stage": (0.06, ("1", "2", "3")),
    "--decoder-first-pipeline-num-layers": (0.04, ("1", "2", "3")),
    "--decoder-last-pipeline-num-layers": (0.04, ("1", "2", "3")),
    "--account-for-embedding-in-pipeline-split": (0.03, ("",)),
    "--account-for-loss-in-pipeline-split": (0.03, ("",)),
    "--pipeline-model-parallel-layout": (0.03, ("Et*4|t*4L", "Et*2|t*2|t*2|t*2L", "Et|t|L")),
    "--microbatch-group-size-per-virtual-pipeline-stage": (0.03, ("1", "2", "4")),
    "--overlap-moe-expert-parallel-comm": (0.05, ("",)),
    "--moe-token-dispatcher-type": (0.12, ("allgather", "alltoall", "flex")),
    "--moe-grouped-gemm": (0.05, ("",)),
    "--moe-shared-expert-overlap": (0.03, ("",)),
    "--use-megatron-fsdp": (0.08, ("",)),
    "--megatron-fsdp-version": (0.04, ("1", "2")),
    "--use-torch-fsdp2": (0.04, ("",)),
    "--ckpt-format": (0.12, ("torch", "torch_dist", "fsdp_dtensor", "fsdp_dtensor")),
    "--untie-embeddings-and-output-weights": (0.3, ("",)),
    "--data-parallel-sharding-strategy": (0.06, ("no_shard", "optim", "optim_grads", "optim_grads_params")),
    "--mtp-num-layers": (0.08, ("1", "2")),
    "--position-embedding-type": (
        0.4,
        ("rope", "rope", "rope", "rope", "learned_absolute", "yarn", "none", "relative"),
    ),
    "--no-rope-fusion": (0.1, ("",)),
    "--rotary-interleaved": (0.03, ("",)),
    "--multi-latent-attention": (0.1, ("",)),
    "--rope-type": (0.05, ("rope", "yarn")),
    "--group-query-attention": (0.3, ("",)),
    "--num-query-groups": (0.3, ("1", "2", "4", "8", "3")),
    "--kv-channels": (0.1, ("64", "128")),
    "--experimental-attention-variant": (0.04, ("gated_delta_net", "dsa", "dsv4_hybrid")),
    "--linear-attention-freq": (0.04, ("2", "4")),
    "--linear-num-key-heads": (0.03, ("2", "4", "16")),
    "--linear-num-value-heads": (0.03, ("4", "8", "32")),
    "--hybrid-layer-pattern": (0.08, ("M*M*", "M*M*|M*M*", "M-M*M-M*", "MDMD", "M+M+", "G*G*", "M*M*/MM/MM", "MEME")),
    "--hybrid-override-pattern": (0.03, ("M*M*", "M-M*M-M*")),
    "--is-hybrid-model": (0.03, ("",)),
    "--window-size": (0.04, ("128,0",)),
    "--cross-entropy-loss-fusion": (0.08, ("",)),
    "--cross-entropy-fusion-impl": (0.06, ("native", "te")),
    "--softmax-type": (0.03, ("learnable", "off-by-one")),
    "--attention-backend": (0.15, ("flash", "fused", "unfused", "local", "auto")),
    "--transformer-impl": (0.06, ("local", "transformer_engine")),
    "--spec": (0.03, ("local",)),
    "--deterministic-mode": (0.04, ("",)),
    "--tp-comm-overlap": (0.06, ("",)),
    "--distribute-saved-activations": (0.03, ("",)),
    "--recompute-granularity": (0.12, ("full", "selective")),
    "--recompute-method": (0.1, ("uniform",)),
    "--recompute-num-layers": (0.1, ("1",)),
    "--enable-cuda-graph": (0.03, ("",)),
    "--external-cuda-graph": (0.03, ("",)),
    "--cuda-graph-impl": (0.05, ("none", "local", "transformer_engine", "full_iteration")),
    "--fp8-format": (0.08, ("hybrid", "e4m3")),
    "--fp8-recipe": (0.05, ("delayed", "tensorwise", "mxfp8", "blockwise")),
    "--fp8-dot-product-attention": (0.01, ("",)),
    "--fp8-multi-head-attention": (0.01, ("",)),
    "--tp-only-amax-red": (0.01, ("",)),
    "--qk-clip": (0.03, ("",)),
    "--log-max-attention-logit": (0.03, ("",)),
    "--batch-invariant-mode": (0.02, ("",)),
    "--high-priority-stream-groups": (0.04, ("cp", "dp_cp", "tp", "hcp")),
    "--pipeline-model-parallel-comm-backend": (0.02, ("nccl", "ucc")),
    "--disable-gloo-process-groups": (0.1, ("",)),
    "--apply-query-key-layer-scaling": (0.02, ("",)),
    "--no-create-attention-mask-in-dataloader": (0.1, ("",)),
    "--init-model-with-meta-device": (0.02, ("",)),
    "--add-bias-linear": (0.0, ("",)),
    "--disable-bias-linear": (0.6, ("",)),
    "--swiglu": (0.3, ("",)),
    "--finetune": (0.05, ("",)),
    "--overlap-grad-reduce": (0.1, ("",)),
    "--overlap-param-gather": (0.05, ("",)),
    "--encoder-seq-length": (0.0, ("4096",)),
}
_UNKNOWN_KEPT = 0.05
"""How often an option that this revision does not have is drawn all the same."""
_NEEDED: dict[str, tuple[tuple[str, str], ...]] = {
    # Option: what else it takes, added in nine of ten lines that lack it.
    "a2a+p2p": (("--hierarchical-context-parallel-sizes", "1"),),
    "--expert-model-parallel-size": (("--num-experts", "8"),),
    "--overlap-moe-expert-parallel-comm": (("--num-experts", "8"), ("--expert-model-parallel-size", "2")),
    "--hybrid-context-parallel": (("--calculate-per-token-loss", ""), ("--max-seqlen-per-dp-cp-rank", "4096")),
    "--dynamic-context-parallel": (("--calculate-per-token-loss", ""), ("--max-seqlen-per-dp-cp-rank", "4096")),
    "--use-megatron-fsdp": (("--ckpt-format", "fsdp_dtensor"), ("--use-distributed-optimizer", "")),
    "--use-torch-fsdp2": (("--untie-embeddings-and-output-weights", ""), ("--ckpt-format", "torch_dist")),
    "--mtp-num-layers": (("--position-embedding-type", "rope"),),
    "--tp-comm-overlap": (("--sequence-parallel", ""),),
    "--overlap-param-gather": (("--overlap-grad-reduce", ""), ("--use-distributed-optimizer", "")),
    "--num-distributed-optimizer-instances": (("--use-distributed-optimizer", ""),),
    "--recompute-method": (("--recompute-granularity", "full"),),
    "local": (("--spec", "local"),),
    "--num-query-groups": (("--group-query-attention", ""),),
}


def draw(rng: random.Random, options: Options) -> Drawn:
    """One command line for a small world: sizes that mostly divide it, options that mostly go together."""
    words = [*_ALWAYS, "--micro-batch-size", rng.choice("11124"), *_model(rng)]
    chosen = _chosen(rng, options)
    _complete(rng, chosen)
    for option, following in chosen.items():
        words += [option, *following]
    return Drawn(tuple(words), _world(rng, chosen), _env(rng, chosen))


def _chosen(rng: random.Random, options: Options) -> dict[str, tuple[str, ...]]:
    few = rng.choice((0.3, 0.5, 1.0))  # a line with many options is refused for some reason or other
    chosen: dict[str, tuple[str, ...]] = {}
    for option, (share, values) in _OPTIONS.items():
        scaled = share * (1 if option in options else _UNKNOWN_KEPT) * (few if share < 0.3 else 1)
        if rng.random() < scaled:
            chosen[option] = tuple(rng.choice(_taken(values, options.get(option, {}), rng)).split())
    return chosen


def _taken(values: tuple[str, ...], action: Mapping[str, Any], rng: random.Random) -> tuple[str, ...]:
    """Those of the values that the parser's own choices have; all of them in one of twenty lines."""
    choices = [str(choice) for choice in action.get("choices") or ()]
    if not choices or rng.random() < 0.05:
        return values
    return tuple(value for value in values if all(word in choices for word in value.split())) or values


def _complete(rng: random.Random, chosen: dict[str, tuple[str, ...]]) -> None:
    """Adds what options take to be accepted, and sizes of levels that multiply to cp, in nine of ten lines."""
    present = [*chosen, *(word for words in chosen.values() for word in words)]
    for option in present:
        for needed, value in _NEEDED.get(option, ()):
            if needed not in chosen and rng.random() < 0.9:
                chosen[needed] = tuple(value.split())
    cp = int(chosen.get("--context-parallel-size", ("1",))[0])
    if "--hierarchical-context-parallel-sizes" in chosen and rng.random() < 0.8:
        inner = rng.choice([size for size in (1, 2, 3, 4, 8) if cp % size == 0])
        chosen["--hierarchical-context-parallel-sizes"] = (str(inner), str(cp // inner))
    fsdp = "--use-megatron-fsdp" in chosen
    if chosen.get("--ckpt-format") == ("fsdp_dtensor",) and not fsdp and rng.random() < 0.9:
        del chosen["--ckpt-format"]
    if "--mtp-num-layers" in chosen and rng.random() < 0.8:
        chosen["--position-embedding-type"] = ("rope",)


def _model(rng: random.Random) -> list[str]:
    heads = rng.choice((4, 8, 8, 12, 16))
    length = rng.choice((1024, 2048, 4096, 4096, 6144, 6144, 6144, 12288, 4100, 8190))
    positions = rng.choice((16384,) * 20 + (8192, 4096, 2048, 0))
    words = ["--num-attention-heads", str(heads), "--hidden-size", str(64 * heads), "--seq-length", str(length)]
    words += ["--num-layers", rng.choice(("4", "8", "8", "8", "12", "6"))]
    return words + (["--max-position-embeddings", str(positions)] if positions else [])


def _world(rng: random.Random, chosen: Mapping[str, tuple[str, ...]]) -> int:
    """A multiple of the parallel sizes in nine of ten, at most 128 ranks."""
    shard = 1
    for option in ("--tensor-model-parallel-size", "--context-parallel-size", "--pipeline-model-parallel-size"):
        shard *= int(chosen.get(option, ("1",))[0])
    if rng.random() < 0.1 or shard > 128:
        return rng.choice((1, 2, 4, 8, 16, 6, 12))
    return shard * rng.choice([times for times in (1, 1, 2, 2, 4, 8) if shard * times <= 128])


def _env(rng: random.Random, chosen: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    deterministic = "--deterministic-mode" in chosen
    fsdp = "--use-megatron-fsdp" in chosen or "--use-torch-fsdp2" in chosen
    return {
        "CUDA_DEVICE_MAX_CONNECTIONS": rng.choice((("8",) if fsdp else ("1",)) * 18 + ("1", "8", None)),
        "NCCL_ALGO": rng.choice(("Ring", "Tree", "^NVLS", "Ring,Tree", None)) if deterministic else None,
    }
