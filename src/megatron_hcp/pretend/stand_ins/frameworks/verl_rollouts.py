"""Made-up batches of verl's: a mini-batch of rollouts as its trainer pads them, and conversations without padding."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "the rollouts of one mini-batch, their rewards and advantages; a batch of the SFT trainer's data"
CANNOT_TELL = "the lengths of real prompts and answers, what the rollout engine returns beside tokens"

_PROMPT, _MOST, _TOKEN = 64, 2048, 2


def rollouts(config: Any, samples: int) -> Any:
    """verl's own batch type, of a data-parallel rank's samples: answers of two lengths."""
    RECORD.used("rollouts")
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


def conversations(config: Any, data_parallel: int) -> Any:
    """A batch of the SFT trainer's, of a data-parallel rank: conversations of two lengths, as its collator has them."""
    RECORD.used("conversations")
    data, longest = config.data, min(config.data.max_length, _MOST)
    samples = max(1, data.train_batch_size // data_parallel)
    lengths = [longest if sample % 2 == 0 else max(2, longest // 2) for sample in range(samples)]
    made = {
        "input_ids": [torch.full((length,), _TOKEN) for length in lengths],
        "position_ids": [torch.arange(length) for length in lengths],
        "loss_mask": [torch.ones(length, dtype=torch.int64) for length in lengths],
    }
    batch = {name: torch.nested.as_nested_tensor(each, layout=torch.jagged) for name, each in made.items()}
    told = {
        "use_remove_padding": config.model.use_remove_padding,
        "use_dynamic_bsz": data.use_dynamic_bsz,
        "max_token_len_per_gpu": data.max_token_len_per_gpu,
        "micro_batch_size_per_gpu": data.micro_batch_size_per_gpu,
        "temperature": 1.0,
        "global_batch_size": data.train_batch_size,
        "pad_mode": data.pad_mode,
        "pad_token_id": 0,
        "global_token_num": lengths * data_parallel,
    }
    return importlib.import_module("verl.utils.tensordict_utils").get_tensordict(batch, told)
