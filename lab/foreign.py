"""What hcp makes of other frameworks' files: `python lab foreign --corpus DIR...`.

Each DIR holds checkouts of other frameworks, one folder each (`owner+name`, or `name`). Every shell script, YAML, JSON
and TOML file is read as hcp would read it, without and with each dialect forced, and what came of it is counted:
refused by name, refused, or read as a dialect. A file that is read as a dialect which its repository never uses
(`DIALECTS`) is a fault, and so is one that is read under a forced dialect with the verdict ok. The exit status is 1 if
there is any. Nothing from these repositories belongs in this one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from program import parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.rules.registry import RULES

DIALECTS: dict[str, frozenset[str]] = {
    # Repository -> the dialects that its files may be in; for all others, none.
    "RL": frozenset(("nemo-rl",)),
    "ms-swift": frozenset(("ms-swift",)),
    "slime": frozenset(("slime", "mlm")),  # its converters take Megatron-LM's arguments alone
    "miles": frozenset(("slime", "mlm")),
    "Pai-Megatron-Patch": frozenset(("mlm", "verl")),  # Megatron-LM's arguments; some scripts start verl
    "Nemotron": frozenset(("bridge", "nemo-rl")),  # recipes of Megatron-Bridge, cookbooks for NeMo-RL
    "Megatron-DeepSpeed": frozenset(("mlm",)),  # a fork: scripts without DeepSpeed's options are Megatron-LM's
    "MindSpeed": frozenset(("mlm", "verl")),  # a few scripts have none of its own words, one starts verl
    "MindSpeed-LLM": frozenset(),
    "FlagScale": frozenset(("mlm",)),  # a converter with Megatron-LM's arguments
    "NeMo": frozenset(("mlm",)),  # a comparison with Megatron-LM starts its pretrain_gpt.py
    "Megatron-LM": frozenset(("mlm",)),
    "Megatron-Bridge": frozenset(("bridge", "mlm")),
    "geodesic-megatron": frozenset(("bridge",)),  # a fork of Megatron-Bridge
    "Megatron-LM-das": frozenset(("mlm",)),  # forks of Megatron-LM, and programs around its training script
    "Megatron-LM-AutoTuner": frozenset(("mlm",)),
    "Megatron-LLM": frozenset(("mlm",)),
    "zero-bubble-pipeline-parallelism": frozenset(("mlm",)),
    "YaLM-100B": frozenset(("mlm",)),
    "bigscience": frozenset(("mlm",)),
    "SimuMax": frozenset(("mlm",)),
    "TransformerEngine": frozenset(("mlm",)),  # its tests start Megatron-LM
    "nvidia-resiliency-ext": frozenset(("mlm",)),  # its examples start Megatron-LM
    "Megatron-Dion": frozenset(("mlm",)),
    "megatron-sft-recipes": frozenset(("ms-swift",)),
    "VERL-Maze": frozenset(("verl",)),
    "verl": frozenset(("verl",)),
    "verl-recipe": frozenset(("verl",)),
    "verl-tool": frozenset(("verl",)),
    "Search-R1": frozenset(("verl",)),  # a copy of an early verl
    "rllm": frozenset(("verl",)),  # its trainers start verl's, with verl's configuration and a section of their own
    "ml-cookbook": frozenset(("ms-swift", "verl")),
    "Seq1F1B": frozenset(("mlm",)),
    "oellm_pretrain": frozenset(("mlm",)),  # a template that starts Megatron-LM
    "docs": frozenset(("mlm",)),  # silogen's: a Helm chart with a script for Megatron-LM
}
FORCED: tuple[Dialect | None, ...] = (None, "bridge", "mlm", "verl", "nemo-rl")
_ENDINGS = frozenset((".sh", ".bash", ".sbatch", ".slurm", ".sub", ".yaml", ".yml", ".json", ".toml"))
_LARGEST_BYTES = 1 << 20


def files(corpus: Path) -> Iterator[tuple[str, Path]]:
    """(repository, file) of everything in the corpus that may be a launch."""
    for folder in sorted(path for path in corpus.iterdir() if path.is_dir()):
        repository = folder.name.rpartition("+")[2]
        for file in sorted(folder.rglob("*")):
            if file.suffix in _ENDINGS and file.is_file() and file.stat().st_size <= _LARGEST_BYTES:
                yield repository, file


def outcome(file: Path, forced: Dialect | None) -> str:
    """`refused by name`, `refused`, or `DIALECT VERDICT`; the verdict only where a dialect is forced."""
    try:
        reading = read_target(str(file), dialect=forced)
    except HcpError as error:
        return "refused by name" if " looks like " in str(error) else "refused"
    if forced is None:
        return reading.dialect
    try:
        report = check_launch(build_launch(reading), RULES)
    except HcpError:
        return f"{reading.dialect} with a value that cannot be used"
    return f"{reading.dialect} {report.verdict}"


def is_fault(repository: str, forced: Dialect | None, said: str) -> bool:
    """Whether this outcome is wrong for a file of this repository."""
    own = DIALECTS.get(repository, frozenset())
    dialect, _, verdict = said.partition(" ")
    if dialect == "refused" or dialect in own:
        return False
    return verdict == "ok" if forced else True


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, metavar="DIR")
    parser.add_argument("--files", action="store_true", help="also list every file that is read, and its dialect")
    options = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    faults: list[str] = []
    total = 0
    for corpus in options.corpus:
        if not corpus.is_dir():
            parser.error(f"{corpus} is no folder")
        for repository, file in files(corpus):
            total += 1
            for forced in FORCED:
                said = outcome(file, forced)
                counts[repository, forced or "-", said] += 1
                line = f"{file.relative_to(corpus)} ({'not forced' if forced is None else f'forced {forced}'}): {said}"
                if is_fault(repository, forced, said):
                    faults.append(line)
                elif options.files and not said.startswith("refused"):
                    print(line)
    print(f"{total} files, each read {len(FORCED)} times; a dash: no dialect is forced")
    for (repository, name, said), count in sorted(counts.items()):
        print(f"{count:6d}  {repository:20s} {name:7s} {said}")
    for line in faults:
        print("fault", line)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
