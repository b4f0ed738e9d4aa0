"""`hcp dcp calibrate`: measures this machine for dynamic-CP plans. A program in checks/ measures, with torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from megatron_hcp.cli.options import format_option
from megatron_hcp.cli.output import check_outputs
from megatron_hcp.cli.reports.json import dump
from megatron_hcp.cli.screen import say
from megatron_hcp.cost.cp_cost import COMM_TYPES, check_comm_type
from megatron_hcp.cost.model_sizes import ModelSizes, model_sizes
from megatron_hcp.cost.profile import Profile, read_profile
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.signals import ends_cleanly
from megatron_hcp.resources import pack_dir
from megatron_hcp.skills.processes import descendants


@click.command()
@click.option("--model", required=True, metavar="FILE", help="The model's config.json, or the folder that contains it.")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Write the profile here."
)
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Tensor-parallel size of the job.")
@click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="Pipeline-parallel size of the job.")
@click.option("--cp-comm-type", type=click.Choice(COMM_TYPES), default="p2p", show_default=True)
@click.option(
    "--inner", type=click.IntRange(1), default=1, show_default=True, help="a2a+p2p: ranks in the inner level."
)
@click.option(
    "--lengths", metavar="N,N,...", help="Sequence lengths to measure.  [default: 2048 to 32768; on a CPU 128 to 1024]"
)
@click.option(
    "--processes",
    default="auto",
    show_default=True,
    metavar="N|auto",
    help="Ranks to start here, unless RANK is set; auto: one per GPU, or one per core without GPUs.",
)
@format_option("text", "json")
def calibrate(
    model: str,
    out: Path,
    tp: int,
    pp: int,
    cp_comm_type: str,
    inner: int,
    lengths: str | None,
    processes: str,
    fmt: str,
) -> None:
    """Measure attention, linear layers and point-to-point bandwidth on this machine's GPUs (or CPU).

    Takes a few minutes. Under torchrun or srun (RANK is set), runs as one rank of the job; otherwise starts the ranks
    itself.

    \b
    hcp dcp calibrate --model config.json -o profile.json
    srun hcp dcp calibrate --model config.json --tp 2 -o profile.json
    """
    check_comm_type(cp_comm_type, (inner, 1))
    check_outputs({"-o": str(out)}, reads=(model,))
    sizes = _sizes_in(model)
    if sizes.heads % tp:
        raise HcpError(f"--tp {tp}: the model has {sizes.heads} attention heads", wanted="a divisor of them")
    words = ["--sizes", json.dumps(sizes._asdict()), "--out", str(out), "--tp", str(tp), "--pp", str(pp)]
    words += ["--cp-comm-type", cp_comm_type, "--inner", str(inner)]
    if lengths is not None:
        words += ["--lengths", _checked(lengths)]
    start = [sys.executable]
    _check_ranks(os.environ)
    if "RANK" not in os.environ:
        if processes != "auto" and not (processes.isdecimal() and len(processes) < 5 and 0 < int(processes) < 1025):
            raise HcpError(f"--processes {processes[:40]!r}:", wanted="a number up to 1024, or auto")
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    status = _run([*start, str(pack_dir("checks") / "dcp_calibrate.py"), *words])
    if status:
        raise HcpError(
            f"calibration ended with status {status}; the reason is above",
            wanted="torch installed and one process per rank: pip install '.[dcp]' in a checkout",
        )
    if os.environ.get("RANK", "0") != "0":
        return
    profile = read_profile(str(out))
    if fmt == "json":
        click.echo(dump(profile.as_json()))
    else:
        say([*_lines(profile), f"wrote {out}; use it with --profile"])


def _check_ranks(environment: Mapping[str, str]) -> None:
    """Refuses an environment that sets RANK without the rendezvous variables that torchrun sets with it."""
    if "RANK" not in environment:
        return
    wrong = [name for name in ("RANK", "WORLD_SIZE", "MASTER_PORT") if not environment.get(name, "").isdecimal()]
    wrong += [] if environment.get("MASTER_ADDR") else ["MASTER_ADDR"]
    if wrong:
        raise HcpError(
            f"RANK is set, but missing or invalid: {', '.join(wrong)}", do="start it with torchrun, or unset RANK"
        )


def _run(words: list[str]) -> int:
    """The exit status of a program; when this process is told to stop, the program and all its processes are ended."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with ends_cleanly():
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
        try:
            return started.wait()
        finally:
            # torchrun starts its workers in separate sessions, so we follow the process tree, not the process group.
            for process in (*descendants(started.pid), started.pid) if started.poll() is None else ():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def _sizes_in(path: str) -> ModelSizes:
    name = os.path.join(path, "config.json") if os.path.isdir(path) else path
    text = read_text(name, "a model's config.json")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise HcpError(
            f"{name}: found no JSON object", wanted="a model's config.json", do="give the one next to the weights"
        )
    return model_sizes(data)


def _checked(lengths: str) -> str:
    words = lengths.split(",")
    if not all(word.isascii() and word.isdecimal() and int(word[:9]) > 0 and len(word) < 9 for word in words):
        raise HcpError(f"--lengths {lengths[:40]!r}:", wanted="numbers of tokens such as 2048,4096")
    return lengths


def _lines(profile: Profile) -> list[str]:
    rates = profile.measured

    def bandwidth(name: str, alone: str) -> str:
        found = rates.get(f"{name}_bytes_per_s")
        return f"{found / 1e9:.2f} GB/s" if found else f"not measured ({alone})"

    return [
        f"measured on {profile.device}",
        f"linear work     {profile.linear_s:.3e} s per token",
        f"attention       {profile.quadratic_s:.3e} s per token squared",
        f"micro-batch     {profile.micro_batch_s:.3e} s of overhead each",
        f"send + receive  inside a node {bandwidth('inside', 'one rank')}, "
        f"between nodes {bandwidth('across', 'one node: taken as inside it')}",
    ]
