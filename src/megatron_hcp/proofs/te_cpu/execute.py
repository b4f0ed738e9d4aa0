"""Runs cases through a release's own attn_forward_func_with_cp on gloo processes, and reports each outcome."""

from __future__ import annotations

import inspect
import json
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from megatron_hcp.proofs.procs import WorkerFailure, run_workers
from megatron_hcp.proofs.te_cpu.case import AttentionCall, Inputs
from megatron_hcp.proofs.te_cpu.choose import why_not_chosen
from megatron_hcp.proofs.te_cpu.cuda import STREAM
from megatron_hcp.proofs.te_cpu.layouts import DIM_OF_TOKENS
from megatron_hcp.proofs.te_cpu.load import Release, load, use_flash

BOUND = 1e-5
"""The largest difference that still counts as
right. The sums are float64 (some 1e-15), but old releases sum a ring's blocks in
float32 (some 1e-7). A wrong row differs by about 1."""
COLLECTIVE_S, CASE_S = 15.0, 40
HANG_S = 120.0
"""Guards against hangs, not speed limits: for a collective, for a case, and for each 20 cases of a batch."""
WHOLE_GRADIENT = "every rank holds the whole gradient of the sinks, where a weight's is a share"


class CaseResult(NamedTuple):
    """The outcome of a case.

    verdict: "right", "wrong" (silently, a result other than that of one process), "refused" (upstream says so in
    words of its own), "fails" (an error that was not meant for the user), "hangs", "not executed".
    """

    verdict: str
    text: str = ""
    largest: float | None = None
    """The largest difference of output and gradients, over all ranks."""


class Result(NamedTuple):
    """A case: what the choice of backend says, and what the attention does if that choice is bypassed."""

    case: AttentionCall
    not_chosen: str
    """Why DotProductAttention would not take this kernel; empty if it would."""
    outcome: CaseResult

    @property
    def verdict(self) -> str:
        """What a user of DotProductAttention experiences."""
        unknown = self.outcome.verdict == "not executed"
        return "refused" if self.not_chosen and not unknown else self.outcome.verdict


class Levels(NamedTuple):
    """The process groups of a worker: the whole CP group, and the two levels of a2a+p2p."""

    whole: dist.ProcessGroup
    inner: dist.ProcessGroup
    outer: dist.ProcessGroup


def run_release(folder: Path, cases: Sequence[AttentionCall], sizes: tuple[int, int] = (2, 2)) -> list[Result]:
    """Runs all cases of a release on inner x outer new processes; a hang is stopped, named, and not repeated.

    Raises:
        HcpError: there is no release in the folder.
        WorkerFailure: the release cannot be imported here.
    """
    limit = HANG_S * (2 + len(cases) / 20)
    return run_workers(lambda _: _run_imported(load(folder), cases, sizes), 1, limit)[0]  # type: ignore[no-any-return]


def _run_imported(release: Release, cases: Sequence[AttentionCall], sizes: tuple[int, int]) -> list[Result]:
    outcomes: list[CaseResult] = []
    while len(outcomes) < len(cases):
        done = _batch(release, cases[len(outcomes) :], sizes)
        if not done:  # the next case kills its processes, so it runs alone and nothing else is blamed
            done = [_alone(release, cases[len(outcomes)], sizes)]
        outcomes += done
    return [Result(case, why_not_chosen(release, case), outcome) for case, outcome in zip(cases, outcomes)]


def _batch(release: Release, cases: Sequence[AttentionCall], sizes: tuple[int, int]) -> list[CaseResult]:
    """The outcomes up to the first case that the ranks did not finish together."""
    by_rank, _ = _on_ranks(release, cases, sizes)
    return [_agreed(outcomes) for outcomes in zip(*by_rank)]


def _alone(release: Release, case: AttentionCall, sizes: tuple[int, int]) -> CaseResult:
    by_rank, failure = _on_ranks(release, [case], sizes)
    if all(by_rank):
        return _agreed([outcomes[0] for outcomes in by_rank])
    return CaseResult("hangs", failure.splitlines()[-1] if failure else "not all ranks leave the attention")


def _on_ranks(
    release: Release, cases: Sequence[AttentionCall], sizes: tuple[int, int]
) -> tuple[list[list[CaseResult]], str]:
    """How far each rank got, and why it stopped early."""
    size, failure = sizes[0] * sizes[1], ""
    with tempfile.TemporaryDirectory(prefix="hcp-") as folder:
        try:
            run_workers(
                lambda rank: _work(release, cases, sizes, rank, Path(folder)), size, HANG_S * (1 + len(cases) / 20)
            )
        except WorkerFailure as error:
            failure = str(error)
        diaries = [Path(folder, f"rank-{rank}.jsonl") for rank in range(size)]
        lines = [diary.read_text().splitlines() if diary.exists() else [] for diary in diaries]
    return [[CaseResult(*json.loads(line)) for line in diary] for diary in lines], failure


def _work(release: Release, cases: Sequence[AttentionCall], sizes: tuple[int, int], rank: int, folder: Path) -> None:
    """Writes down the outcome of each case as soon as all ranks have finished it."""
    levels = join_ranks(sizes, rank, folder)
    with Path(folder, f"rank-{rank}.jsonl").open("w", encoding="utf-8") as diary:
        for case in cases:
            signal.alarm(CASE_S)  # kills this process wherever it is waiting
            outcome = run_case(release, case, levels, sizes[0] * sizes[1])
            try:  # otherwise ranks that disagree would mix up their cases
                has_failed = _anywhere(outcome.verdict == "fails")
            except RuntimeError:
                return
            print(json.dumps(outcome), file=diary, flush=True)
            if has_failed:  # messages may still be in flight
                levels = build_levels(sizes, rank)
    signal.alarm(0)
    dist.destroy_process_group()


def join_ranks(sizes: tuple[int, int], rank: int, folder: Path) -> Levels:
    """Joins inner x outer processes over Gloo, which find each other in the folder; the groups of this one."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    size, timeout = sizes[0] * sizes[1], timedelta(seconds=COLLECTIVE_S)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timeout)
    return build_levels(sizes, rank)


def build_levels(sizes: tuple[int, int], rank: int) -> Levels:
    """The groups of a rank: neighbours are the inner level, ranks `inner size` apart the outer one."""
    inner, outer = sizes
    ranks = torch.arange(inner * outer).view(outer, inner)
    whole = dist.new_group(ranks.flatten().tolist())
    inners = [dist.new_group(row) for row in ranks.tolist()]
    outers = [dist.new_group(column) for column in ranks.T.tolist()]
    return Levels(whole, inners[rank // inner], outers[rank % inner])


def run_case(
    release: Release, case: AttentionCall, levels: Levels, cp_size: int, between: Callable[[], None] = lambda: None
) -> CaseResult:
    """Forward and backward on this rank, with a call in between."""
    inputs = Inputs(case, cp_size)
    rows, dim = inputs.rows_of(dist.get_rank()), DIM_OF_TOKENS[case.format]
    try:
        given = arguments_of(release, case, inputs, levels)
        leaves, sinks = [given[name] for name in "qkv"], given.get("softmax_offset")
        out = release.context_parallel.attn_forward_func_with_cp(**given)
        between()
        out.backward(inputs.dout.index_select(dim, rows).view(out.shape))
    except Exception as error:
        return result_of_error(error)
    counts = inputs.counts[rows]
    found, expected = (
        [out.detach(), *(leaf.grad for leaf in leaves)],
        [x.index_select(dim, rows) for x in inputs.expected[:4]],
    )
    largest = max(
        _largest((ours.view(theirs.shape) - theirs).index_select(dim, counts.nonzero()[:, 0]))
        for ours, theirs in zip(found, expected)
    )
    note = ""
    if sinks is not None:
        assert sinks.grad is not None
        share, whole = _share_or_whole(sinks.grad, inputs.expected[4], levels.whole)
        note, largest = WHOLE_GRADIENT if whole < share else "", max(largest, min(share, whole))
    return CaseResult("right" if largest <= BOUND else "wrong", note, largest)


def arguments_of(
    release: Release, case: AttentionCall, inputs: Inputs, levels: Levels, dtype: torch.dtype = torch.float64
) -> dict[str, Any]:
    """What this rank gives to attn_forward_func_with_cp: its rows of q, k and v as leaves, everything else by name.

    Raises:
        NotInRelease, NotExecuted: the release has no such argument; no stand-in exists.
    """
    use_flash(release, case.flash)
    rows, dim = inputs.rows_of(dist.get_rank()), DIM_OF_TOKENS[case.format]
    leaves = [x.index_select(dim, rows).to(dtype).contiguous().requires_grad_() for x in (inputs.q, inputs.k, inputs.v)]
    cu_seqlens, padded = inputs.cu_seqlens(padded=False), inputs.cu_seqlens(padded=True)
    no_balance = case.feature == "no load balance"  # which wants the same tensors for queries and keys
    longest = max(inputs.padded)
    mask = "causal" if case.is_causal else "no_mask"
    if case.format == "thd":
        mask = "padding_causal" if case.is_causal else "padding"
    given: dict[str, Any] = {
        "is_training": True,
        "cu_seqlens_q": cu_seqlens,
        "cu_seqlens_kv": cu_seqlens if no_balance else cu_seqlens.clone(),
        "max_seqlen_q": longest,
        "max_seqlen_kv": longest,
        "cu_seqlens_q_padded": padded,
        "cu_seqlens_kv_padded": padded if no_balance else padded.clone(),
        "dropout_p": 0.0,
        "cp_group": [levels.inner, levels.outer] if case.comm == "a2a+p2p" else levels.whole,
        "cp_global_ranks": list(range(inputs.cp_size)),
        "cp_stream": STREAM,
        "cp_comm_type": case.comm,
        "softmax_scale": inputs.scale,
        "qkv_format": case.format,
        "attn_mask_type": mask,
        "attn_bias_type": "no_bias",
        "deterministic": True,
        "use_fused_attention": case.flash == 0,
        "window_size": case.window,
    }
    known = inspect.signature(release.context_parallel.attn_forward_func_with_cp).parameters
    newer = {
        "pad_between_seqs": (case.is_padded, False),
        "use_flash_attn_3": (case.flash == 3, False),
        "softmax_type": ("learnable" if case.feature == "sinks" else "vanilla", "vanilla"),
        "load_balancing_strategy": (_strategy(release, no_balance), None),
    }
    for name, (value, default) in newer.items():
        if name in known:
            given[name] = value
        elif name == "use_flash_attn_3" and value:
            raise NotExecuted("2.1 knows FlashAttention 3 as flashattn-hopper, another interface: no stand-in")
        elif value != default and name != "pad_between_seqs":  # 2.1 reads the boundaries itself
            raise NotInRelease(f"no argument {name}")
    if case.feature == "sinks":
        given["softmax_offset"] = inputs.sinks.clone().requires_grad_()
    return given | dict(zip("qkv", leaves))


class NotInRelease(Exception):
    """The release has no such argument or feature."""


class NotExecuted(Exception):
    """No stand-in exists, so what the release does is unknown."""


def _strategy(release: Release, no_balance: bool) -> Any:
    strategies = getattr(release.context_parallel, "CPLoadBalancingStrategy", None)
    if strategies is None:
        return "no load balance" if no_balance else None
    return strategies.NO_LOAD_BALANCE if no_balance else strategies.DUAL_CHUNK_SWAP


def result_of_error(error: Exception) -> CaseResult:
    """What an exception of the release means for its user."""
    text = (str(error).splitlines() or [""])[0]
    if isinstance(error, NotExecuted):
        return CaseResult("not executed", text)
    place = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, (AssertionError, NotInRelease)) or (place.line or "").startswith("raise "):
        return CaseResult("refused", text or f"assert in {place.name}: {place.line}")
    return CaseResult("fails", f"{type(error).__name__}: {text} (in {place.name})")


def _anywhere(flag: bool) -> bool:
    """Whether it is true on any rank."""
    count = torch.tensor(int(flag))
    dist.all_reduce(count)
    return bool(count)


def _agreed(outcomes: Sequence[CaseResult]) -> CaseResult:
    """The worst of the ranks' outcomes."""
    order = ("not executed", "fails", "refused", "wrong", "right")
    worst = min(outcomes, key=lambda outcome: order.index(outcome.verdict))
    measured = [outcome.largest for outcome in outcomes if outcome.largest is not None]
    return worst._replace(largest=max(measured)) if len(measured) == len(outcomes) else worst._replace(largest=None)


def _largest(difference: torch.Tensor) -> float:
    if not difference.numel():
        return 0.0
    return float(difference.abs().nan_to_num(nan=torch.inf).max())


def _share_or_whole(gradient: torch.Tensor, expected: torch.Tensor, group: dist.ProcessGroup) -> tuple[float, float]:
    """How far the ranks' sum (right for a weight) and this rank's own part are from the gradient."""
    summed = gradient.clone()
    dist.all_reduce(summed, group=group)
    return _largest(summed - expected), _largest(gradient - expected)
