"""`hcp pack check`: reads packed data and reports what a launch cannot train on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from megatron_hcp.cli.dcp.cost import launch_facts
from megatron_hcp.cli.options import format_option, launch_options
from megatron_hcp.cli.packing.needs import needs_of
from megatron_hcp.cli.screen import ProgressLine, say
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

_METADATA = ("max_samples_per_bin", "dataset_max_seqlen", "pack_size")


@click.command()
@click.argument("data", metavar="DATA")
@click.option("--launch", "target", metavar="TARGET", help="The launch, as for `hcp check`.")
@click.option("--metadata", metavar="FILE", help="Megatron-Bridge's metadata file of these rows (JSON).")
@click.option("--field", metavar="NAME", help="JSON and parquet that are not packed: the field with the length.")
@launch_options
@format_option("text", "json")
def check(
    data: str, target: str | None, metadata: str | None, field: str | None, options: LoadOptions, fmt: str
) -> int:
    """Check whether a launch can train on packed data, by reading the data itself.

    DATA is a file packed by Megatron-Bridge (parquet or .npy; never unpickled), packed rows as JSONL, sequence lengths
    (numbers, JSON, JSONL, parquet), or Megatron's .bin with its .idx.

    \b
    hcp pack check training_4096.idx.parquet --launch run.yaml
    hcp pack check rows.npy --metadata metadata.json --launch run.yaml --assume tp=2
    hcp pack check lengths.jsonl -- --context-parallel-size 4 --sft --seq-length 8192

    Exit codes: 0 the launch can train on the data, 1 it cannot, 2 the data or the launch could not be used.
    """
    from megatron_hcp.data.pack_report import judge, report_json
    from megatron_hcp.data.packed import open_packed
    from megatron_hcp.ground.visible import visible

    needs = needs_of(launch_facts(target, options))
    sizes = None if metadata is None else _sizes(metadata)
    line = ProgressLine(first_s=0.2, pause_s=0.2)
    try:
        with open_packed(data, field, _progress(line, data)) as stream:
            report = judge(stream.batches, needs, stream.is_packed, sizes)
            kind = stream.kind
            if not report.sequences:
                raise HcpError(
                    f"{visible(data)}: {kind}, and not one", wanted="data to judge", do="name the file that has it"
                )
    finally:
        line.clear()
    if fmt == "json":
        from megatron_hcp.cli.reports.json import dump

        sys.stdout.write(dump(report_json(report, needs, kind, data)) + "\n")
        sys.stdout.flush()
    else:
        from megatron_hcp.cli.reports.pack import check_lines

        say(check_lines(report, needs, kind, data))
    return int(report.num_errors > 0)


def _progress(line: ProgressLine, path: str) -> Callable[[int], None]:
    """What to call with the number of bytes that were read of the file; without its size, nothing is shown."""
    try:
        size = os.path.getsize(path)
    except (OSError, ValueError):
        size = 0
    return lambda read: line.show(f"{min(100, 100 * read // size)} %") if size else None


def _sizes(path: str) -> dict[str, int]:
    """The largest of each size in Megatron-Bridge's metadata file, a list with one object per packed data set."""
    from megatron_hcp.ground.files import read_text
    from megatron_hcp.ground.schema import Fields, ListOf, checked, whole
    from megatron_hcp.ground.visible import visible

    text = read_text(path, "Megatron-Bridge's metadata of packed rows")
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise HcpError(f"--metadata {visible(path)}: not JSON", wanted="the metadata of packed rows") from None
    size = whole(0, 10**12)
    fields = Fields(optional=dict.fromkeys(_METADATA, size), others=True)
    checked(entries, ListOf(fields, "a list with an object for each packed data set", least=1), path)
    return {name: max(entry[name] for entry in entries if entry.get(name)) for name in _METADATA
            if any(entry.get(name) for entry in entries)}  # fmt: skip
