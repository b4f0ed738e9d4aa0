"""Peak memory of the phases of RL on one GPU, as verl's actor has them, beside what `hcp plan --phases` says.

megatron-core's GPTModel with Transformer Engine's layers, in Float16Module and DDP with the distributed optimizer; the
head is verl's own code, from its unpacked wheel. Each cell is a phase at given sizes, run twice, and the second time
counts. On a CPU it runs tiny, to show that it runs.

    python lab plan/rl_peak --phase "actor update" --tokens 16384 --vocab 152064 --entropy
    python lab plan/rl_peak --cells lab/plan/rl_peak_cells.txt -o FILE    # a line: the options of a cell
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from program import parser_of
from rl_peak_model import GIB, Sizes, actor, has_gpu, offloaded, step_of, world

from megatron_hcp.integrations.machine import gpu_here
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.plan.from_launch import layout_of
from megatron_hcp.plan.phases.job import LOG_PROB, REFERENCE, UPDATE
from megatron_hcp.plan.phases.memory import phases_of
from megatron_hcp.plan.phases.read import rl_job
from megatron_hcp.plan.question import question_of


def _cell_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("a cell", add_help=False)
    parser.add_argument("--phase", choices=(LOG_PROB, REFERENCE, UPDATE), default=UPDATE)
    parser.add_argument("--tokens", type=int, default=8192, help="of a sequence")
    parser.add_argument("--count", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--recompute", choices=("none", "full"), default="none")
    parser.add_argument("--entropy", action="store_true", help="the loss of an update has it")
    parser.add_argument("--fused", action="store_true", help="use_fused_kernels")
    parser.add_argument("--chunk", type=int, default=0, help="tokens of which the entropy is taken at once")
    parser.add_argument("--offload", action="store_true", help="what a phase does not use is on the host")
    for name, size in Sizes()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--cells", type=Path, help="a file with the options of each cell")
    parser.add_argument("-o", "--output", type=Path, help="write what was found as JSON, after each cell")
    parser.add_argument("--seconds", type=float, default=600, help="after which no other cell begins")
    options, words = parser.parse_known_args()
    lines = options.cells.read_text("utf-8").splitlines() if options.cells else [shlex.join(words)]
    cells = [_cell_parser().parse_args(shlex.split(line)) for line in lines if line and not line.startswith("#")]
    until, found = time.monotonic() + options.seconds, []
    with tempfile.TemporaryDirectory() as folder, world(folder):
        for cell in cells if has_gpu() else [_tiny(cell) for cell in cells]:
            if time.monotonic() > until:
                break
            found.append({**vars(cell), **_measured(cell), **planned(cell, Path(folder))})
            print(_line(found[-1]), flush=True)
            if options.output:
                machine = torch.cuda.get_device_name() if has_gpu() else "cpu"
                record = {"schema": "hcp.rl-peak/1", "gpu": machine, "torch": torch.__version__, "cells": found}
                options.output.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(f"{len(found)} of {len(cells)} cells")
    return 0


def _tiny(cell: argparse.Namespace) -> argparse.Namespace:
    sizes = Sizes(layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=256)._asdict()
    return argparse.Namespace(
        **{**vars(cell), **sizes, "tokens": 64, "chunk": min(cell.chunk, 32), "recompute": "none"}
    )


def _measured(cell: argparse.Namespace) -> dict[str, Any]:
    """GiB of torch's allocated and reserved memory at the most, and of what is on the GPU beside torch's."""
    started, before = time.monotonic(), torch.cuda.memory_allocated() / GIB if has_gpu() else 0.0
    try:
        sizes = Sizes(**{name: getattr(cell, name) for name in Sizes._fields})
        with_states = cell.phase == UPDATE or not cell.offload
        model, optimizer = actor(sizes, cell.recompute, with_states and cell.phase != REFERENCE)
        holder = actor(sizes, "none", True) if cell.phase == REFERENCE and not cell.offload else None
        if cell.phase == REFERENCE and cell.offload:
            holder = offloaded(sizes)
        step = step_of(cell, model, optimizer)
        step()
        held = torch.cuda.memory_allocated() / GIB if has_gpu() else 0.0
        torch.cuda.reset_peak_memory_stats() if has_gpu() else None
        step()
        shown: dict[str, Any] = {"before_gib": before, "held_gib": held, **_peaks()}
        del model, optimizer, holder, step
    except torch.OutOfMemoryError as error:
        shown = {"oom": str(error).partition(". GPU")[0][:200], **_peaks()}
    except Exception as error:  # the other cells go on
        shown = {"failed": f"{type(error).__name__}: {error}"[:400]}
    gc.collect()
    torch.cuda.empty_cache() if has_gpu() else None
    return {**shown, "seconds": round(time.monotonic() - started, 1)}


def _peaks() -> dict[str, float]:
    if not has_gpu():
        return {"peak_gib": 0.0, "reserved_gib": 0.0, "beside_gib": 0.0}
    free, whole = torch.cuda.mem_get_info()
    return {
        "peak_gib": torch.cuda.max_memory_allocated() / GIB, "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "beside_gib": (whole - free - torch.cuda.memory_reserved()) / GIB,
    }  # fmt: skip


def planned(cell: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What `hcp plan --phases` says of verl's launch with that cell's settings: GiB, and of each term."""
    config = folder / "config.json"
    config.write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": cell.layers, "hidden_size": cell.hidden, "vocab_size": cell.vocab,
        "intermediate_size": cell.ffn, "num_attention_heads": cell.heads, "num_key_value_heads": cell.kv_heads,
        "tie_word_embeddings": False,
    }), "utf-8")  # fmt: skip
    a, m, size = "actor_rollout_ref", "actor_rollout_ref.actor.megatron", "micro_batch_size_per_gpu"
    words = [
        "--config-name=ppo_megatron_trainer.yaml", "algorithm.adv_estimator=grpo", "data.max_prompt_length=1",
        f"data.max_response_length={cell.tokens - 1}", "trainer.nnodes=1", "trainer.n_gpus_per_node=1",
        f"{a}.hybrid_engine=False", f"{a}.rollout.tensor_model_parallel_size=1",
        f"{a}.actor.use_kl_loss={cell.phase == REFERENCE}",  # no other cell has a reference's weights
        f"{a}.actor.ppo_{size}={cell.count}", f"{a}.ref.log_prob_{size}={cell.count}",
        f"{a}.rollout.log_prob_{size}={cell.count}", f"{m}.param_offload={cell.offload}",
        f"{m}.optimizer_offload={cell.offload}", f"{m}.grad_offload={cell.offload}",
        f"{a}.ref.megatron.param_offload={cell.offload}", f"{a}.actor.entropy_coeff={0.01 if cell.entropy else 0}",
        f"{a}.model.use_fused_kernels={cell.fused}",
    ]  # fmt: skip
    if cell.chunk:
        words += [f"{m}.entropy_from_logits_with_chunking=True", f"{m}.entropy_from_logits_chunk_size={cell.chunk}"]
    if cell.recompute == "full":
        of = f"{m}.override_transformer_config.recompute"
        words += [f"{of}_granularity=full", f"{of}_method=uniform", f"{of}_num_layers=1"]
    options = LoadOptions(dialect="verl", words=tuple(words), model_file=str(config), assumes=("verl=0.9.1",))
    asked = question_of("", options, {"gpus": 1, "gpu": gpu_here(), "global_batch": 64}, None, True)
    layout = layout_of(asked.facts, asked.job.seq_length)
    rl = rl_job(asked.dialect, asked.settings, layout, asked.job.seq_length, asked.facts)
    phase = next(x for x in phases_of(asked.model, layout, asked.job, rl) if x.name == cell.phase)
    return {"planned_gib": phase.peak, "tokens_planned": phase.tokens, "terms": dict(phase.terms)}


def _line(cell: dict[str, Any]) -> str:
    more = [name for name in ("entropy", "fused", "offload") if cell[name]]
    what = f"{cell['phase']}, {cell['count']} x {cell['tokens']}, vocabulary {cell['vocab']}, {cell['recompute']}"
    said = cell.get("failed") or cell.get("oom") or f"{cell['peak_gib']:.2f} GiB, reserved {cell['reserved_gib']:.2f}"
    return f"{', '.join([what, *more])}: {said}; planned {cell['planned_gib']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
