"""Renders upstream's own sbatch scripts as they are: `python lab jobs/upstream NAME=DIR[@COMMIT] ... [--write]`.

DIR is a checkout (or an unpacked archive, with its commit). Each file with #SBATCH lines goes through `hcp render`
without an option. If render says that something is not stated, the file must not state it; it is rendered again with
stand-ins for that. The result goes through hcp check (no error that the script does not have itself),
shellcheck, and `sbatch --test-only` of a real Slurm that has the partitions that the scripts name. Prints a line for
each file and exits with 1 if one is not as it should be; --write keeps the table in lab/results/upstream_jobs.json.
Needs slurm-wlm, munge and shellcheck.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from program import ROOT, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out
from support.slurm import Cluster

RESULTS = ROOT / "lab" / "results" / "upstream_jobs.json"
_ENDINGS = (".sh", ".sbatch", ".slurm", ".sub")
_STAND_INS = {"arch": "sm90", "nodes": "8", "gpus_per_node": "8", "time": "1:00:00", "start": "torchrun"}
"""What is supplied for a script that doesn't state it."""
_STATED = {
    "arch": r"CUDA_DEVICE_MAX_CONNECTIONS=\d",
    "nodes": r"^#SBATCH\s.*(?:-N|--nodes)[ =]?\s*\d",
    "gpus_per_node": r"^#SBATCH\s.*(?:--gpus-per-node|--gpus-per-task|--gres=gpu)[ =:]?\S*\d",
    "time": r"^#SBATCH\s.*(?:-t|--time)[ =]?\s*\d",
    "start": r"",
}
"""How a script would state it, however our reader understands it."""
_NO_TRAINING = re.compile(r"has no training command")
_NOT_KNOWN = re.compile(r"an argument of the training command is not known \((.*)\); wanted")


class Planned(Cluster):
    """Only a controller, whose sixty-four nodes would be started when a job needs them: enough for --test-only."""

    def __init__(self, folder: Path, partitions: set[str]) -> None:
        super().__init__(folder)
        self.partitions = partitions

    def start(self) -> None:
        for name in ("spool", "state", "log", "munge"):
            (self.folder / name).mkdir()
        self._munge()
        self._configure()
        nodes = "NodeName=c[1-64] CPUs=256 RealMemory=2000000 Gres=gpu:8 State=CLOUD\n"
        lines = [f"PartitionName={name} Nodes=c[1-64] MaxTime=INFINITE State=UP\n" for name in sorted(self.partitions)]
        default = "PartitionName=all Nodes=c[1-64] Default=YES MaxTime=INFINITE State=UP\n"
        power = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=300\nTreeWidth=128\n"
        text = self.conf.read_text().replace(" Default=YES", "")
        self.conf.write_text(text + power + nodes + default + "".join(lines))
        self._daemon("slurmctld", "-D", "-i", "-f", str(self.conf))
        self.wait_until(lambda: self.run("sinfo", check=False).returncode == 0, "the controller")


def _scripts(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if (
            path.suffix in _ENDINGS
            and path.is_file()
            and re.search(r"^#SBATCH", path.read_text(errors="replace"), re.M)
        ):
            yield path


def _hcp(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "megatron_hcp", *map(str, words)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, errors="replace")


def _errors(target: str | Path, cwd: Path) -> list[str] | None:
    """The rules whose errors `hcp check` finds in any of a script's launches; None where it cannot read it."""
    done = _hcp("check", target, "--format", "json", cwd=cwd)
    if done.returncode not in (0, 1, 4):
        return None
    said = json.loads(done.stdout)
    findings = (found for result in said.get("results", [said]) for found in result["findings"])
    return sorted({found["rule"] for found in findings if found["severity"] == "error"})


def _render(script: Path, job: Path) -> dict[str, Any]:
    """What render says: `asks` for what is not stated, and the `refusal` where it writes no script."""
    words: list[str] = []
    row: dict[str, Any] = {"asks": [], "refusal": ""}
    while True:
        done = _hcp("render", script.name, "-o", job, *words, cwd=script.parent)
        if done.returncode in (0, 1):
            return row
        asked = re.findall(r"(?:: |; )(\w+) \(", done.stderr.partition("; wanted")[0])
        if not done.stderr.startswith("hcp: not stated: ") or row["asks"] or not set(asked) <= _STAND_INS.keys():
            return {**row, "refusal": done.stderr.strip()}
        row["asks"] = asked
        words = [word for name in asked for word in (f"--{name.replace('_', '-')}", _STAND_INS[name])]


def _judge(script: Path, job: Path, cluster: Cluster) -> dict[str, Any]:
    row = _render(script, job)
    text = script.read_text(errors="replace")
    odd = [f"{name} is stated" for name in row["asks"] if re.search(_STATED[name], text, re.M)]
    if row["refusal"]:
        unknown = _NOT_KNOWN.search(row["refusal"])
        if _NO_TRAINING.search(row["refusal"]):
            row["outcome"] = "no training"
        elif unknown:
            row["outcome"] = f"not known: {unknown[1]}"
        else:
            row["outcome"], odd = "refused", [*odd, row["refusal"]]
        return {**row, "odd": odd}
    own, ours = _errors(script.name, script.parent), _errors(job, job.parent)
    if ours is None or set(ours) - set(own or ()):
        odd.append(f"hcp check: {ours}, the script itself: {own}")
    shellcheck = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    checked = subprocess.run([shellcheck, "--norc", job], capture_output=True, text=True)
    if checked.returncode:
        odd.append(f"shellcheck: {checked.stdout.strip()[:300]}")
    tested = cluster.run("sbatch", "--test-only", job, cwd=job.parent, check=False)
    if tested.returncode:
        odd.append(f"sbatch --test-only: {tested.stderr.strip()[:300]}")
    return {**row, "outcome": "rendered", "errors": ours, "odd": odd}


def _partitions(scripts: list[Path]) -> set[str]:
    names: set[str] = set()
    for script in scripts:
        for found in re.findall(
            r"^#SBATCH\s.*?(?:-p|--partition)[ =]?\s*(\S+)", script.read_text(errors="replace"), re.M
        ):
            names |= {name for name in found.split(",") if re.fullmatch(r"[\w-]+", name)}
    return names - {"debug", "urgent", "all"}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="NAME=DIR[@COMMIT]")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    found: list[tuple[str, Path, Path]] = []
    commits: dict[str, str] = {}
    for text in options.checkouts:
        name, _, place = text.partition("=")
        folder, _, commit = place.partition("@")
        if not name or not Path(folder).is_dir():
            parser.error(f"found {text}; wanted NAME=DIR or NAME=DIR@COMMIT")
        git = ["git", "-C", folder, "rev-parse", "HEAD"]
        commits[name] = commit or subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        found += [(name, Path(folder).resolve(), path.resolve()) for path in _scripts(Path(folder))]
    folder = Path(tempfile.mkdtemp(prefix="hcp-slurm-"))
    folder.chmod(0o755)
    (folder / "owner").write_text(str(os.getpid()))
    cluster = Planned(folder, _partitions([path for *_, path in found]))
    rows = []
    with tempfile.TemporaryDirectory(prefix="hcp-upstream-jobs-") as jobs:
        try:
            cluster.start()
            for number, (name, top, path) in enumerate(found):
                row: dict[str, Any] = {"file": f"{name}/{path.relative_to(top)}"}
                row |= _judge(path, Path(jobs) / f"{number}.sbatch", cluster)
                row["odd"] = [said.replace(jobs, "JOBS").replace(str(top), name) for said in row["odd"]]
                rows.append(row)
                asks = f" (asked for {', '.join(row['asks'])})" if row["asks"] else ""
                print(f"{row['file']}: {row['outcome']}{asks}", *row["odd"], sep="\n    ", flush=True)
                del row["refusal"]
        finally:
            cluster.stop()
    odd = sum(bool(row["odd"]) for row in rows)
    counts = Counter(row["outcome"].partition(":")[0] for row in rows)
    print(", ".join(f"{number} {name}" for name, number in counts.items()), f"- {odd} not as they have to be")
    if options.write:
        found = {"commits": commits, "counts": counts, "files": rows}
        RESULTS.write_text(laid_out(found, ROW_WIDTH) + "\n", encoding="utf-8")
    return int(odd > 0)


if __name__ == "__main__":
    sys.exit(main())
