"""`hcp check` as a whole process against what it replaces: `python lab check`.

Commands take turns, so that a change in the machine's speed affects all alike; it prints medians and ratios. The
reference is importing megatron.core and building its config, the least that a launch does before it can complain
(without megatron-core installed, that row is omitted with a note).
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def seconds(arguments: list[str]) -> float:
    """Wall-clock seconds of one run that ends with a verdict; any other exit status is a bug in the benchmark."""
    # An installed hcp is byte-compiled by pip; a checkout must be allowed to be, or each run would compile it anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - started
    if done.returncode not in (0, 1, 4):
        sys.exit(f"{arguments} ended with {done.returncode}:\n{done.stderr}")
    return taken


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
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, arguments in commands.items():
            taken = seconds(arguments)
            if turn:  # the first round warms the caches
                times[name].append(taken)
    median = {name: statistics.median(values) for name, values in times.items()}
    base = median["python -c 'import click, yaml'"]
    reference = None
    if importlib.util.find_spec("megatron"):
        reference = statistics.median(seconds([python, "-c", BUILD_CONFIG]) for _ in range(3))
    for name, value in median.items():
        share = f"  {reference / value:6.1f}x faster than megatron-core's config" if reference else ""
        print(f"{value * 1000:8.0f} ms  {value / base:5.2f} x import click, yaml{share}  {name}")
    if reference:
        print(f"{reference * 1000:8.0f} ms  importing megatron.core and building its config")
    else:
        print("megatron-core is not installed: no ratio against it")
    with tempfile.TemporaryDirectory() as folder:
        text = (ROOT / "examples" / "mlm_hcp.sbatch").read_text(encoding="utf-8")
        files = []
        for number in range(300):
            file = Path(folder) / f"launch{number}.sbatch"
            file.write_text(text, encoding="utf-8")
            files.append(str(file))
        print(f"{min(seconds([*hcp, *files]) for _ in range(3)):8.2f} s   300 sbatch launches in one call")


if __name__ == "__main__":
    main()
