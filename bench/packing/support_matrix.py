"""The page on which model has which context parallelism, by release: `python bench/packing/support_matrix.py --write`.

Every answer is one of `hcp support`, at TP 1 and the smallest sizes, for Hopper with cuDNN 9.21. It is marked as
executed where Transformer Engine's own code was run on that call (bench/results/te_cpu.json), else as by rule, or as
unknown where a rule asks for more. Without --write it says whether docs/_generated/support.md is what it would write.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src")]

from hcp.launch.load import LoadOptions, load_launch  # noqa: E402
from hcp.support.families import FAMILIES  # noqa: E402
from hcp.support.matrix import Versions  # noqa: E402
from hcp.support.question import COMM_TYPES, LAYOUTS, MODEL_WORDS, Answer, Subject, Way  # noqa: E402
from hcp.support.releases import MEGATRON_CORE, RELEASES, TRANSFORMER_ENGINE  # noqa: E402

PAGE = ROOT / "docs/_generated/support.md"
RECORD = ROOT / "bench/results/te_cpu.json"
ASSUMED = ("arch=sm90", "cudnn=9.21")
NEWEST = {"te": TRANSFORMER_ENGINE[-1], "mcore": MEGATRON_CORE[-1]}
PACKAGES = {"te": "Transformer Engine", "mcore": "megatron-core"}
FEATURES = {
    "Llama": ("GQA",), "Qwen dense": ("GQA",), "Qwen MoE": ("GQA",), "vision": ("GQA",), "Mistral": ("window",),
    "Gemma": ("window",), "gpt-oss": ("window", "sinks"), "DeepSeek with MLA": ("MLA heads",),
}  # fmt: skip
"""What of the executed matrix a family is; the others' attention is not Transformer Engine's alone."""
HEAD = """\
# Which model has which context parallelism

Written by `python bench/packing/support_matrix.py --write`.
For a model and versions of your own: `hcp support config.json`.

At TP 1 and the smallest sizes, for Hopper with cuDNN 9.21; the other package is the newest one each time.
**executed**: Transformer Engine's own code ran on this call, on CPU stand-ins for its kernels. by rule: its source, or
that of megatron-core, says so. unknown: a rule asks for more than a version.
"""


def subject_of(config: dict[str, Any]) -> Subject:
    """What `hcp support config.json` asks about."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        options = LoadOptions(dialect="mlm", words=MODEL_WORDS, model_file=str(file), assumes=ASSUMED)
        launch = load_launch("", options)
    return Subject(launch.reading, launch.assumed, launch.model)


def way_of(comm_type: str, layout: str) -> Way:
    return Way(comm_type, layout, 1, 4, (2, 2)) if comm_type == "a2a+p2p" else Way(comm_type, layout, 1, 2)


def versions_of(package: str, release: str) -> Versions:
    return tuple(({**NEWEST, package: release}).items())


def features_of(family: str, layout: str) -> tuple[str, ...]:
    """The cases of the executed matrix; megatron-core pads the values of packed MLA to the width of its queries."""
    found = next((features for name, features in FEATURES.items() if family.startswith(name)), ())
    return ("causal",) if found == ("MLA heads",) and layout == "thd" else found


class Executed:
    """What Transformer Engine's own code did, by release."""

    def __init__(self) -> None:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        self.releases: list[str] = record["releases"]
        self.cases: dict[str, list[dict[str, str]]] = record["cases"]

    def verdict(self, family: str, way: Way, release: str) -> bool | None:
        """Whether every call of the family ran right with cuDNN's attention; None where it was not run."""
        features = features_of(family, way.layout)
        if not features or release not in self.releases:
            return None
        said = [self._said(f"{way.comm_type}, {way.layout}, cuDNN, {feature}", release) for feature in features]
        return None if "not executed" in said else all(verdict == "right" for verdict in said)

    def _said(self, case: str, release: str) -> str:
        at = self.releases.index(release)
        past = [entry for entry in self.cases.get(case, ()) if self.releases.index(entry["since"]) <= at]
        return past[-1]["verdict"] if past else "not executed"


def evidence(family: str, way: Way, package: str, release: str, answer: Answer, executed: Executed) -> str:
    """`executed`, `by rule` or `unknown`."""
    if answer.unknown:
        return "unknown"
    ran = executed.verdict(family, way, release) if package == "te" else None
    return "by rule" if ran is None else "**executed**"


def spans(family: str, subject: Subject, way: Way, package: str, executed: Executed) -> str:
    """`1.12 to 2.9 PACK007 (by rule), from 2.10 yes (**executed**)`."""
    runs: list[tuple[str, str, str, str]] = []
    for release in RELEASES[package]:
        answer = subject.ask(way, versions_of(package, release))
        text = " ".join(answer.blocked) or "yes"
        mark = evidence(family, way, package, release, answer, executed)
        if runs and runs[-1][2:] == (text, mark):
            runs[-1] = (runs[-1][0], release, text, mark)
        else:
            runs.append((release, release, text, mark))
    said = []
    for first, last, text, mark in runs:
        where = f"{_short(first)} to {_short(last)}" if first != last else _short(first)
        where = f"from {_short(first)}" if last == RELEASES[package][-1] else where
        said.append(f"{where} {text} ({mark})")
    return ", ".join(said)


def _short(release: str) -> str:
    return ".".join(release.split(".")[:2])


def page() -> str:
    """The whole page."""
    executed = Executed()
    parts = [HEAD]
    for family, config in FAMILIES.items():
        subject = subject_of(config)
        parts.append(
            f"\n## {family}\n\n| cp_comm_type | layout | {' | '.join(PACKAGES.values())} |\n|---|---|---|---|\n"
        )
        for comm_type in COMM_TYPES:
            for layout in LAYOUTS:
                cells = [spans(family, subject, way_of(comm_type, layout), name, executed) for name in PACKAGES]
                parts.append(f"| `{comm_type}` | {layout} | {' | '.join(cells)} |\n")
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the page")
    written = page()
    if parser.parse_args().write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(written, encoding="utf-8")
    fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == written
    print(f"{PAGE.relative_to(ROOT)}: {'as it would be written' if fresh else 'stale: run this with --write'}")
    return int(not fresh)


if __name__ == "__main__":
    sys.exit(main())
