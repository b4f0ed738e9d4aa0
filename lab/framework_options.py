"""Writes launch/facts/framework_options/: what follows the options of slime, miles and ms-swift, by release.

    python lab framework_options --slime GIT_DIRECTORY --miles GIT_DIRECTORY --ms-swift GIT_DIRECTORY

Nothing is run. slime and miles add their options to Megatron-LM's parser with `add_argument`; transformers'
HfArgumentParser makes ms-swift's of the fields of its dataclasses. What is not written with plain values is unknown.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agree.upstream.grammar import OTHER, UNKNOWN, grammar_of_source
from option_tables import written
from program import ROOT, parser_of

FOLDER = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "framework_options"
SLIME = "0.2.0 0.2.1 0.2.2 0.2.3 0.2.4 0.3.0 0.3.1".split()
MILES = "0.1.0".split()
MS_SWIFT = "3.9.3 3.12.6 4.0.4 4.1.3 4.2.3 4.3.2 4.4.3 4.5.2".split()
_COMMANDS = ("MegatronSftArguments", "MegatronTrainArguments", "MegatronPretrainArguments", "MegatronRLHFArguments")
"""The classes of `megatron sft`, `pt` and `rlhf`; 3.x called the first one otherwise."""
_PLAIN = {"int": "int", "float": "float", "str": "str"}
_Fields = dict[str, tuple[ast.expr, ast.expr | None]]


def sources(repository: Path, revision: str, folder: str) -> Iterator[ast.Module]:
    """The modules below a folder at a revision."""
    listed = _git(repository, "ls-tree", "-r", "--name-only", revision, folder).split()
    for path in listed:
        if path.endswith(".py"):
            yield ast.parse(_git(repository, "show", f"{revision}:{path}"))


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", f"--git-dir={repository}", *words], capture_output=True, text=True, check=True)
    return done.stdout


def added(repository: Path, revision: str, name: str) -> dict[str, str]:
    """The options that slime or miles adds; unknown where two calls differ."""
    found: dict[str, str] = {}
    for tree in sources(repository, revision, f"{name}/utils/arguments.py"):
        for call in ast.walk(tree):
            for option, takes in grammar_of_source(ast.unparse(call)).items() if isinstance(call, ast.Call) else ():
                found[option] = takes if found.get(option, takes) == takes else UNKNOWN
    return found


def declared(repository: Path, revision: str) -> dict[str, str]:
    """The options of ms-swift's commands; unknown where two of them differ."""
    classes = {
        node.name: node
        for folder in ("swift/megatron", "swift/arguments", "swift/llm/argument")
        if _git(repository, "ls-tree", revision, folder)
        for tree in sources(repository, revision, folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found: dict[str, str] = {}
    for command in _COMMANDS:
        for field, (annotation, default) in _fields(classes, command).items():
            for option, takes in _options(field, annotation, default):
                found[option] = takes if found.get(option, takes) == takes else UNKNOWN
    return found


def _fields(classes: dict[str, ast.ClassDef], name: str) -> _Fields:
    """The fields of a dataclass, bases first; of two bases the first one counts."""
    found: _Fields = {}
    if name in classes:
        for base in reversed(classes[name].bases):
            found |= _fields(classes, base.id if isinstance(base, ast.Name) else "")
        for line in classes[name].body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                found[line.target.id] = (line.annotation, line.value)
    return found


def _options(field: str, annotation: ast.expr, default: ast.expr | None) -> Iterator[tuple[str, str]]:
    """What HfArgumentParser makes of a field: for a boolean that is on, `--no_` before its name switches it off."""
    kind = _kind(annotation)
    is_plain = ast.unparse(annotation) == "bool"
    given = default.value if isinstance(default, ast.Constant) else None
    yield field, "?bool" if kind == "bool" and (is_plain or given is not None) else kind
    if is_plain and given is True:
        yield f"no_{field}", "switch"


def _kind(annotation: ast.expr) -> str:
    """By the type: `Optional[X]` is X, a list takes one or more, `Literal` has choices."""
    if isinstance(annotation, ast.Name):
        return "bool" if annotation.id == "bool" else _PLAIN.get(annotation.id, OTHER)
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.value, ast.Name):
        return UNKNOWN
    inside = annotation.slice
    if annotation.value.id == "Optional":
        return _kind(inside)
    if annotation.value.id in ("List", "list") and isinstance(inside, ast.Name) and inside.id in _PLAIN:
        return f"+{inside.id}"
    if annotation.value.id == "Literal":
        items = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        words = [item.value for item in items if isinstance(item, ast.Constant)]
        if len(words) == len(items) and all(isinstance(word, str) and word.isidentifier() for word in words):
            return "|".join(("str", *map(str, words)))
    return UNKNOWN


def main() -> None:
    parser = parser_of(__doc__)
    for name in ("slime", "miles", "ms-swift"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="GIT_DIRECTORY")
    given = parser.parse_args()
    both = {
        f"{name}-{release}": added(repository, "main" if release == "main" else f"v{release}", name)
        for name, repository, releases in (("slime", given.slime, SLIME), ("miles", given.miles, MILES))
        for release in (*releases, "main")
    }
    swift = {
        release: declared(given.ms_swift, "main" if release == "main" else f"v{release}")
        for release in (*MS_SWIFT, "main")
    }
    FOLDER.mkdir(exist_ok=True)
    for name, parsers, options in (("slime", "slime and miles", both), ("ms-swift", "ms-swift", swift)):
        text = written(parsers, "framework_options", options)
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(", ".join(f"{revision}: {len(found)}" for revision, found in options.items()))


if __name__ == "__main__":
    main()
