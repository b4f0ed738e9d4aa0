"""Speed: layouts that are legal but slow."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import has_window, over, smaller_divisors, type_fixes, under_cp, windowed_types
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import BRIDGE_MOE_DOC, TE_CONTEXT_PARALLEL, VERL_ENGINE_UTILS, VERL_MEGATRON_ACTOR
from megatron_hcp.rules.view import View

_SHORT = 1024
"""Tokens per rank below which communication is no longer hidden."""
_FEW_WINDOWS = 8
"""In a shorter sequence, measured in windows, gathering nearly everything is reasonable."""
_BUDGET = (
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
    "data.max_prompt_length=2048 data.max_response_length=14336"
)


def _is_a_test(v: View) -> bool:
    """Whether the launch is one of Megatron-LM's functional tests, which are small on purpose."""
    return v.launch.reading.form == "args-yaml"


def _is_dynamic(v: View) -> bool:
    from megatron_hcp.rules.dcp.view import is_dynamic

    return is_dynamic(v)


@rule(
    "PERF001",
    "info slow training",
    source=(BRIDGE_MOE_DOC.says("", "seq_len / 4096", ">=0.5"),),
    applies=under_cp(lambda v: v.launch.dialect in ("mlm", "bridge") and v.known("seq_length") and not _is_a_test(v)),
    good=Example("mlm", "--context-parallel-size 4 --seq-length 16384"),
    bad=Example("mlm", "--context-parallel-size 4 --seq-length 1024"),
)
def slices_are_long_enough(v: View) -> Problem | None:
    """A rank's part of the sequence is long enough to hide communication.

    Attention grows with the square of the sequence, the exchange of K and V linearly. Below about a thousand tokens per
    rank, matrix products are small and ring steps aren't hidden. Upstream's rule of thumb is one CP rank per 4096
    tokens.
    """
    length = v.seq_length
    if length is None or length >= _SHORT * v.cp:
        return None
    fits = [size for size in smaller_divisors(int(v.cp)) if length >= _SHORT * size]
    return Problem(
        message="each rank's part of the sequence is too short to hide communication behind attention",
        found=f"{length // v.cp} tokens per rank (seq_length {length} at context_parallel_size {v.cp})",
        wanted="about 4096 tokens per rank",
        facts=("cp", "seq_length"),
        fixes=tuple(Fix({"cp": size}, over("context", size)) for size in fits[:1]),
    )


@rule(
    "PERF002",
    "info note never",
    source=(
        VERL_MEGATRON_ACTOR.says(
            "MegatronPPOActor.update_policy",
            "self.config.ppo_max_token_len_per_gpu * self.config.megatron.context_parallel_size",
            ">=0.5,<0.8",
        ),
        VERL_ENGINE_UTILS.says("prepare_micro_batches", "max_token_len = max_token_len_per_gpu * sp_size", ">=0.8"),
    ),
    applies=under_cp(lambda v: v.dialect == "verl" and bool(v.get("use_dynamic_bsz")) and not _is_dynamic(v)),
    good=Example("verl", f"{_BUDGET} actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192"),
    bad=Example("verl", f"{_BUDGET} actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384"),
)
def token_budget_falls_with_cp(v: View) -> Problem | None:
    """CP that saves memory has fewer tokens per GPU than a whole sequence.

    verl multiplies the per-GPU budget by the CP size. A budget that holds the longest prompt and response without CP is
    used just as fully with it: micro-batches grow, and memory use doesn't fall. The budgets of the log-probability
    passes are multiplied, too.
    """
    prompt, response = v.max_prompt_length, v.max_response_length
    if prompt is None or response is None:
        return None
    from megatron_hcp.rules.verl.view import token_budgets

    # A default wasn't chosen for this length.
    large = [budget for budget in token_budgets(v) if budget.is_stated and budget.tokens >= prompt + response]
    if not large:
        return None
    enough = -(-(prompt + response) // v.cp)
    return Problem(
        message=f"the per-GPU limit stays the same under context parallelism: verl builds micro-batches with {v.cp} "
        "times as many tokens, and memory use doesn't fall",
        found=f"{' and '.join(f'{budget.key} {budget.tokens}' for budget in large)} can hold a whole sequence of"
        f" {prompt} + {response} tokens at context_parallel_size {v.cp}",
        wanted=f"about {enough} tokens per GPU, if CP is meant to save memory (verl-project/verl#3415)",
        facts=(*(budget.fact for budget in large), "cp", "max_prompt_length", "max_response_length"),
        fixes=(Fix({budget.fact: enough for budget in large}, f"a micro-batch holds {enough * int(v.cp)} tokens"),),
    )


@rule(
    "PERF003",
    "info slow training",
    source=(TE_CONTEXT_PARALLEL.says("AttnFuncWithCPAndKVAllGather.forward", "gather_along_first_dim", ">=2.4"),),
    applies=under_cp(lambda v: "all_gather" in str(v.get("cp_comm_type")) and has_window(v)),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --cp-comm-type a2a --window-size 1024,0 --seq-length 16384 --num-attention-heads 8",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather --window-size 1024,0 --seq-length 16384"),
)
def windows_are_not_gathered_whole(v: View) -> Problem | None:
    """Layers with a short window don't gather the whole sequence.

    all_gather brings K and V of the whole sequence to every rank before attention, however short the window, and this
    isn't overlapped with anything. An all-to-all moves 1/CP of that.
    """
    if "all_gather" not in windowed_types(v):
        return None
    left, length = v.window_size[0], v.seq_length
    if length is None or left < 0 or length < _FEW_WINDOWS * (left + 1):
        return None
    return Problem(
        message="every rank gathers K and V of the whole sequence for a short window, without any overlap",
        found=f"all_gather in layers with a window of {left + 1} tokens at seq_length {length}",
        wanted="a2a, if the head counts are divisible by the CP size (NVIDIA/Megatron-LM#2222)",
        facts=("cp_comm_type", "window_size", "seq_length"),
        fixes=type_fixes(v, "a2a"),
    )
