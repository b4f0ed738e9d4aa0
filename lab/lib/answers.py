"""What one version of hcp says: run by lab/behaviour.py with that version on PYTHONPATH, in the folder of launches.

`answers.py examples` prints both examples of every rule; `answers.py said EXAMPLES FOLDER…` what `hcp check`, as text,
as JSON and with `--show`, and `hcp explain` say to these and to each launch of the folders. Both print JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ENDINGS = {".sh", ".sbatch", ".slurm", ".yaml", ".yml", ".txt"}
MODES = {"text": ["--format", "text"], "json": ["--format", "json"], "show": ["--show"]}
_PLACE = re.compile(r"^src/\w+/\S+\.py:\d+ ", re.MULTILINE)
"""Where a rule is in the tree: that may move."""
Said = dict[str, tuple[object, str, str]]
"""By name of the call: exit code, standard output, standard error."""
PACKAGE = "megatron_hcp" if find_spec("megatron_hcp") else "hcp"
"""The import package of hcp, which was `hcp` in 0.1.0."""


def calls(folders: list[Path], rules: dict[str, list[dict[str, str]]]) -> Iterator[tuple[str, list[str], str]]:
    """(name, arguments, standard input) of every run of `hcp`."""
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.suffix in ENDINGS and file.is_file():
                for mode, options in MODES.items():
                    yield f"{file} {mode}", ["check", str(file), *options], ""
    for rule, examples in rules.items():
        yield f"{rule} explain", ["explain", rule], ""
        for example in examples:
            # --launcher is --dialect's old name, which every version knows.
            given = [word for fact in example["assume"].split() for word in ("--assume", fact)]
            text = example["text"]
            words = ["-"] if "\n" in text else ["--", *shlex.split(text)]
            for mode, options in MODES.items():
                arguments = ["check", "--launcher", example["dialect"], *given, *options, *words]
                yield f"{rule} {example['name']} {mode}", arguments, text


def said(folders: list[Path], examples: Path) -> Said:
    main = import_module(f"{PACKAGE}.cli.main").main
    answers: Said = {}
    for name, arguments, stdin in calls(folders, json.loads(examples.read_text(encoding="utf-8"))):
        out, err, code = io.StringIO(), io.StringIO(), None
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(arguments)
            except SystemExit as end:
                code = end.code
        answers[name] = (code, _PLACE.sub("", out.getvalue()), err.getvalue())
    return answers


def rule_examples() -> dict[str, list[dict[str, str]]]:
    """By id, both examples of each rule, of any version."""
    return {
        rule.id: [
            {
                "name": name,
                "dialect": getattr(example, "dialect", None) or example.kind,
                "text": example.text,
                "assume": example.assume,
            }
            for name, example in (("good", rule.good), ("bad", rule.bad))
        ]
        for rule in import_module(f"{PACKAGE}.rules.registry").RULES
    }


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    json.dump(rule_examples() if what == "examples" else said([*map(Path, words[1:])], Path(words[0])), sys.stdout)
