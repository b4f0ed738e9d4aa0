"""Memory in upstream's own run beside measured steps: `python lab plan/counted ROWS.jsonl CHECKOUT`.

Each row of `plan/memory` is run as a launch by `hcp dryrun`'s machinery, at full size. Weights, gradients, optimizer
and what layers keep are counted in upstream's own code and set beside the formulas; with the formulas' other terms they
make the peak, which is set beside the measured one. Exit 1 where what layers keep is more than 1 % off a formula that
meets the measured peak. Rows of experts are even here, on both sides.
"""

from __future__ import annotations

import sys
from pathlib import Path

from program import parser_of
from rows import Measured, simumax_rows

from megatron_hcp.dryrun.ask import HowToRun, dry_run
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.upstream import upstreams_of
from megatron_hcp.plan.memory.activations import kept_evenly
from megatron_hcp.plan.memory.peak import GIB, stage_terms

MOST = 0.01
_BASE = (
    "--use-mcore-models --transformer-impl transformer_engine --position-embedding-type rope --normalization RMSNorm "
    "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0 "
    "--train-iters 10 --eval-interval 10 --eval-iters 1 --lr 1e-5 --bf16 --use-distributed-optimizer "
    "--no-create-attention-mask-in-dataloader --cross-entropy-loss-fusion --cross-entropy-fusion-impl te"
)
_STATES = ("weights", "gradients", "optimizer")


def words_of(row: Measured) -> str:
    """The row's launch, in Megatron-LM's words."""
    sizes, layout, job = row.model.sizes, row.layout, row.job
    words = (
        f"{_BASE} --num-layers {sizes.num_layers} --hidden-size {sizes.hidden_size} "
        f"--ffn-hidden-size {sizes.dense_ffn} --num-attention-heads {sizes.heads} --seq-length {job.seq_length} "
        f"--max-position-embeddings {job.seq_length} --vocab-size {sizes.vocab} --tokenizer-type NullTokenizer "
        f"--micro-batch-size {layout.mbs} --global-batch-size {job.global_batch} "
        f"--tensor-model-parallel-size {layout.tp} --pipeline-model-parallel-size {layout.pp} "
        f"--context-parallel-size {layout.cp} --cp-comm-type {layout.cp_comm_type} --rotary-base 500000"
    )
    words += " --sequence-parallel" if layout.tp > 1 else ""
    if not sizes.kv_lora:
        return f"{words} --group-query-attention --num-query-groups {sizes.kv_heads}{_experts(row)}"
    words += (
        f" --multi-latent-attention --qk-layernorm --kv-lora-rank {sizes.kv_lora} --qk-pos-emb-head-dim "
        f"{sizes.qk_rope} --qk-head-dim {sizes.qk_head_dim - sizes.qk_rope} --v-head-dim {sizes.v_head_dim} "
        "--no-rope-fusion"
    )
    return words + (f" --q-lora-rank {sizes.q_lora}" if sizes.q_lora else "") + _experts(row)


def _experts(row: Measured) -> str:
    sizes = row.model.sizes
    if not sizes.experts:
        return ""
    kinds = "".join(map(str, map(int, row.model.is_moe)))
    words = (
        f" --num-experts {sizes.experts} --moe-ffn-hidden-size {sizes.moe_ffn} --moe-router-topk {sizes.topk} "
        f"--moe-grouped-gemm --moe-token-dispatcher-type alltoall --expert-model-parallel-size {row.layout.ep} "
        f"--moe-router-load-balancing-type none --moe-permute-fusion --moe-layer-freq [{','.join(kinds)}]"
    )
    return words + (f" --moe-shared-expert-intermediate-size {sizes.shared_ffn}" if sizes.shared_ffn else "")


def counted(row: Measured, checkout: str, te: str) -> float:
    """Prints the row; how far what the layers keep is off the formulas, on the stage where it is most."""
    job = row.job
    options = LoadOptions(
        dialect="mlm", words=tuple(words_of(row).split()), upstream=upstreams_of([checkout]),
        assumes=(f"te={te} world_size={job.world_size} env.CUDA_DEVICE_MAX_CONNECTIONS=1",),
    )  # fmt: skip
    run = dry_run(load_launch("", options), HowToRun(measure=True, seconds=600))
    peaks, off = [], 0.0
    for one in run.outcomes:
        if one.measured is None:
            print(f"not counted: {row.name}: rank {one.rank}: {one.stage}: {one.error}")
            return 1.0
        stage = one.rank // (job.world_size // row.layout.pp)
        terms = stage_terms(row.model, row.layout, job, stage)
        kept = one.kept_by_layers
        sizes = {
            "weights": sum(one.measured["parameters"].values()), "gradients": sum(one.measured["gradients"].values()),
            "optimizer": one.measured["optimizer"], "kept": kept,
        }  # fmt: skip
        formulas = {name: terms[name] for name in _STATES}
        formulas["kept"] = kept_evenly(terms)
        shown = ", ".join(f"{name} {sizes[name] / GIB:.2f} ({formulas[name] / sizes[name] - 1:+.2%})" for name in sizes)
        print(f"  rank {one.rank}: {shown}; {one.cpu_seconds} s")
        others = sum(size for name, size in terms.items() if name not in _STATES and not name.startswith("kept: "))
        peaks.append((sum(sizes.values()) + others) / GIB)
        off = max(off, abs(formulas["kept"] / kept - 1))
    assert row.peak_gib is not None
    print(
        f"{max(peaks) / row.peak_gib - 1:+8.2%}  {max(peaks):7.2f} of {row.peak_gib:7.2f} GiB  {row.name}", flush=True
    )
    return off


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("checkout")
    parser.add_argument("--te", default="2.10", help="the release of Transformer Engine, unpacked in $HCP_UPSTREAM")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    options = parser.parse_args()
    rows = [row for row in simumax_rows(options.rows) if options.only in row.name]
    found = [counted(row, options.checkout, options.te) for row in rows]
    print(f"{sum(off <= MOST for off in found)} of {len(found)} rows: what layers keep is within {MOST:.0%}")
    return int(max(found, default=0.0) > MOST)


if __name__ == "__main__":
    sys.exit(main())
