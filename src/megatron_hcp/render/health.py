"""Node health checks before training: what a job runs on every node, and what their results mean.

`python -m render.health --nodes N` reads one tab-separated line per node and check: the node, the check, its exit
code, and its last line of output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from megatron_hcp.job.health import judge, read_answers


class HealthCheck(NamedTuple):
    """A command that every node runs; 0 means fit, 126 and 127 mean not run, any other code means unfit.

    `in_job`: it needs the job's Python, so it runs in the job's container; other checks run on the node itself.
    """

    name: str
    words: tuple[str, ...]
    in_job: bool = False


# Uncorrected errors since the driver was loaded, and memory rows whose remapping is pending or failed.
_NVIDIA_SMI = """set -o pipefail
command -v nvidia-smi >/dev/null || exit 127
{ nvidia-smi --query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv,noheader,nounits &&
    echo rows && nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure \\
        --format=csv,noheader,nounits; } |
    awk -F ", *" '/^rows$/ { rows = 1; next }
        !rows && $2 + 0 > 0 { print "GPU " $1 " has " $2 " uncorrected ECC errors"; bad = 1 }
        rows && $2 $3 ~ /[1-9]|Yes/ { print "GPU " $1 " has memory rows whose remapping is pending or failed"; bad = 1 }
        END { exit bad }'
"""
# nvidia_resiliency_ext.shared_utils.health_check also returns True if it could not look.
_NVRX = """import sys
try:
    from nvidia_resiliency_ext.shared_utils.health_check import GPUHealthCheck
except ImportError as error:
    print(error)
    sys.exit(127)
check = GPUHealthCheck()
if not check.enabled:
    print("NVRx cannot check GPUs here: it needs pynvml and driver 570 or later")
    sys.exit(127)
sys.exit(0 if check() else "NVRx: a GPU needs a reset, or its node a reboot")"""
# Each node by itself: with Slurm's variables set, it would gather the reports of all nodes.
_PRIMUS = """command -v primus-cli >/dev/null || exit 127
for name in ${!SLURM_*}; do unset "$name"; done
reports=$(mktemp -d) && trap 'rm -rf "$reports"' EXIT
primus-cli direct -- node_smoke --dump-path "$reports"
"""
KNOWN: dict[str, HealthCheck] = {
    check.name: check
    for check in (
        HealthCheck("nvidia-smi", ("bash", "-c", _NVIDIA_SMI)),
        HealthCheck("dcgm", ("dcgmi", "diag", "-r", "1")),
        HealthCheck("nvrx", ("-c", _NVRX), in_job=True),
        HealthCheck("primus", ("bash", "-c", _PRIMUS)),
    )
}


def health_checks(stated: Iterable[Sequence[str]]) -> tuple[HealthCheck, ...]:
    """The checks stated by a site: known ones by name, the site's own as a command."""
    return tuple(
        KNOWN[words[0]] if len(words) == 1 and words[0] in KNOWN else HealthCheck(words[0], tuple(words))
        for words in stated
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="health", description=__doc__)
    parser.add_argument("--nodes", type=int, required=True, help="how many nodes the job has")
    options = parser.parse_args(argv)
    problems, unfit = judge(read_answers(sys.stdin), options.nodes)
    for problem in problems:
        print(f"hcp health: {problem}", file=sys.stderr)
    print(",".join(unfit))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
