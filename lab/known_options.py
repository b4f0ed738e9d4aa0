"""Writes launch/facts/known_options.txt: the options of Megatron-LM's own parser, and what follows each, by revision.

    python lab known_options --megatron-lm GIT_DIRECTORY

Each revision is unpacked into a temporary folder, where its own code builds the parser (in a process of its own, as
for lab/agree.py). The options that pretrain_gpt.py adds for ModelOpt are read from their source, and so are those of
releases before 0.12, whose parser is one file that calls `add_argument`.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from agree.process import Upstream
from agree.upstream.grammar import grammar_of_source
from option_tables import written
from program import ROOT, parser_of

from megatron_hcp.launch.facts.last_read import BRANCHES, of_package

TARGET = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "known_options.txt"
READ_ONLY = {"0.2.0": "23.06", **{name: f"core_v{name}" for name in "0.4.0 0.6.0 0.8.0 0.10.0 0.11.0".split()}}
"""Releases that are read, not run -> their tags."""
RELEASES = "0.12.0 0.12.3 0.13.0 0.13.1 0.14.0 0.15.0 0.15.3 0.16.0 0.16.1 0.17.0 0.17.1 0.18.0 0.18.2 0.19.0".split()


def unpacked(repository: Path, revision: str, folder: Path) -> None:
    """Unpacks the code that builds a revision's parser into the folder."""
    archive = subprocess.run(
        ["git", f"--git-dir={repository}", "archive", revision, "megatron", "pretrain_gpt.py"],
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def options_of(checkout: Path) -> tuple[str, dict[str, str]]:
    """The version of a checkout of Megatron-LM, and the options of its pretrain_gpt.py with what they take."""
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    version: str = upstream.ready["version"]
    options: dict[str, str] = upstream.ready["grammar"]
    upstream.close()
    if "add_modelopt_args" in (checkout / "pretrain_gpt.py").read_text(encoding="utf-8"):
        source = (checkout / "megatron" / "post_training" / "arguments.py").read_text(encoding="utf-8")
        options = {**grammar_of_source(source), **options}
    return version, options


def read(repository: Path, revision: str) -> dict[str, str]:
    """The options of an old revision, from its source."""
    for path in ("megatron/training/arguments.py", "megatron/arguments.py"):
        shown = git(repository, "show", f"{revision}:{path}")
        if shown:
            return grammar_of_source(shown)
    raise SystemExit(f"{revision} has no arguments.py")


def git(repository: Path, *words: str) -> str:
    """What git prints; empty if it fails."""
    return subprocess.run(["git", f"--git-dir={repository}", *words], capture_output=True, text=True).stdout


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--megatron-lm", type=Path, required=True, metavar="GIT_DIRECTORY")
    repository: Path = parser.parse_args().megatron_lm
    options = {name: read(repository, revision) for name, revision in READ_ONLY.items()}
    for name in (*RELEASES, *BRANCHES):
        revision = name if name in BRANCHES else f"core_v{name}"
        with tempfile.TemporaryDirectory() as folder:
            unpacked(repository, revision, Path(folder))
            version, options[name] = options_of(Path(folder))
        print(f"{name}: {len(options[name])} options", file=sys.stderr)
        if name in BRANCHES:
            recorded, commit = of_package("mcore", name), git(repository, "rev-parse", revision).strip()
            if recorded is None or (recorded.version, recorded.commit) != (version, commit):
                raise SystemExit(f"last_read.txt has {recorded}; found {version} at {commit}: renew it first")
    TARGET.write_text(written("Megatron-LM's own parser", "known_options", options), encoding="utf-8")


if __name__ == "__main__":
    main()
