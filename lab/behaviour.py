"""Whether two versions of hcp give the same answers: `python lab behaviour --before DIR [--corpus DIR]...`.

DIR is another checkout of this project, for example `git worktree add DIR COMMIT`. Both versions run, each in a process
of its own, over the same launches: everything in examples/, both examples of every rule that the older version has, and
each file of the corpora that may be a launch (see corpus.py). It compares exit code, output and errors of
`hcp check`, as text, as JSON and with `--show`, and of `hcp explain`. Prints the first differences; the exit status is
1 if there is any. For refactorings: it shows that nothing changed that should not.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENDINGS = {".sh", ".sbatch", ".slurm", ".yaml", ".yml", ".txt"}
MODES = (("--format", "text"), ("--format", "json"), ("--show",))
_PLACE = re.compile(r"^src/\w+/\S+\.py:\d+ ", re.MULTILINE)
"""Where a rule is in the tree: that may move."""
Said = dict[str, tuple[object, str, str]]


def calls(folders: list[Path], rules: dict[str, list[dict[str, str]]]) -> Iterator[tuple[str, list[str], str]]:
    """(name, arguments, standard input) of every run of `hcp`."""
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in ENDINGS and file.is_file():
                for mode in MODES:
                    yield f"{file} {' '.join(mode)}", ["check", str(file), *mode], ""
    for rule, examples in rules.items():
        yield f"explain {rule}", ["explain", rule], ""
        for example in examples:
            # --launcher is --dialect's old name, which both versions know.
            given = [word for fact in example["assume"].split() for word in ("--assume", fact)]
            for mode in MODES:
                words = ["check", "--launcher", example["dialect"], *given, *mode]
                is_file = "\n" in example["text"]
                words += ["-"] if is_file else ["--", *shlex.split(example["text"])]
                yield f"{rule} {example['name']} {' '.join(mode)}", words, example["text"]


def package() -> str:
    """The import package of the `hcp` on PYTHONPATH: `hcp` before 0.1.0."""
    return "megatron_hcp" if find_spec("megatron_hcp") else "hcp"


def record(folders: list[Path], examples: Path) -> Said:
    """What the `hcp` on PYTHONPATH says to every call: exit code, standard output, standard error."""
    main = import_module(f"{package()}.cli.main").main
    said: Said = {}
    for name, arguments, stdin in calls(folders, json.loads(examples.read_text(encoding="utf-8"))):
        out, err, code = io.StringIO(), io.StringIO(), None
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(arguments)
            except SystemExit as end:
                code = end.code
        said[name] = (code, _PLACE.sub("", out.getvalue()), err.getvalue())
    return said


def rule_examples() -> dict[str, list[dict[str, str]]]:
    """By id, both examples of each rule of the `hcp` on PYTHONPATH, of any version."""
    return {
        rule.id: [
            {
                "name": name,
                "dialect": getattr(example, "dialect", None) or example.kind,  # type: ignore[attr-defined]
                "text": example.text,
                "assume": example.assume,
            }
            for name, example in (("good", rule.good), ("bad", rule.bad))
        ]
        for rule in import_module(f"{package()}.rules.registry").RULES
    }


def run(tree: Path, *arguments: str) -> str:
    """This program's output with the hcp of `tree`, with a fixed order of hashes."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def show(name: str, before: tuple[object, str, str] | None, after: tuple[object, str, str] | None) -> None:
    if before is None or after is None:
        print(f"== {name}: only {'after' if before is None else 'before'}")
        return
    print(f"== {name}: exit {before[0]} -> {after[0]}")
    for old, new in zip(before[1:], after[1:], strict=True):
        lines = difflib.unified_diff(str(old).splitlines(), str(new).splitlines(), "before", "after", "", "", 0, "")
        print(*list(lines)[:12], sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, metavar="DIR", help="the checkout to compare with")
    parser.add_argument("--corpus", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="number of differences to print")
    parser.add_argument("--record", type=Path, metavar="EXAMPLES", help=argparse.SUPPRESS)
    parser.add_argument("--examples", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folders = [ROOT / "examples", *(folder.resolve() for folder in options.corpus)]
    if options.examples:
        json.dump(rule_examples(), sys.stdout)
        return 0
    if options.record:
        print(json.dumps(record(folders, options.record)))
        return 0
    for folder in [options.before / "src", *folders]:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    with tempfile.TemporaryDirectory() as place:
        examples = Path(place, "examples.json")
        words = ["--before", str(options.before)]  # required by every call
        examples.write_text(run(options.before, *words, "--examples"), encoding="utf-8")
        words += [word for folder in folders[1:] for word in ("--corpus", str(folder))]
        before, after = (
            json.loads(run(tree, *words, "--record", str(examples))) for tree in (options.before.resolve(), ROOT)
        )
    different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    for name in different[: options.most]:
        show(name, before.get(name), after.get(name))
    print(f"{len(different)} of {len({**before, **after})} answers differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
