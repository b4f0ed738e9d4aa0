"""slime and miles: what their own arguments require, and what a token budget means under CP."""

from __future__ import annotations

import re

from megatron_hcp.core.shards import round_up
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    MILES_ARGUMENTS,
    OPTIMIZER_PARAM_SCHEDULER,
    SLIME_ARGUMENTS,
    SLIME_DATA,
    SLIME_MEGATRON_ARGUMENTS,
    SLIME_MODEL,
    SLIME_SCHEDULE,
)
from megatron_hcp.rules.view import View

_JOB = (
    "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --context-parallel-size 2 --rollout-batch-size 32 "
    "--n-samples-per-prompt 8 --rollout-max-response-len 8192 "
)
_BY_TOKENS = f"{_JOB}--use-dynamic-batch-size --max-tokens-per-gpu 9216"


def _is_slime(v: View) -> bool:
    return v.launch.dialect == "slime"


@rule(
    "SLIME001",
    "error crash config",
    source=(
        SLIME_ARGUMENTS.says("slime_validate_args", "max_tokens_per_gpu must be set when", ">=0.2"),
        MILES_ARGUMENTS.says("miles_validate_args", "max_tokens_per_gpu must be set when", ">=0.1"),
    ),
    applies=lambda v: _is_slime(v) and bool(v.batches_by_tokens),
    good=Example("slime", _BY_TOKENS),
    bad=Example("slime", f"{_JOB}--use-dynamic-batch-size"),
)
def batches_by_tokens_have_a_budget(v: View) -> Problem | None:
    """Micro-batches by tokens have a token budget.

    --use-dynamic-batch-size has no budget by default; both programs assert that one is set before they start a worker.
    The budget is per rank: a micro-batch holds CP times as many tokens.
    """
    if v.max_tokens_per_gpu is not None:
        return None
    longest = v.get("rollout_max_response_len")
    size = round_up(-(-(longest or 8192) // v.get("cp", 1)), 128)
    return Problem(
        message="micro-batches are formed by tokens, but no budget is set: start-up fails",
        found="use_dynamic_batch_size and no max_tokens_per_gpu",
        wanted="--max-tokens-per-gpu, about the longest sample / CP",
        facts=("max_tokens_per_gpu", "batches_by_tokens"),
        fixes=(Fix({"max_tokens_per_gpu": size}, f"{size} tokens per rank"),),
    )


@rule(
    "SLIME002",
    "info note training",
    source=(
        SLIME_SCHEDULE.says("build_dp_schedule", "args.max_tokens_per_gpu * cp_size", ">=0.3"),
        SLIME_ARGUMENTS.says("get_slime_extra_args_provider", "`max_response_len // cp_size`", ">=0.2"),
    ),
    applies=lambda v: (
        _is_slime(v)
        and bool(v.batches_by_tokens)
        and v.max_tokens_per_gpu is not None
        and v.rollout_max_response_len is not None
    ),
    good=Example("slime", _BY_TOKENS),
    bad=Example("slime", _BY_TOKENS.replace("9216", "2048")),
)
def budget_holds_the_longest_answer(v: View) -> Problem | None:
    """The token budget times CP has room for the longest answer.

    A sample longer than the budget isn't rejected: it becomes its own micro-batch, above the budget. Memory then runs
    out at the first long answer, not at start-up.
    """
    budget = v.max_tokens_per_gpu * v.cp
    if budget >= v.rollout_max_response_len:
        return None
    size = round_up(-(-v.rollout_max_response_len // v.cp), 128)
    return Problem(
        message="longer samples exceed the budget, which then no longer limits memory",
        found=f"max_tokens_per_gpu {v.max_tokens_per_gpu} x CP {v.cp} = {budget} tokens, answers of up to "
        f"{v.rollout_max_response_len}",
        wanted=f"max_tokens_per_gpu of about {size}, or more context parallelism",
        facts=("max_tokens_per_gpu", "rollout_max_response_len", "cp"),
        fixes=(Fix({"max_tokens_per_gpu": size}, f"{size} tokens per rank"),),
    )


@rule(
    "SLIME003",
    "error crash config",
    source=(
        SLIME_ARGUMENTS.says("slime_validate_args", "{args.global_batch_size} is not equal to ", ">=0.2"),
        MILES_ARGUMENTS.says("miles_validate_args", "{args.global_batch_size} is not equal to ", ">=0.1"),
    ),
    applies=lambda v: _is_slime(v) and v.steps_per_rollout is not None and v.global_batch_size is not None,
    good=Example("slime", f"{_JOB}--num-steps-per-rollout 2 --global-batch-size 128"),
    bad=Example("slime", f"{_JOB}--num-steps-per-rollout 2 --global-batch-size 256"),
)
def batch_is_that_of_the_steps(v: View) -> Problem | None:
    """A stated global batch size equals the samples per step of a rollout.

    A rollout has rollout_batch_size x n_samples_per_prompt samples. With num_steps_per_rollout both programs compute
    the batch size of a step, and fail if a different one is stated.
    """
    if None in (v.rollout_batch_size, v.samples_per_prompt):
        return None
    size = v.rollout_batch_size * v.samples_per_prompt // v.steps_per_rollout
    if v.global_batch_size == size:
        return None
    return Problem(
        message="the global batch size differs from the computed batch size per step: start-up fails",
        found=f"global_batch_size {v.global_batch_size}, {v.rollout_batch_size} prompts x {v.samples_per_prompt} "
        f"answers in {v.steps_per_rollout} steps",
        wanted=f"{size}, or no global_batch_size",
        facts=("global_batch_size", "steps_per_rollout", "rollout_batch_size", "samples_per_prompt"),
        fixes=(Fix({"global_batch_size": size}, f"{size} samples per step"),),
    )


@rule(
    "SLIME004",
    "error crash config",
    source=(
        MILES_ARGUMENTS.says("miles_validate_args", "Dynamic batch size is not supported for bshd format", ">=0.1"),
        SLIME_ARGUMENTS.says("slime_validate_args", "Dynamic batch size is not supported for bshd format", "==0.2.4"),
    ),
    applies=lambda v: _is_slime(v) and v.get("qkv_format") == "bshd",
    good=Example("slime", f"{_BY_TOKENS} --qkv-format thd"),
    bad=Example("slime", f"{_BY_TOKENS} --qkv-format bshd"),
)
def rows_by_tokens_are_packed(v: View) -> Problem | None:
    """Micro-batches by tokens are packed rows.

    In bshd each row is one sequence, padded to a common length; micro-batches are then counted in rows, with
    --micro-batch-size.
    """
    if not v.batches_by_tokens:
        return None
    return Problem(
        message="micro-batches of unpacked rows cannot be formed by tokens: start-up fails",
        found="qkv_format bshd and use_dynamic_batch_size",
        wanted="qkv_format thd, or micro-batches by number of sequences",
        facts=("qkv_format", "batches_by_tokens"),
        fixes=(
            Fix({"qkv_format": "thd"}, "packed rows"),
            Fix({"batches_by_tokens": None}, "micro-batches by number of sequences"),
        ),
    )


_DENSE = re.compile(
    r"qwen|llama|glm-?4|gpt-?oss|mimo|minimax|moonlight|kimi|gemma|deepseek-(r1|v3(?!\.2))", re.IGNORECASE
)
"""Names of checkpoints whose attention isn't sparse, unlike DeepSeek-V3.2's and GLM-5's."""


def _checkpoint(v: View) -> str:
    """The Hugging Face checkpoint that the launch names; "" without one."""
    values = [setting.value for setting in v.launch.reading.settings if setting.key == "hf_checkpoint"]
    return " ".join(map(str, values[-1])) if values else ""


@rule(
    "SLIME005",
    "error crash config",
    source=(
        SLIME_MEGATRON_ARGUMENTS.says(
            "_validate_allgather_cp_supported", "DSA attention models (DeepSeek-V3.2 and GLM-5.1)", ">=0.3"
        ),
        SLIME_DATA.says("get_batch", "if allgather_cp:", ">=0.2.3"),
    ),
    applies=lambda v: _is_slime(v) and bool(v.get("allgather_cp")) and v.get("cp") != 1 and not v.known("miles"),
    good=Example("slime", f"{_JOB}--hf-checkpoint Qwen/Qwen3-8B"),
    bad=Example("slime", f"{_JOB}--hf-checkpoint Qwen/Qwen3-8B --allgather-cp"),
)
def only_sparse_attention_gathers(v: View) -> Problem | None:
    """Only models with sparse attention (DSA) train with --allgather-cp.

    It gives each rank one contiguous piece of the row. The attention of other models is Transformer Engine's, which
    takes a rank's tokens for two zigzag slices. slime rejects this from 0.3 on.
    """
    name = _checkpoint(v)
    if not _DENSE.search(name):
        return None
    silent = v.known("slime") and not v.at_least("slime", "0.3")
    return Problem(
        message="attention silently takes contiguous pieces of the row for zigzag slices: the order of tokens is lost"
        if silent
        else "slime rejects --allgather-cp for a model without sparse attention: start-up fails",
        found=f"allgather_cp at context_parallel_size {v.cp} with {name}",
        wanted="no allgather_cp",
        facts=("cp", "allgather_cp"),
        fixes=(Fix({"allgather_cp": False}, "zigzag slices"),),
        effect="silent" if silent else None,
        stage="never" if silent else None,
    )


_UNTRAINED = ("debug_rollout_only", "lr_decay_iters")
"""Options with which no number of steps is computed, or not the schedule's length."""


@rule(
    "SLIME006",
    "error crash init",
    source=(
        SLIME_MODEL.says("get_optimizer_param_scheduler", "// args.global_batch_size", ">=0.2.2"),
        SLIME_ARGUMENTS.says(
            "slime_validate_args",
            "args.rollout_batch_size * args.n_samples_per_prompt % args.global_batch_size == 0",
            ">=0.2,<0.2.2",
        ),
        OPTIMIZER_PARAM_SCHEDULER.says("OptimizerParamScheduler.__init__", "assert self.lr_decay_steps > 0", ">=0.12"),
    ),
    applies=lambda v: (
        v.launch.dialect == "slime" and (v.get("num_rollout") or 0) > 0 and v.get("global_batch_size") is not None
    ),
    good=Example("slime", f"{_JOB}--num-rollout 1 --global-batch-size 256"),
    bad=Example("slime", f"{_JOB}--num-rollout 1 --global-batch-size 512"),
)
def rollouts_fill_a_training_step(v: View) -> Problem | None:
    """All rollouts together fill at least one training step.

    slime divides the samples of the run by the batch size and gives the result to the learning rate's schedule, which
    asserts that it is positive, without a message. Before 0.2.2 slime's own argument check refuses such a batch first,
    with one.
    """
    if v.known("slime") and not v.at_least("slime", "0.2.2"):
        return None
    if any(setting.key in _UNTRAINED for setting in v.launch.reading.settings):
        return None
    if None in (v.rollout_batch_size, v.samples_per_prompt):
        return None
    samples = v.num_rollout * v.rollout_batch_size * v.samples_per_prompt
    if samples >= v.global_batch_size:
        return None
    return Problem(
        message="the rollouts don't fill one training step: building the learning rate's schedule fails, an assertion "
        "without a message",
        found=f"{v.num_rollout} rollouts x {v.rollout_batch_size} prompts x {v.samples_per_prompt} answers = "
        f"{samples}, global_batch_size {v.global_batch_size}",
        wanted=f"a global_batch_size of at most {samples}, or more rollouts (THUDM/slime#2366)",
        facts=("num_rollout", "global_batch_size", "rollout_batch_size", "samples_per_prompt"),
        fixes=(
            Fix(
                {"num_rollout": -(-v.global_batch_size // max(1, v.rollout_batch_size * v.samples_per_prompt))},
                "rollouts for one step",
            ),
        ),
    )
