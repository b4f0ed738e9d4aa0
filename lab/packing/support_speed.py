"""`hcp support` as a whole process: `python lab packing/support_speed`. Wanted: under 0.5 s.

The command takes turns with `python -c 'import click, yaml'`, so that a change of the machine's speed shows in both.
Medians of wall-clock and CPU seconds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from families import FAMILIES
from program import at_least_one, parser_of


def seconds(arguments: list[str]) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one run."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(arguments, env=environment, stdout=subprocess.DEVNULL, check=True)
    taken, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=at_least_one, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        commands = {"python -c 'import click, yaml'": [sys.executable, "-c", "import click, yaml"]}
        for number, (family, config) in enumerate(FAMILIES.items()):
            file = Path(folder) / f"{number}.json"
            file.write_text(json.dumps(config), encoding="utf-8")
            commands[f"hcp support, {family}"] = [sys.executable, "-m", "megatron_hcp", "support", str(file)]
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(runs + 1):
            for name, command in commands.items():
                measured = seconds(command)
                if turn:  # the first compiles
                    taken[name].append(measured)
    for name, pairs in taken.items():
        wall, cpu = (statistics.median(values) for values in zip(*pairs))
        print(f"{name:50} {wall:6.3f} s, {cpu:6.3f} s of CPU")


if __name__ == "__main__":
    main()
