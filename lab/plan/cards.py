"""Published runs asked as a user asks, by a launch that names a recipe: `python lab plan/cards BRIDGE --release 0.7.0`.

BRIDGE is a checkout of Megatron-Bridge. Its model verification cards say command and mean time of a step of each
performance and weak-scaling run. Nothing is fitted to them. Exit 1 where one is refused, called illegal, or said not to
fit: all of them ran.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from program import parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions
from megatron_hcp.plan.answer import Judged, judge
from megatron_hcp.plan.from_launch import layout_of
from megatron_hcp.plan.question import question_of

_ITEMS = ("pretrain_performance", "pretrain_weak_scaling")
_LAUNCHER = re.compile(r"^\./scripts/training/train\.sh(?: --wait)? --nodes (\d+) --gpus-per-node (\d+)", re.ASCII)
"""Bridge's own launcher, and the script that it starts; the launcher itself is read only where its checkout lies."""


class Run(NamedTuple):
    """A run of a card: its command, seconds of a step, and the peak of allocated memory where it is published."""

    name: str
    gpu: str
    command: str
    seconds: float
    peak_gib: float | None


def runs_of(checkout: Path) -> Iterator[Run]:
    """The performance and weak-scaling runs of all cards."""
    for path in sorted(checkout.glob("examples/model_verification_cards/*/card.yaml")):
        items = yaml.safe_load(path.read_text())["items"]
        for item in _ITEMS:
            for gpu, run in items.get(item, {}).items():
                for point in run.get("points", [run]):
                    metrics = {**run.get("metrics", {}), **point.get("metrics", {})}
                    seconds = metrics["last_10_steps_step_time_ms_avg"] / 1000
                    name = f"{path.parent.name} {gpu}"
                    yield Run(name, gpu.lower(), point["command"], seconds, metrics.get("peak_allocated_memory_gib"))


def planned(run: Run, release: str) -> Judged:
    """What `hcp plan` says of the run's command.

    Raises:
        HcpError: it is refused.
    """
    command = _LAUNCHER.sub(
        r"torchrun --nnodes \1 --nproc-per-node \2 scripts/training/run_recipe.py", run.command.strip()
    )
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "run.sh"
        script.write_text(command + "\n")
        options = LoadOptions(assumes=(f"bridge={release}",))
        asked = question_of(str(script), options, {"gpu": run.gpu}, None, True)
    return judge(asked.model, layout_of(asked.facts, asked.job.seq_length), asked.job, asked.rates)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("bridge", type=Path)
    parser.add_argument("--release", default="0.7.0")
    words = parser.parse_args()
    errors, margins, within, faults = [], [], 0, 0
    for run in runs_of(words.bridge):
        try:
            found = planned(run, words.release)
        except HcpError as error:
            faults += 1
            print(f"refused: {run.name}: {error}")
            continue
        if found.time is None or found.memory is None:
            faults += 1
            print(f"illegal: {run.name}: {', '.join(found.rules)}")
            continue
        error, margin = found.time.seconds / run.seconds - 1, found.time.band
        faults += not found.fits
        within += abs(error) <= margin
        errors.append(abs(error))
        margins.append(margin)
        peak = f", {run.peak_gib:.1f} measured" if run.peak_gib else ""
        fits = "" if found.fits else "DOES NOT FIT "
        memory = f"{found.memory.peak:6.1f} of {found.usable_gib:.1f} GiB{peak}"
        print(f"{error:+7.1%} +-{margin:.0%} of {run.seconds:7.2f} s {fits}{memory}  {run.name}")
    errors.sort()
    print(
        f"{len(errors)} planned, {faults} refused, illegal or too large; median {statistics.median(errors):.1%}, "
        f"p90 {errors[int(0.9 * (len(errors) - 1))]:.1%}, max {errors[-1]:.1%}; {within} within the margin, whose "
        f"median is {statistics.median(margins):.0%}, {sum(margin > 0.4 for margin in margins)} above 40 %"
    )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
