"""`hcp check` as a whole process against what it replaces: `python lab check`.

Commands take turns, so that a change in the machine's speed affects all alike; it prints medians and ratios, and exits
with 1 if a bar is missed: one check takes at most 1.7 times the CPU time of importing click and yaml, and each further
launch of the same call a twentieth of that time. Both are ratios, so they hold on a busy machine too; on an idle one, a
call with 300 launches then takes about 1 s. Those launches differ in their sizes, or are copies of one.

The reference for wall-clock time is importing megatron.core and building its config, the least that a launch does
before it can complain (without megatron-core installed, that row is omitted with a note).
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from program import ROOT, at_least_one, parser_of

BUILD_CONFIG = (
    "from megatron.core.transformer.transformer_config import TransformerConfig;"
    "TransformerConfig(num_layers=2, hidden_size=64, num_attention_heads=4, context_parallel_size=4,"
    "cp_comm_type='a2a+p2p', hierarchical_context_parallel_sizes=[2, 2])"
)
RENDER = (
    "-m megatron_hcp render --start srun --nodes 2 --gpus-per-node 8 --time 1:00:00 --arch sm90 --account a "
    "--partition p --program pretrain_gpt.py --checkpoint-dir /ckpt/run -- --context-parallel-size 4 "
    "--micro-batch-size 1 --save /ckpt/run"
)


ONE_CHECK = 1.7
FURTHER_LAUNCH = 0.05
"""The bars, as multiples of importing click and yaml."""
LAUNCHES = 300
KEPT = "of a folder that the cache answers"
VARIED = {
    "--tensor-model-parallel-size": (1, 2, 4, 8),
    "--seq-length": (8192, 16384, 32768, 65536, 131072),
    "--global-batch-size": (16, 32, 64, 128, 256, 512, 1024),
}
"""Options of the example, and what launches that differ have instead of its value."""


class Taken(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def seconds(arguments: list[str]) -> Taken:
    """The time of one run that ends with a verdict; any other exit status is a bug in the benchmark."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    # An installed hcp is byte-compiled by pip; a checkout must be allowed to be, or each run would compile it anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode not in (0, 1, 4):
        sys.exit(f"{arguments} ended with {done.returncode}:\n{done.stderr}")
    return Taken(wall, cpu)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=at_least_one, default=11)
    runs = parser.parse_args().runs
    python, hcp = sys.executable, [sys.executable, "-m", "megatron_hcp", "check"]
    commands = {
        "python -c 'import click, yaml'": [python, "-c", "import click, yaml"],
        "hcp check examples/bridge_hcp.yaml": [*hcp, "examples/bridge_hcp.yaml"],
        "hcp check examples/mlm_hcp.sbatch": [*hcp, "examples/mlm_hcp.sbatch"],
        "hcp check -- (a command line)": [*hcp, "--", "--context-parallel-size", "4", "--cp-comm-type", "a2a+p2p"],
        "hcp render (a command line)": [python, *RENDER.split()],
    }
    times: dict[str, list[Taken]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, arguments in commands.items():
            taken = seconds(arguments)
            if turn:  # the first round warms the caches
                times[name].append(taken)
    median = {name: statistics.median(taken.wall for taken in runs) for name, runs in times.items()}
    least = {name: min(taken.cpu for taken in runs) for name, runs in times.items()}
    base, *_ = commands
    reference = None
    if importlib.util.find_spec("megatron"):
        reference = statistics.median(seconds([python, "-c", BUILD_CONFIG]).wall for _ in range(3))
    missed = 0
    for name, value in median.items():
        share = f"  {reference / value:6.1f}x faster than megatron-core's config" if reference else ""
        ratio = least[name] / least[base]
        bar = _bar(ratio, ONE_CHECK) if name.startswith("hcp check") else ""
        missed += "missed" in bar
        print(f"{value * 1000:8.0f} ms  {ratio:5.2f} x import click, yaml{bar}{share}  {name}")
    if reference:
        print(f"{reference * 1000:8.0f} ms  importing megatron.core and building its config")
    else:
        print("megatron-core is not installed: no ratio against it")
    cases = (("copies of one", {}), ("that differ", VARIED), ("of a folder", VARIED), (KEPT, VARIED))
    for kind, variants in cases:
        taken = many(hcp, variants, as_folder="folder" in kind, is_kept=kind == KEPT)
        ratio = (taken.cpu - least["hcp check examples/mlm_hcp.sbatch"]) / (LAUNCHES - 1) / least[base]
        bar = _bar(ratio, FURTHER_LAUNCH)
        missed += "missed" in bar
        print(
            f"{taken.cpu:8.2f} s CPU for {LAUNCHES} launches {kind} in one call; each further {ratio:.3f} x import{bar}"
        )
    sys.exit(1 if missed else 0)


def many(
    hcp: list[str], variants: Mapping[str, Sequence[int]], *, as_folder: bool = False, is_kept: bool = False
) -> Taken:
    """The least time of one call with many launches, in which options have other values in turn.

    `as_folder`: hcp finds them itself, its walk included. `is_kept`: a call before has left its answers in the cache.
    """
    text = (ROOT / "examples" / "mlm_hcp.sbatch").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(LAUNCHES):
            launch = text
            for option, values in variants.items():
                launch = re.sub(rf"{option} \d+", f"{option} {values[number % len(values)]}", launch)
            file = Path(folder) / f"launch{number}.sbatch"
            file.write_text(launch, encoding="utf-8")
            files.append(str(file))
        named = [folder] if as_folder else files
        if not is_kept:
            named.append("--no-cache")
        return min((seconds([*hcp, *named]) for _ in range(3)), key=lambda taken: taken.cpu)


def _bar(ratio: float, most: float) -> str:
    return f" ({'ok' if ratio <= most else 'missed'}: at most {most})"


if __name__ == "__main__":
    main()
