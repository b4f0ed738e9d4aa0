"""`hcp groups` of 65,536 ranks as a whole process, against megatron-core's generator alone: `python lab groups`.

The generator runs in a process that has imported megatron.core before the clock starts, and makes the same lists:
every dense and expert group, and the levels of each CP group by megatron-core's own expression. Commands take turns;
medians and ratios are printed. One rank's groups are timed in closed form, in this process and as a command; so is
one rank of 512,000,000,000, as a command, against one of 65,536.
Without megatron-core installed, its rows are omitted with a note.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time

from program import ROOT, at_least_one, parser_of

WORLD = 65_536
HCP_ARGS = ["--tp", "8", "--cp", "16", "--pp", "8", "--ep", "8", "--etp", "1", "--hcp", "8,2"]
HUGE = "512000000000"
HUGE_ARGS = ["--tp", "8", "--cp", "16", "--hcp", "2,8", "--rank", "511499999999"]
GENERATOR = f"""
import time, warnings
warnings.simplefilter("ignore")
import einops, numpy
from megatron.core.parallel_state import RankGenerator
started = time.perf_counter()
order = "tp-cp-ep-dp-pp"
dense = RankGenerator(tp=8, ep=1, dp={WORLD} // 1024, pp=8, cp=16, order=order)
expert = RankGenerator(tp=1, ep=8, dp={WORLD} // 64, pp=8, cp=1, order=order)
for token in ("dp-cp", "dp", "cp", "tp-pp", "tp", "pp", "tp-dp-cp", "tp-dp", "tp-cp"):
    dense.get_ranks(token)
for token in ("ep", "tp", "tp-ep", "tp-ep-pp", "dp"):
    expert.get_ranks(token)
axes = time.perf_counter() - started
for ranks in dense.get_ranks("cp"):
    for u, s, l in ((1, 8, 2), (8, 2, 1)):
        einops.rearrange(numpy.array(ranks), "(l s u) -> (l u) s", u=u, s=s, l=l).tolist()
print(axes, time.perf_counter() - started)
"""


def process(arguments: list[str]) -> tuple[float, str]:
    """Wall-clock seconds of one run, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    taken = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{arguments[:4]} ended with {done.returncode}:\n{done.stderr}")
    return taken, done.stdout


def closed_form_ms(world_size: int) -> float:
    """Milliseconds for all groups of one rank, in this process."""
    from megatron_hcp.core.kinds import kinds_at
    from megatron_hcp.core.ranks import grids_of

    taken = []
    for rank in range(world_size - 200, world_size):
        started = time.perf_counter()
        kinds_at(grids_of(world_size, tp=8, cp=16, pp=8, ep=8, etp=1), rank, (8, 2))
        taken.append(time.perf_counter() - started)
    return 1000 * statistics.median(taken)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=at_least_one, default=5)
    runs = parser.parse_args().runs
    groups = [sys.executable, "-m", "megatron_hcp", "groups", "--world-size"]
    hcp = [*groups, str(WORLD), *HCP_ARGS]
    one_rank = "hcp groups --rank 49999"
    commands = {
        "hcp groups, text": hcp,
        "hcp groups, JSON": [*hcp, "--format", "json"],
        one_rank: [*hcp, "--rank", "49999"],
        HUGE: [*groups, HUGE, *HUGE_ARGS],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    generator: dict[str, list[float]] = {"RankGenerator": [], "RankGenerator + levels": []}
    for turn in range(runs + 1):
        for name, arguments in commands.items():
            taken, _ = process(arguments)
            if turn:  # the first round warms the caches
                times[name].append(taken)
        if turn and importlib.util.find_spec("megatron"):
            _, printed = process([sys.executable, "-c", GENERATOR])
            for values, printed_value in zip(generator.values(), printed.split()[-2:]):
                values.append(float(printed_value))
    print(f"{WORLD} ranks, {' '.join(HCP_ARGS)}; medians of {runs} runs")
    median = {name: statistics.median(values) for name, values in (times | generator).items() if values}
    huge = median.pop(HUGE)
    base = median.get("RankGenerator")
    for name, value in median.items():
        print(f"  {name:<26} {value:8.3f} s" + (f"  {base / value:6.1f} x RankGenerator's speed" if base else ""))
    if base is None:
        print("  megatron-core is not installed: no reference")
    print(f"  one rank of {HUGE}, as a command: {huge:.3f} s, {huge / median[one_rank]:.2f} x `{one_rank}`")
    for world_size in (WORLD, 10**6 * WORLD):
        print(f"  one rank of {world_size}, closed form, in process: {closed_form_ms(world_size):.3f} ms")


if __name__ == "__main__":
    main()
