"""Whether hcp gives the same answers as before: `python lab behaviour`, or `--before DIR [--corpus DIR]...`.

For refactorings: it shows that nothing changed that should not. Asked are `hcp check`, as text, as JSON and with
`--show`, and `hcp explain`, about everything in examples/ and both examples of every rule; compared are exit code,
output and errors. The exit status is 1 if an answer differs.

Alone, the answers are compared with lab/results/behaviour.txt, a digest of each, and those that differ are named;
what the record lacks, as a new rule, is not compared. With `--before` another version runs beside this one: DIR is a
checkout of this project, for example `git worktree add DIR COMMIT`, the rules' examples are its own, each file of the
corpora that may be a launch is asked about too, and the first differences are printed. `--record` writes the record,
of DIR where it is named.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from program import ROOT, parser_of

RECORD = ROOT / "lab" / "results" / "behaviour.txt"
HEAD = "# What hcp said at commit {commit}: of each answer the first 8 digits of its SHA-256. See lab/behaviour.py.\n"
Answer = tuple[object, str, str]
"""Exit code, standard output, standard error."""


def run(tree: Path, *words: str) -> str:
    """What lab/lib/answers.py prints about the hcp of `tree`, with a fixed order of hashes, a width, and no home."""
    fixed = {"PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0", "COLUMNS": "80", "HOME": "/nonexistent"}
    program = [sys.executable, str(ROOT / "lab" / "lib" / "answers.py"), *words]
    environment = {**os.environ, **fixed}
    return subprocess.run(program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def answers_of(trees: list[Path], corpora: list[Path]) -> list[dict[str, Answer]]:
    """By call, what each tree says: of examples/, the corpora, and the examples of the first tree's rules."""
    with tempfile.TemporaryDirectory() as folder:
        examples = Path(folder, "examples.json")
        examples.write_text(run(trees[0], "examples"), encoding="utf-8")
        words = ["said", str(examples), "examples", *map(str, corpora)]
        return [json.loads(run(tree, *words)) for tree in trees]


def digests(answers: dict[str, Answer]) -> dict[str, str]:
    return {name: hashlib.sha256(json.dumps(answer).encode()).hexdigest()[:8] for name, answer in answers.items()}


def written(digest_of: dict[str, str], commit: str) -> str:
    """The record: a line for each launch, example and rule, `NAME MODE=DIGEST …`."""
    lines: dict[str, str] = {}
    for name, digest in digest_of.items():
        subject, _, mode = name.rpartition(" ")
        lines[subject] = f"{lines.get(subject, subject)} {mode}={digest}"
    return HEAD.format(commit=commit) + "".join(f"{line}\n" for line in lines.values())


def read(text: str) -> dict[str, str]:
    """The digests of a record, by call."""
    found = {}
    for line in text.splitlines()[1:]:
        subject = line.partition("=")[0].rpartition(" ")[0]
        for word in line.removeprefix(subject).split():
            mode, _, digest = word.partition("=")
            found[f"{subject} {mode}"] = digest
    return found


def show(name: str, before: Answer | None, after: Answer | None) -> None:
    if before is None or after is None:
        print(f"== {name}: only {'after' if before is None else 'before'}")
        return
    print(f"== {name}: exit {before[0]} -> {after[0]}")
    for old, new in zip(before[1:], after[1:], strict=True):
        lines = difflib.unified_diff(str(old).splitlines(), str(new).splitlines(), "before", "after", "", "", 0, "")
        print(*list(lines)[:12], sep="\n")


def compare_with(before: Path, corpora: list[Path], most: int) -> int:
    """Prints the first differences from another checkout; how many there are."""
    old, new = answers_of([before, ROOT], corpora)
    different = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    for name in different[:most]:
        show(name, old.get(name), new.get(name))
    print(f"{len(different)} of {len(old)} answers differ")
    return len(different)


def compare_with_record() -> int:
    """Names the answers that differ from the record's; how many there are."""
    text = RECORD.read_text(encoding="utf-8")
    old, (answers,) = read(text), answers_of([ROOT], [])
    new = digests(answers)
    different = [name for name in old if old[name] != new.get(name)]
    for name in different:
        print(name)
    commit = text.partition(":")[0].split()[-1]
    print(f"{len(different)} of {len(old)} answers differ from those of {commit}: --before shows how")
    return len(different)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--before", type=Path, metavar="DIR", help="the checkout to compare with")
    parser.add_argument("--corpus", type=Path, action="append", default=[], metavar="DIR", help="with --before")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="number of differences to print")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    options = parser.parse_args()
    before = options.before and options.before.resolve()
    for folder in [*options.corpus, *([before / "src"] if before else [])]:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    if options.corpus and (options.record or not before):
        parser.error("--corpus needs --before: the record holds this repository's launches")
    if options.record:
        tree = before or ROOT
        git = ["git", "-C", str(tree), "rev-parse", "--short=8", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        (answers,) = answers_of([tree], [])
        RECORD.write_text(written(digests(answers), commit), encoding="utf-8")
        print(f"{RECORD.relative_to(ROOT)}: {len(answers)} answers of {commit}")
        return 0
    corpora = [folder.resolve() for folder in options.corpus]
    return int((compare_with(before, corpora, options.most) if before else compare_with_record()) > 0)


if __name__ == "__main__":
    sys.exit(main())
