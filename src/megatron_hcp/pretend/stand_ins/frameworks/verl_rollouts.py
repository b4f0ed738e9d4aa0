"""Made-up answers of verl's rollouts: one mini-batch of a data-parallel rank, padded as its trainer has it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "the rollouts of one mini-batch, their rewards and advantages"
CANNOT_TELL = "the lengths of real prompts and answers, what the rollout engine returns beside tokens"

_PROMPT, _MOST, _TOKEN = 64, 2048, 2


def rollouts(config: Any, data_parallel: int) -> Any:
    """verl's own batch type, of a data-parallel rank's samples: answers of two lengths."""
    RECORD.used("rollouts")
    part = config.actor_rollout_ref
    samples = max(1, part.actor.ppo_mini_batch_size * part.rollout.n // data_parallel)
    longest = min(config.data.max_response_length, _MOST)
    mask = torch.ones(samples, longest, dtype=torch.int64)
    mask[1::2, max(1, longest // 2) :] = 0
    attention = torch.cat((torch.ones(samples, _PROMPT, dtype=torch.int64), mask), 1)
    numbers = torch.zeros(samples, longest)
    tensors = {
        "prompts": torch.full((samples, _PROMPT), _TOKEN),
        "responses": mask * _TOKEN,
        "input_ids": attention * _TOKEN,
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
        **dict.fromkeys(("old_log_probs", "ref_log_prob", "rollout_log_probs"), numbers - 1.0),
        "advantages": numbers + 0.5,
    }
    teacher = config.get("distillation")
    if teacher is not None and teacher.enabled:
        shape = (*attention.shape, teacher.distillation_loss.topk or 1)
        tensors |= {"teacher_logprobs": torch.zeros(shape) - 1.0, "teacher_ids": torch.zeros(shape, dtype=torch.int64)}
    return importlib.import_module("verl").DataProto.from_single_dict(tensors)
