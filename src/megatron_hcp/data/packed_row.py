"""What is known about packed rows: how long their sequences are, and whether the loss counts padding.

A packed row is stored as Megatron-Bridge writes it: `input_ids`, `loss_mask` (shifted by one, so that entry i is about
the prediction of token i + 1) and `seq_start_id`. Training drops the last token of each sequence, which has no label:
a sequence of n stored tokens has n - 1 in training.
Source: Megatron-Bridge, megatron/bridge/data/packing/gpt_sft.py, GPTSFTPackedDataset.collate_fn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError

MAX_ROW = 16_000_000
"""Maximum tokens of a row."""


class PackedBatch(NamedTuple):
    """Rows that were read together. Lengths and widths are as in training, each with its number of occurrences."""

    rows: int
    lengths: Mapping[int, int]
    widths: Mapping[int, int]
    most_sequences: int
    """Most sequences in one row."""
    ends: Mapping[Hashable, int]
    """The tokens that end sequences; the most common one is the padding."""
    masked: Mapping[Hashable, int]
    """Padding tokens that the loss counts, by the token that ends the sequence."""
    place: Callable[[int], str]
    """The first sequence of each length."""


class Row(NamedTuple):
    """One row, in plain Python values; tokens and masks may be anything comparable."""

    tokens: Sequence[Hashable]
    mask: Sequence[int]
    """0 or 1 each."""
    starts: Sequence[int]


def batch_of(row: Row, name: str, number: int) -> PackedBatch:
    """The facts of one row.

    Raises:
        HcpError: its three parts are inconsistent.
    """
    where = f"{name}: row {number}"
    check_row(len(row.tokens), len(row.mask), row.starts, where)
    bounds = [*row.starts, len(row.tokens)]
    lengths = [end - start - 1 for start, end in pairwise(bounds)]
    ends: Counter[Hashable] = Counter()
    masked: Counter[Hashable] = Counter()
    for start, end in pairwise(bounds):
        last = row.tokens[end - 1]
        ends[last] += 1
        at = end - 2
        while at >= start and row.tokens[at] == last:
            masked[last] += row.mask[at]
            at -= 1
    return PackedBatch(
        1,
        Counter(lengths),
        {sum(lengths): 1},
        len(lengths),
        ends,
        masked,
        lambda length: f"row {number}, sequence {lengths.index(length)}",
    )


def check_row(tokens: int, mask: int, starts: Sequence[int], where: str) -> None:
    """Raises HcpError unless the mask is as long as the row and sequences of two or more tokens fill it from 0 on."""
    if tokens != mask:
        raise HcpError(
            f"{where}: {tokens} tokens and {mask} entries of loss_mask", wanted="equally many", do="pack the data again"
        )
    bounds = (*starts, tokens)
    if not starts or starts[0] != 0 or any(end - start < 2 for start, end in pairwise(bounds)):
        shown = ", ".join(map(str, starts[:4])) or "nothing"
        raise HcpError(
            f"{where}: seq_start_id {shown} in {tokens} tokens",
            wanted="0 and ascending places, two or more apart",
            do="pack the data again",
        )
