"""Checks packed data against the launch that is to train on it: lengths that cannot be split, rows too long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from math import gcd
from typing import Any, Literal, NamedTuple

from megatron_hcp.core.shards import round_up
from megatron_hcp.data.packed_row import PackedBatch

Severity = Literal["error", "warning"]


class DataNeeds(NamedTuple):
    """What a launch requires of its data, in tokens."""

    cp: int
    tp: int
    sequence_multiple: int
    """Multiple for each padded sequence in a packed row: 2 x cp."""
    row_multiple: int
    """Multiple for a whole row: also tp x cp under sequence parallelism."""
    row: int | None = None
    """Tokens of a packed row or of a sample; None if the launch does not state it."""
    padded_to: int | None = None
    """The multiple to which the launch itself pads sequences; None if it pads none or its recipe decides."""
    is_packed: bool = True
    """Whether the launch packs. If not, sequences are concatenated and cut into samples, whatever their lengths."""
    reads_metadata: bool = False
    """Whether Megatron-Bridge takes sizes from the metadata file (pad_cu_seqlens)."""


class Fault(NamedTuple):
    """Something that breaks the launch or wastes tokens. `occurrences` counts it; `place` is the first one."""

    rule: str | None
    """The rule about the same fault in a launch."""
    severity: Severity
    message: str
    found: str
    wanted: str
    do: str
    occurrences: int
    place: str = ""


class PackReport(NamedTuple):
    """What was read, and its faults."""

    rows: int
    sequences: int
    tokens: int
    longest: int
    widest: int
    narrowest: int
    most_sequences: int
    divisor: int
    """The greatest number that divides every length."""
    faults: tuple[Fault, ...]
    padding: int = 0
    """Tokens by which the launch itself pads these sequences, in total."""

    @property
    def num_errors(self) -> int:
        return sum(fault.severity == "error" for fault in self.faults)


class _Count:
    """How often a fault occurs, and where first."""

    def __init__(self) -> None:
        self.count, self.length, self.place = 0, 0, ""

    def add(self, length: int, times: int, place: str) -> None:
        if not self.count:
            self.length, self.place = length, place
        self.count += times


class _Tally:
    def __init__(self, needs: DataNeeds) -> None:
        self.needs = needs
        self.rows = self.sequences = self.tokens = self.longest = self.widest = self.most = self.divisor = 0
        self.narrowest = self.padding = 0
        self.uneven, self.too_long, self.too_wide, self.lost = _Count(), _Count(), _Count(), 0
        self.ends: Counter[Hashable] = Counter()
        self.masked: Counter[Hashable] = Counter()

    def add(self, batch: PackedBatch) -> None:
        needs, first = self.needs, self.rows
        self.rows += batch.rows
        self.most = max(self.most, batch.most_sequences)
        for length, times in batch.lengths.items():
            self.sequences += times
            self.tokens += length * times
            self.longest = max(self.longest, length)
            self.divisor = gcd(self.divisor, length)
            if needs.row is not None and length > needs.row and not batch.rows:
                self.too_long.add(length, times, "" if self.too_long.count else batch.place(length))
                self.lost += (length - needs.row) * times
            padded = length if batch.rows or needs.padded_to is None else round_up(length, needs.padded_to)
            self.padding += (padded - length) * times
            if padded % needs.sequence_multiple:
                self.uneven.add(padded, times, "" if self.uneven.count else batch.place(length))
        for width, times in batch.widths.items():
            self.widest = max(self.widest, width)
            self.narrowest = min(self.narrowest or width, width)
            if needs.row is not None and width > needs.row:
                self.too_wide.add(
                    width, times, f"rows {first} to {self.rows - 1}" if batch.rows > 1 else f"row {first}"
                )
        _merge(self.ends, batch.ends)
        _merge(self.masked, batch.masked)


_MOST_ENDS = 4096


def _merge(into: Counter[Hashable], more: Mapping[Hashable, int]) -> None:
    """Adds counts; if too many different tokens end sequences, drops the rare ones, which are not padding."""
    into.update(more)
    if len(into) > 2 * _MOST_ENDS:
        kept = into.most_common(_MOST_ENDS)
        into.clear()
        into.update(dict(kept))


def judge(
    batches: Iterable[PackedBatch], needs: DataNeeds, is_packed: bool, metadata: Mapping[str, int] | None
) -> PackReport:
    """Reads all batches, and reports what the launch cannot train on.

    Args:
        batches: the data.
        needs: the launch.
        is_packed: whether the batches are packed rows.
        metadata: the largest values of Megatron-Bridge's metadata file, by name; None without one.
    """
    tally = _Tally(needs)
    for batch in batches:
        tally.add(batch)
    faults = (
        [*_of_rows(tally, needs), *_of_metadata(tally, needs, metadata)] if is_packed else _of_lengths(tally, needs)
    )
    return PackReport(
        tally.rows, tally.sequences, tally.tokens, tally.longest, tally.widest, tally.narrowest, tally.most,
        tally.divisor, tuple(faults), tally.padding,
    )  # fmt: skip


def _of_rows(tally: _Tally, needs: DataNeeds) -> Iterable[Fault]:
    wanted = needs.sequence_multiple
    if tally.uneven.count:
        yield Fault(
            "PACK001", "error",
            "sequences do not divide into the chunks of context parallelism: some tokens reach no rank, others two",
            f"{tally.uneven.count:,} of {tally.sequences:,} sequences are not a multiple of {wanted}; the first has "
            f"{tally.uneven.length:,} tokens; all are multiples of {tally.divisor:,}",
            f"multiples of {wanted} (2 x cp)",
            f"pack again with pad_seq_to_mult={needs.row_multiple}",
            tally.uneven.count, tally.uneven.place,
        )  # fmt: skip
    if tally.too_wide.count:
        yield Fault(
            None, "error", "rows are longer than the launch's: Megatron-Bridge's assertion stops the first batch",
            f"{tally.too_wide.count:,} of {tally.rows:,} rows have more than {needs.row:,} tokens; the widest has "
            f"{tally.widest:,}",
            f"rows of at most {needs.row:,}",
            f"set packed_sequence_size={round_up(tally.widest, needs.row_multiple)}, or pack again",
            tally.too_wide.count, tally.too_wide.place,
        )  # fmt: skip
    if needs.row is not None and needs.row % needs.row_multiple:
        yield _odd_row(needs)
    padding, _ = max(tally.ends.items(), key=lambda item: item[1], default=(None, 0))
    masked = tally.masked.get(padding, 0)
    if masked:
        yield Fault(
            "LOSS001", "warning",
            "the loss mask counts padding: Megatron-Bridge drops it if it is the tokenizer's eos_id; any other "
            "reader trains on it",
            f"loss_mask 1 on {masked:,} tokens of padding",
            "0 on padding",
            "store loss_mask with the samples instead of answer_start_idx, and pack again",
            masked,
        )  # fmt: skip


def _odd_row(needs: DataNeeds) -> Fault:
    return Fault(
        "PACK001", "error", "rows do not divide evenly among the ranks: the first batch fails, or tokens are lost",
        f"rows of {needs.row:,} tokens at cp {needs.cp} and tp {needs.tp}",
        f"a multiple of {needs.row_multiple}",
        f"set packed_sequence_size={round_up(needs.row or 0, needs.row_multiple)}",
        1,
    )  # fmt: skip


_METADATA = {
    "max_samples_per_bin": "sequences in a row",
    "dataset_max_seqlen": "tokens in the longest sequence",
    "pack_size": "tokens in the widest row",
}


def _of_metadata(tally: _Tally, needs: DataNeeds, metadata: Mapping[str, int] | None) -> Iterable[Fault]:
    """Whether the metadata file contradicts the data, because it belongs to another packing."""
    if metadata is None:
        return
    held = {
        "max_samples_per_bin": tally.most, "dataset_max_seqlen": tally.longest, "pack_size": tally.widest,
    }  # fmt: skip
    for name, what in _METADATA.items():
        if name in metadata and metadata[name] < held[name]:
            yield Fault(
                None, "error" if needs.reads_metadata or name == "pack_size" else "warning",
                "the metadata file belongs to another packing: shapes taken from it are too small",
                f"{name} {metadata[name]:,}, and {held[name]:,} {what} in the data",
                f"at least {held[name]:,}",
                "give the metadata file that was written with these rows, or pack again",
                1,
            )  # fmt: skip
    size = metadata.get("pack_size")
    if size is not None and needs.row is not None and size < needs.row:
        yield Fault(
            None, "warning", "the data was packed into shorter rows: the rest of each row is padding",
            f"pack_size {size:,}, and the launch's rows have {needs.row:,} tokens",
            f"pack_size {needs.row:,}",
            "pack again, or set packed_sequence_size to the value it was packed with",
            1,
        )  # fmt: skip


def _of_lengths(tally: _Tally, needs: DataNeeds) -> Iterable[Fault]:
    """Faults of sequences that the launch itself packs, pads or concatenates."""
    if not needs.is_packed:
        return
    if tally.uneven.count:
        pads = f"pads to {needs.padded_to}" if needs.padded_to is not None else "pads none"
        yield Fault(
            "PACK002", "error",
            "sequences do not divide into the chunks of context parallelism: some tokens reach no rank, others two",
            f"{tally.uneven.count:,} of {tally.sequences:,} sequences would not be a multiple of "
            f"{needs.sequence_multiple} (the launch {pads})",
            f"multiples of {needs.sequence_multiple} (2 x cp)",
            f"set pad_seq_to_mult={needs.row_multiple}",
            tally.uneven.count, tally.uneven.place,
        )  # fmt: skip
    if tally.too_long.count:
        yield Fault(
            None, "warning", "sequences are longer than a row: they are truncated or dropped",
            f"{tally.too_long.count:,} of {tally.sequences:,} sequences have more than {needs.row:,} tokens, in total "
            f"{tally.lost:,} too many",
            f"at most {needs.row:,}",
            "lengthen the rows, or drop these deliberately",
            tally.too_long.count, tally.too_long.place,
        )  # fmt: skip


def report_json(report: PackReport, needs: DataNeeds, kind: str, name: str) -> dict[str, Any]:
    """The report as plain data, `hcp.pack-check/1`."""
    return {
        "schema": "hcp.pack-check/1",
        "ok": not report.num_errors,
        "data": {"name": name, "kind": kind},
        "launch": {
            "cp": needs.cp, "tp": needs.tp, "sequence_multiple": needs.sequence_multiple,
            "row_multiple": needs.row_multiple, "row": needs.row, "padded_to": needs.padded_to,
            "packs": needs.is_packed,
        },
        "rows": report.rows, "sequences": report.sequences, "tokens": report.tokens,
        "longest": report.longest, "widest": report.widest, "narrowest": report.narrowest,
        "most_sequences": report.most_sequences, "divisor": report.divisor, "padding": report.padding,
        "faults": [fault._asdict() for fault in report.faults],
    }  # fmt: skip
