"""Writes src/hcp/launch/facts/known_options.txt: the options of Megatron-LM's own parser, by release and branch.

    python bench/known_options.py --megatron-lm GIT_DIRECTORY

Each revision is unpacked into a temporary folder, where its own code builds the parser (in a process of its own, as
for bench/agree.py). The options that pretrain_gpt.py adds for ModelOpt are read from their source.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench" / "lib")]

from agree.process import Upstream  # noqa: E402

TARGET = ROOT / "src" / "hcp" / "launch" / "facts" / "known_options.txt"
RELEASES = "0.12.0 0.12.3 0.13.0 0.13.1 0.14.0 0.15.0 0.15.3 0.16.0 0.16.1 0.17.0 0.17.1 0.18.0 0.18.2 0.19.0".split()
BRANCHES = ("main", "dev")


def unpacked(repository: Path, revision: str, folder: Path) -> None:
    """Puts what builds the parser of a revision into the folder."""
    archive = subprocess.run(
        ["git", f"--git-dir={repository}", "archive", revision, "megatron", "pretrain_gpt.py"],
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def options_of(checkout: Path) -> tuple[str, set[str]]:
    """The version of a checkout of Megatron-LM, and the options of its pretrain_gpt.py, without their dashes."""
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    options = {option for option in upstream.ready["options"] if option.startswith("--")}
    version: str = upstream.ready["version"]
    upstream.close()
    if "add_modelopt_args" in (checkout / "pretrain_gpt.py").read_text(encoding="utf-8"):
        tree = ast.parse((checkout / "megatron" / "post_training" / "arguments.py").read_text(encoding="utf-8"))
        options |= {
            word.value
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument"
            for word in call.args
            if isinstance(word, ast.Constant) and str(word.value).startswith("--")
        }
    return version, {option[2:].replace("-", "_") for option in options}


def written(options: Mapping[str, set[str]], branches: Iterable[str]) -> str:
    """The file's text: a line for all options that the same revisions have, the revisions as runs of the first line."""
    order = list(options)
    lines: dict[str, list[str]] = {}
    for name in sorted(set().union(*options.values())):
        lines.setdefault(_runs([revision for revision in order if name in options[revision]], order), []).append(name)
    return "\n".join(
        [
            "# The options of Megatron-LM's own parser, by revision. Written by bench/known_options.py; do not edit.",
            *(f"# {branch}" for branch in branches),
            f"revisions: {' '.join(order)}",
            *(f"{runs}: {' '.join(names)}" for runs, names in sorted(lines.items())),
            "",
        ]
    )


def _runs(revisions: list[str], order: list[str]) -> str:
    """Revisions that follow each other as `first..last`, with commas between such runs."""
    runs: list[list[str]] = []
    for revision in revisions:
        if runs and order.index(runs[-1][-1]) + 1 == order.index(revision):
            runs[-1].append(revision)
        else:
            runs.append([revision])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron-lm", type=Path, required=True, metavar="GIT_DIRECTORY")
    repository: Path = parser.parse_args().megatron_lm
    options: dict[str, set[str]] = {}
    branches = []
    for name in (*RELEASES, *BRANCHES):
        revision = name if name in BRANCHES else f"core_v{name}"
        with tempfile.TemporaryDirectory() as folder:
            unpacked(repository, revision, Path(folder))
            version, options[name] = options_of(Path(folder))
        print(f"{name}: {len(options[name])} options", file=sys.stderr)
        if name in BRANCHES:
            commit = subprocess.run(
                ["git", f"--git-dir={repository}", "log", "-1", "--format=%h of %cs", revision],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            branches.append(f"{name}: {version}, commit {commit}")
    TARGET.write_text(written(options, branches), encoding="utf-8")


if __name__ == "__main__":
    main()
