"""What Transformer Engine's kernels do with every call of the matrix: `python lab te/gpu [--release 2.20.2] [-o FILE]`.

The cuDNN cells of `proofs.te_cpu`, through the installed DotProductAttention with context parallelism on 4 ranks, in
bfloat16, forward and backward, against one process in float64. One GPU is enough: the ranks share it and exchange
through the CPU. Each outcome stands beside that of the same release's Python over our stand-ins, of
lab/results/te_cpu.json: a cell that differs is a fault of the stand-ins, or of the kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from program import ROOT, parser_of
from te_record import by_release

from megatron_hcp.ground.json_layout import laid_out
from megatron_hcp.proofs.procs import WorkerFailure, run_workers

SIZES = (2, 2)
RANKS = SIZES[0] * SIZES[1]
STRETCH = 16
"""Chunks of at least 64 tokens, as the kernels want them."""
BOUND = 0.05
"""The largest difference to float64, relative to the tensor's largest value: bfloat16 stays below 0.02, a row that was
computed wrongly differs by about 1."""
CASE_S, STALL_S = 45, 600.0


class Cell(NamedTuple):
    """A case, with the tokens of padding of its packed sequences, where they are not the usual ones."""

    case: Any
    padding: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.case}, padding {' '.join(map(str, self.padding))}" if self.padding else str(self.case)


class Outcome(NamedTuple):
    verdict: str
    text: str = ""
    largest: float | None = None


def main() -> int:
    from megatron_hcp.proofs.te_cpu.case import every_case

    parser = parser_of(__doc__)
    parser.add_argument("--release", help="whose record is compared (default: the installed one's)")
    parser.add_argument("-o", "--output", type=Path, help="write the outcomes as JSON")
    parser.add_argument("--start", nargs="+", default=[""], help="only cells whose name starts like one of these")
    parser.add_argument(
        "--padding", type=_padding, nargs="+", default=[()],
        help="of the padded cells: tokens of padding at the end of the three sequences, of which a rank has two chunks "
        "of 32, 64 and 16 each, as in 16,16,48; several are several cells",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=1800, help="after which the other cells are left out")
    options = parser.parse_args()
    from importlib.metadata import version

    release = options.release or version("transformer-engine")
    cases = [case for case in every_case() if case.flash == 0 and str(case).startswith(tuple(options.start))]
    cells = [Cell(case, padding) for case in cases for padding in (options.padding if case.is_padded else [()])]
    found = _outcomes(cells, time.monotonic() + options.seconds)
    said = by_release(json.loads((ROOT / "lab/results/te_cpu.json").read_text(encoding="utf-8"))).get(release, {})
    shown: dict[str, dict[str, Any]] = {}
    for cell, outcome in zip(cells, found):
        shown[str(cell)] = {name: value for name, value in outcome._asdict().items() if value}
        entry = said.get(str(cell.case))
        stand_in = entry.verdict if entry else "not recorded"
        if not (outcome.verdict == stand_in or {outcome.verdict, stand_in} <= {"refused", "fails"}):
            print(f"differs: {cell}: kernels {outcome.verdict}, stand-ins {stand_in}; {outcome.text}"[:300], flush=True)
    counts = Counter(cell["verdict"] for cell in shown.values())
    print(release, dict(sorted(counts.items())), f"{len(shown)} of {len(cells)} cells")
    if options.output:
        record = {"schema": "hcp.te-gpu/1", "release": release, **_machine(), "cells": shown}
        options.output.write_text(laid_out(record) + "\n", encoding="utf-8")
    return 0


def _padding(text: str) -> tuple[int, ...]:
    """Three numbers of tokens."""
    words = text.split(",")
    if len(words) != 3 or not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}: wanted three numbers with commas between, such as 16,16,48")
    return tuple(map(int, words))


def _machine() -> dict[str, str]:
    import torch

    cudnn = torch.backends.cudnn.version() or 0
    numbers = f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
    return {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cudnn": numbers}


def _outcomes(cases: list[Cell], until: float) -> list[Outcome]:
    """Of each case the worst of its ranks' outcomes; one that ends the processes is named, and the rest goes on."""
    found: list[Outcome] = []
    while len(found) < len(cases) and time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
            failure = ""
            try:
                run_workers(lambda rank: _work(cases[len(found) :], rank, Path(folder), until), RANKS, STALL_S)  # noqa: B023
            except WorkerFailure as error:
                failure = str(error).strip().splitlines()[-1]
            diaries = [Path(folder, f"rank-{rank}.jsonl") for rank in range(RANKS)]
            lines = [path.read_text().splitlines() if path.exists() else [] for path in diaries]
        done = [_worst([Outcome(*json.loads(line)) for line in of_ranks]) for of_ranks in zip(*lines)]
        found += done
        if (failure or not done) and len(found) < len(cases):
            print(f"   ended its processes: {cases[len(found)]} {failure}"[:300], flush=True)
            found.append(Outcome("hangs" if failure else "fails", failure or "a CUDA error"))
    return found


def _worst(outcomes: list[Outcome]) -> Outcome:
    order = ("fails", "refused", "wrong", "right")
    worst = min(outcomes, key=lambda outcome: order.index(outcome.verdict))
    measured = [outcome.largest for outcome in outcomes if outcome.largest is not None]
    return worst._replace(largest=max(measured) if len(measured) == len(outcomes) else None)


def _work(cases: list[Cell], rank: int, folder: Path, until: float) -> None:
    import torch
    import torch.distributed as dist

    from megatron_hcp.proofs import shared_gpu
    from megatron_hcp.proofs.te_cpu.execute import build_levels

    os.environ.update(NVTE_FLASH_ATTN="0", NVTE_FUSED_ATTN="1", NVTE_UNFUSED_ATTN="0")
    shared_gpu.register()
    torch.cuda.set_device(0)
    store = dist.FileStore(str(folder / "store"), RANKS)
    limit = timedelta(seconds=CASE_S)
    dist.init_process_group(shared_gpu.BACKEND, store=store, rank=rank, world_size=RANKS, timeout=limit)
    levels = build_levels(SIZES, rank)
    stream = torch.cuda.Stream()
    with Path(folder, f"rank-{rank}.jsonl").open("w", encoding="utf-8") as diary:
        for case in cases:
            signal.alarm(2 * CASE_S)  # ends this process wherever it waits
            outcome = _outcome(case, levels, rank, stream)
            if "CUDA error" in outcome.text:  # nothing runs on this GPU any more in this process
                return
            is_late = torch.tensor(int(time.monotonic() > until))
            dist.all_reduce(is_late)
            print(json.dumps(outcome), file=diary, flush=True)
            if is_late:
                break
    signal.alarm(0)
    dist.destroy_process_group()


def _outcome(case: Cell, levels: Any, rank: int, stream: Any) -> Outcome:
    from megatron_hcp.proofs.te_cpu.execute import result_of_error

    try:
        return _computed(case, levels, rank, stream)
    except Exception as error:
        verdict, text, _ = result_of_error(error)
        return Outcome(verdict, text[:200])


def _computed(cell: Cell, levels: Any, rank: int, stream: Any) -> Outcome:
    import torch
    import transformer_engine.pytorch as te

    from megatron_hcp.proofs.te_cpu.case import HEAD_DIM, Inputs
    from megatron_hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS

    case = cell.case
    inputs = Inputs(case, RANKS, STRETCH, cell.padding or None)
    rows, dim, has_sinks = inputs.rows_of(rank), DIM_OF_TOKENS[case.format], case.feature == "sinks"
    mask = "causal" if case.is_causal else "no_mask"
    if case.format == "thd":
        mask = "padding_causal" if case.is_causal else "padding"
    attention = te.DotProductAttention(
        inputs.heads, (inputs.head_dim, HEAD_DIM), num_gqa_groups=inputs.kv_heads, qkv_format=case.format,
        attn_mask_type=mask, window_size=case.window, softmax_scale=inputs.scale,
        **({"softmax_type": "learnable"} if has_sinks else {}),
    )  # fmt: skip
    if has_sinks:
        with torch.no_grad():
            attention.softmax_offset.copy_(inputs.sinks.view(attention.softmax_offset.shape))
    group = [levels.inner, levels.outer] if case.comm == "a2a+p2p" else levels.whole
    attention.set_context_parallel_group(group, list(range(RANKS)), stream, case.comm, **_strategy(case))
    leaves = [
        x.index_select(dim, rows).to("cuda", torch.bfloat16).contiguous().requires_grad_()
        for x in (inputs.q, inputs.k, inputs.v)
    ]
    packed: dict[str, Any] = {}
    if case.format == "thd":
        real, padded = (inputs.cu_seqlens(padded=flag).cuda() for flag in (False, True))
        packed = {
            "cu_seqlens_q": real, "cu_seqlens_kv": real.clone(), "cu_seqlens_q_padded": padded,
            "cu_seqlens_kv_padded": padded.clone(), "max_seqlen_q": max(inputs.padded),
            "max_seqlen_kv": max(inputs.padded), "pad_between_seqs": case.is_padded,
        }  # fmt: skip
        if case.feature == "no load balance":  # which wants the same tensors for queries and keys
            packed.update(cu_seqlens_kv=packed["cu_seqlens_q"], cu_seqlens_kv_padded=packed["cu_seqlens_q_padded"])
    out = attention(*leaves, attn_mask_type=mask, window_size=case.window, **packed)
    out.backward(inputs.dout.index_select(dim, rows).to("cuda", torch.bfloat16).view(out.shape))
    counts = inputs.counts[rows].nonzero()[:, 0]
    found = [out.detach(), *(leaf.grad for leaf in leaves)]
    errors = []
    for ours, whole in zip(found, inputs.expected[:4]):
        theirs = whole.index_select(dim, rows)
        difference = (ours.double().cpu().view(theirs.shape) - theirs).index_select(dim, counts)
        largest = difference.abs().nan_to_num(nan=torch.inf).max() if difference.numel() else torch.tensor(0.0)
        errors.append(float(largest / whole.abs().max()))
    note = ""
    if has_sinks:
        note, error = _of_sinks(attention.softmax_offset.grad.double().cpu().view(-1), inputs.expected[4].view(-1))
        errors.append(error)
    return Outcome("right" if max(errors) <= BOUND else "wrong", note, max(errors))


def _of_sinks(gradient: Any, expected: Any) -> tuple[str, float]:
    """How far the ranks' sum, or this rank's own gradient where that is nearer, is from the gradient of the sinks."""
    import torch.distributed as dist

    from megatron_hcp.proofs.te_cpu.execute import WHOLE_GRADIENT

    summed = gradient.clone()
    dist.all_reduce(summed)
    share, whole = (float((x - expected).abs().max() / expected.abs().max()) for x in (summed, gradient))
    return (WHOLE_GRADIENT if whole < share else ""), min(share, whole)


def _strategy(case: Any) -> dict[str, Any]:
    if case.feature != "no load balance":
        return {}
    with contextlib.suppress(ImportError):
        from transformer_engine.pytorch.attention.dot_product_attention.context_parallel import CPLoadBalancingStrategy

        return {"load_balancing_strategy": CPLoadBalancingStrategy.NO_LOAD_BALANCE}
    raise AssertionError("this release has no such argument")


if __name__ == "__main__":
    sys.exit(main())
