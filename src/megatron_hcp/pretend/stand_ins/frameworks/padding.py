"""FlashAttention's own functions that take padding away and put it back, which verl asks for before any kernel."""

from __future__ import annotations

from typing import Any

import torch

from megatron_hcp.pretend.record import RECORD

STANDS_FOR = "flash_attn.bert_padding, where FlashAttention 2 is not installed: sequences without their padding"
CANNOT_TELL = "nothing of it: they compute the same"


def index_first_axis(tensor: Any, places: Any) -> Any:
    RECORD.used("flash_attn.bert_padding")
    return tensor[places]


def unpad_input(states: Any, mask: Any, unused: Any = None) -> Any:
    """The tokens that count, their places, where each sequence begins, the longest one, and each length.

    Args:
        states: [batch, length, ...]; mask, unused: [batch, length], of ones and zeros.
    """
    taken = mask if unused is None else mask + unused
    lengths = taken.sum(dim=-1, dtype=torch.int32)
    places = taken.flatten().nonzero().flatten()
    begins = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    used = mask.sum(dim=-1, dtype=torch.int32)
    return index_first_axis(states.flatten(0, 1), places), places, begins, int(lengths.max()), used


def pad_input(states: Any, places: Any, batch: int, length: int) -> Any:
    """[tokens, ...] at their places in [batch, length, ...]."""
    RECORD.used("flash_attn.bert_padding")
    whole = states.new_zeros(batch * length, *states.shape[1:])
    whole[places] = states
    return whole.unflatten(0, (batch, length))


def rearrange(tensor: Any, pattern: str, **sizes: int) -> Any:
    """As einops has it.

    Raises:
        ImportError: einops is not here.
    """
    from einops import rearrange as real

    return real(tensor, pattern, **sizes)


FUNCTIONS = (index_first_axis, pad_input, rearrange, unpad_input)
"""In the order in which verl takes them."""
