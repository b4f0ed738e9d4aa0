"""Made-up answers of slime's rollouts, scheduled over ranks and micro-batches by slime's own functions."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from types import SimpleNamespace
from typing import Any

from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "the rollouts of one step, and the rewards"
CANNOT_TELL = "the lengths of real answers, what the rollout engine returns beside tokens"

_PROMPT, _MOST, _TOKEN = 64, 2048, 2
_WHOLE = ("total_lengths", "raw_reward")
"""Lists that each rank has of all samples; of the others it has its own."""


def rollouts(args: Any, config: dict[str, int]) -> list[Any]:
    """For each data-parallel rank what its actor is given: of one step, as many micro-batches as the pipeline needs."""
    RECORD.used("rollouts")
    data, ranks = _samples(args), config["dp_size"]
    try:
        schedule: Any = importlib.import_module("slime.utils.dp_schedule").build_dp_schedule
    except ModuleNotFoundError:  # until 0.2.4 the actor makes micro-batches of what it is given, all of a batch
        tokens = (getattr(args, "max_tokens_per_gpu", None) or 0) * args.context_parallel_size
        fits = max(1, tokens // max(data["total_lengths"])) if args.use_dynamic_batch_size else args.micro_batch_size
        args.global_batch_size = min(args.global_batch_size, 2 * args.pipeline_model_parallel_size * fits * ranks)
        shares = (range(rank, args.global_batch_size, ranks) for rank in range(ranks))
        return [SimpleNamespace(inner=_of_samples(data, list(share))) for share in shares]
    indices = next(name for name in inspect.signature(schedule).parameters if name.endswith("_indices"))
    parts, batches, counts, sizes = schedule(
        args,
        config,
        data["total_lengths"],
        global_batch_size=args.global_batch_size,
        **{indices: data["rollout_ids"]},  # of a group's samples, in 0.3.0
    )
    group = config["microbatch_group_size_per_vp_stage"] if config["vpp_size"] > 1 else 1
    few = min(counts[0], max(args.pipeline_model_parallel_size, group))
    given = [_of_rank(data, part, places[:few], sizes[0]) for part, places in zip(parts, batches)]
    return [SimpleNamespace(inner=one) for one in given]


def _samples(args: Any) -> dict[str, list[Any]]:
    """Answers of two lengths, as many as one step takes."""
    longest = min(getattr(args, "rollout_max_response_len", None) or _MOST, _MOST)
    lengths = [longest // (1 + number % 2) for number in range(args.global_batch_size)]
    numbers = list(range(len(lengths)))
    return {
        "tokens": [[_TOKEN] * (_PROMPT + length) for length in lengths],
        "response_lengths": lengths,
        "total_lengths": [_PROMPT + length for length in lengths],
        "rewards": [float(number % 2) for number in numbers],
        "raw_reward": [float(number % 2) for number in numbers],
        "truncated": [0] * len(lengths),
        "loss_masks": [[1] * length for length in lengths],
        **dict.fromkeys(("rollout_ids", "group_ids", "sample_indices"), numbers),
        **dict.fromkeys(("rollout_mask_sums", "group_mask_sums"), lengths),
        "rollout_log_probs": [[-1.0] * length for length in lengths],
        "teacher_log_probs": [[-1.0] * length for length in lengths],
    }


def _of_samples(data: dict[str, list[Any]], part: list[int]) -> dict[str, Any]:
    found = {name: values if name in _WHOLE else [values[one] for one in part] for name, values in data.items()}
    return {**found, "partition": part}


def _of_rank(data: dict[str, list[Any]], part: list[int], batches: list[list[int]], size: int) -> dict[str, Any]:
    found = _of_samples(data, part[: sum(map(len, batches))])
    found |= {"global_batch_sizes": [size], "num_microbatches": [len(batches)], "micro_batch_indices": batches}
    with contextlib.suppress(ModuleNotFoundError):  # until 0.3.0 the actor makes tensors itself
        importlib.import_module("slime.observability.rollout_data_utils").tensorize_rollout_data_for_training(found)
    return found
