"""Renders launches of seven frameworks, drawn by a seed, with their sizes given: `python lab jobs/drawn NAME=DIR ...`.

DIR is a checkout of NAME (megatron-lm, bridge, verl, slime, miles, nemo-rl or ms-swift). A launch is a shell script in
which the framework's training program stands. As many are drawn of each framework as there are, up to the same number,
until there are --number of them. Each goes through `hcp render`, which is given the sizes, and the script's arguments,
that it asks for. Prints a line for each, with the refusal where there is one, and counts these by reason; --write keeps
the table in lab/results/drawn_jobs.json.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from program import ROOT, at_least_one, parser_of

from megatron_hcp.ground.json_layout import ROW_WIDTH, laid_out

RESULTS = ROOT / "lab" / "results" / "drawn_jobs.json"
_GIVEN = {"nodes": "2", "gpus_per_node": "8", "time": "4:00:00", "arch": "sm90", "start": "torchrun"}
_ARGUMENTS = "1 2 3 4 5 6 7 8"
_TRAINS = {
    "megatron-lm": r"\b(?:pretrain|train|finetune)_\w+\.py\b|\btrain\.py\b",
    "bridge": r"\b(?:run_recipe|pretrain\w*|finetune\w*|sft\w*|train\w*)\.py\b",
    "verl": r"-m verl\.(?:trainer\.(?:main_\w+|sft_trainer\w*)|\w+\.main_\w+)|-m recipe\.\w+\.main_\w+",
    "slime": r"\btrain(?:_async)?\.py\b",
    "miles": r"\btrain(?:_async)?\.py\b",
    "nemo-rl": r"\brun_\w+\.py\b",
    "ms-swift": r"\bmegatron\s+(?:sft|pt|rlhf)\b",
}
"""The programs of each framework that train, as its own documentation starts them."""
_REASONS = {
    "an argument is not known": r"an argument of the training command is not known",
    "no training command": r"has no training command",
    "something is not stated": r"^hcp: not stated",
    "nothing can start it": r"wanted --start",
}


def _launches(name: str, folder: Path) -> list[Path]:
    """The framework's launches, in the order of their names."""
    found = []
    for path in sorted(folder.rglob("*.sh")):
        if path.is_file() and not path.is_symlink():
            text = re.sub(r"^\s*#.*", "", path.read_text(errors="replace"), flags=re.M)
            if re.search(_TRAINS[name], text):
                found.append(path)
    return found


def _drawn(found: dict[str, list[Path]], number: int, seed: int) -> list[tuple[str, Path]]:
    """As many of each as there are, turn by turn, until there are `number` of them."""
    pick = random.Random(seed)
    left = {name: pick.sample(paths, len(paths)) for name, paths in found.items()}
    drawn: list[tuple[str, Path]] = []
    while len(drawn) < number and any(left.values()):
        drawn += [(name, paths.pop()) for name, paths in left.items() if paths][: number - len(drawn)]
    return sorted(drawn)


def _render(path: Path, job: Path) -> tuple[list[str], str]:
    """(what it was asked for, the refusal or "")."""
    asked: list[str] = []
    while True:
        words = [
            word for name in asked for word in (f"--{name.replace('_', '-')}", {**_GIVEN, "args": _ARGUMENTS}[name])
        ]
        argv = [sys.executable, "-m", "megatron_hcp", "render", path.name, "-o", str(job), *words]
        done = subprocess.run(argv, cwd=path.parent, capture_output=True, text=True, errors="replace")
        if done.returncode in (0, 1):
            return asked, ""
        said = next((line for line in done.stderr.splitlines() if line.startswith("hcp: ")), done.stderr.strip())
        wanted = ["args"] if "with --args" in said else re.findall(r"(?:: |; )(\w+) \(", said.partition("; wanted")[0])
        new = [name for name in wanted if name not in asked and (name in _GIVEN or name == "args")]
        if not new or not (said.startswith("hcp: not stated: ") or new == ["args"]):
            return asked, said
        asked += new


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkouts", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--number", type=at_least_one, default=200)
    parser.add_argument("--seed", type=int, default=36)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    folders = dict(text.partition("=")[::2] for text in options.checkouts)
    for name, folder in folders.items():
        if name not in _TRAINS or not Path(folder).is_dir():
            parser.error(f"found {name}={folder}; wanted NAME=DIR, NAME one of {', '.join(_TRAINS)}")
    found = {name: _launches(name, Path(folder).resolve()) for name, folder in folders.items()}
    print(", ".join(f"{name}: {len(paths)} launches" for name, paths in found.items()), flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hcp-drawn-jobs-") as jobs:
        for name, path in _drawn(found, options.number, options.seed):
            asked, refusal = _render(path, Path(jobs) / "job.sbatch")
            reason = next((why for why, says in _REASONS.items() if re.search(says, refusal)), "another")
            row = {"file": f"{name}/{path.relative_to(Path(folders[name]).resolve())}", "asked": " ".join(asked)}
            rows.append({**row, "outcome": f"refused: {reason}" if refusal else "rendered", "refusal": refusal})
            print(f"{row['file']}: {rows[-1]['outcome']}", *filter(None, [refusal]), sep="\n    ", flush=True)
    counts = Counter(row["outcome"] for row in rows)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()))
    if options.write:
        data = {"seed": options.seed, "counts": counts, "files": rows}
        RESULTS.write_text(laid_out(data, ROW_WIDTH) + "\n", encoding="utf-8")
    return int(any("\n" in row["refusal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
