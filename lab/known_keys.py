"""Writes launch/facts/known_keys.txt: every key that upstream's own sources declare, of all versions given.

    python lab known_keys --megatron-lm CHECKOUT --bridge CHECKOUT --verl CHECKOUT --wheels FOLDER
    python lab known_keys --nemo-rl CHECKOUT… --ms-swift CHECKOUT… --slime CHECKOUT…   (miles counts as slime)

The wheels folder holds one unpacked wheel per folder (`megatron-core-0.16.1`, `megatron-bridge-0.3.1`, `verl-0.9.1`).
Sources are parsed, never imported. Keys that no source declares any more stay in the file, because old launches use
them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from program import ROOT, parser_of

from megatron_hcp.launch.facts.known_options import all_options

TARGET = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "known_keys.txt"
SECTIONS = ("verl", "slime", "nemo-rl", "ms-swift", "transformer", "mlm", "ddp", "bridge", "optimizer")
"""In an order in which lists that resemble each other are near: the wheel's compression sees 32 KB."""
_DEPTH = 3
_DEV = frozenset(("dynamic_context_parallel", "min_dynamic_context_parallel_size", "sequence_packing_scheduler"))
"""Fields of megatron-core's branch `dev` that no release has (August 2026)."""
_SKIPPED = ("/tests/", "/test_", "/docs/", "/3rdparty/")


class Class(NamedTuple):
    """A class as its source declares it: bases and annotated fields (name, class names in its type, default)."""

    bases: tuple[str, ...]
    fields: tuple[tuple[str, tuple[str, ...], ast.expr | None], ...]
    path: str


class Sources:
    """The classes and command-line options of source trees, by name; same-named classes are merged."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.classes: dict[str, list[Class]] = {}
        self.flags: set[str] = set()
        self.add(roots)

    def add(self, roots: Iterable[Path]) -> None:
        for root in roots:
            for path in sorted(root.rglob("*.py")):
                if not any(part in f"/{path.relative_to(root)}" for part in _SKIPPED):
                    self._read(path)

    def _read(self, path: Path) -> None:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            return
        aliases = {
            alias.asname: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(aliases.get(name, name) for base in node.bases for name in _names(base)[-1:])
                fields = tuple(
                    (item.target.id, tuple(aliases.get(n, n) for n in _names(item.annotation)), item.value)
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                )
                self.classes.setdefault(node.name, []).append(Class(bases, fields, str(path)))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "add_argument":
                    self.flags |= _flags(node.args)
            elif isinstance(node, ast.Dict):  # a field's {"argparse_meta": {"arg_names": ["--x"]}}
                for key, value in zip(node.keys, node.values):
                    if isinstance(key, ast.Constant) and key.value == "arg_names" and isinstance(value, ast.List):
                        self.flags |= _flags(value.elts)

    def fields(self, name: str, seen: frozenset[str] = frozenset()) -> dict[str, tuple[set[str], bool]]:
        """Field -> (class names in its type, whether its default is True), bases included."""
        found: dict[str, tuple[set[str], bool]] = {}
        if name in seen:
            return found
        for item in self.classes.get(name, ()):
            for base in item.bases:
                found = self.fields(base, seen | {name}) | found
            for field, types, default in item.fields:
                on = isinstance(default, ast.Constant) and default.value is True
                known = found.get(field, (set(), False))
                found[field] = (known[0] | set(types), on or known[1])
        return found

    def descends(self, name: str, ancestors: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        if name in ancestors:
            return True
        return name not in seen and any(
            self.descends(base, ancestors, seen | {name}) for item in self.classes.get(name, ()) for base in item.bases
        )

    def dotted(self, name: str, prefix: str, depth: int = _DEPTH) -> Iterator[str]:
        """The dotted keys of a config class and of the config classes that its fields hold."""
        for field, (types, _) in self.fields(name).items():
            if field.startswith("_") or "ClassVar" in types:
                continue
            yield f"{prefix}.{field}"
            for inner in types if depth else ():
                if inner != name and inner in self.classes and self.fields(inner):
                    yield from self.dotted(inner, f"{prefix}.{field}", depth - 1)


def _names(node: ast.expr | None) -> list[str]:
    """The class names in an annotation or base, each without its module."""
    if node is None:
        return []
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _names(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            return []
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.Name):
        return [node.id]
    return [name for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr) for name in _names(child)]


def _flags(words: list[ast.expr]) -> set[str]:
    """Those that are written as options."""
    texts = {word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)}
    return {text for text in texts if text.startswith("--")}


def megatron_flags(sources: Sources) -> set[str]:
    """The options of Megatron-LM's other programs: what its own parser has stands in known_options.txt."""
    keys = {flag[2:].replace("-", "_") for flag in sources.flags}
    return {key for key in keys if key.isidentifier() and not key.startswith("_")} - all_options()


def bridge_keys(sources: Sources) -> set[str]:
    """The dotted keys of a ConfigContainer: each section's classes, and every model, dataset and PEFT class."""
    keys: set[str] = set()
    sections = sources.fields("ConfigContainer")
    roots = {
        "model": frozenset(("TransformerConfig", "ModelParallelConfig", "ModelConfig", "ModelProviderMixin")),
        "dataset": frozenset(("DatasetProvider", "DataloaderConfig")),
        "peft": frozenset(("PEFT",)),
    }
    for section, (types, _) in sections.items():
        keys |= {section} if not section.startswith("_") else set()
        classes = set(types)
        if section in roots:
            classes |= {name for name in sources.classes if sources.descends(name, roots[section])}
        for name in sorted(classes):
            keys |= set(sources.dotted(name, section, _DEPTH if section != "model" else 1))
    return {key for key in keys if not key.split(".")[0].startswith("_")}


def verl_keys(roots: Iterable[Path]) -> set[str]:
    """The dotted keys of verl's configurations, its composed ones and the parts that Hydra puts together."""
    keys: set[str] = set()
    places = {"engine": "engine", "optim": "optim", "model": "model", "data": "data", "profiler": "profiler"}
    for root in roots:
        folder = root / "verl" / "trainer" / "config"
        for path in sorted(folder.rglob("*.yaml")):
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
            inside = path.parent.name if path.parent != folder else ""
            if inside == "":
                keys |= set(_flat(data, ""))
            elif inside in places:
                keys |= set(_flat(data, places[inside]))
                if inside == "engine":
                    for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"):
                        keys |= set(_flat(data, f"{role}.{path.stem}"))
    groups = {"model_engine", "engine", "optim", "model", "data"}
    return {key for key in keys if not key.startswith("defaults")} | groups


def nemo_rl_keys(roots: Iterable[Path]) -> set[str]:
    """The keys below `policy` and `cluster` in NeMo-RL's own configurations, and those that its types declare."""
    keys: set[str] = set()
    for root in roots:
        for path in sorted(root.glob("examples/**/*.yaml")):
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
            if isinstance(data, dict):
                keys |= set(_flat({name: data[name] for name in ("policy", "cluster") if name in data}, ""))
        sources = Sources([root / "nemo_rl"])
        for name, parent in (("PolicyConfig", "policy"), ("MegatronConfig", "policy.megatron_cfg")):
            keys |= {f"{parent}.{field}" for field in sources.fields(name)}
    open_section = ".model_overrides."
    return {key for key in keys if open_section not in key and "env_vars." not in key}


def ms_swift_names(roots: Iterable[Path]) -> set[str]:
    """The arguments that ms-swift's classes declare."""
    sources = Sources(path for root in roots for path in (root / "swift" / "megatron", root / "swift" / "arguments"))
    declared = [declaration for name, several in sources.classes.items() if "Arg" in name for declaration in several]
    declared += [one for name, several in sources.classes.items() if name.endswith("Mixin") for one in several]
    return {field for declaration in declared for field, _, _ in declaration.fields}


def _flat(data: object, prefix: str) -> Iterator[str]:
    if prefix:
        yield prefix
    if isinstance(data, dict):
        for key, value in data.items():
            if str(key) not in ("_target_", "defaults", "hydra"):
                yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))


def collect(megatron: Iterable[Path], bridge: Iterable[Path], verl: Iterable[Path]) -> dict[str, set[str]]:
    """The keys by section of the file."""
    sources = Sources(megatron)
    keys = {
        "mlm": megatron_flags(sources),
        "transformer": set(sources.fields("TransformerConfig")) | set(sources.fields("MLATransformerConfig")) | _DEV,
        "ddp": set(sources.fields("DistributedDataParallelConfig")),
        "optimizer": set(sources.fields("OptimizerConfig")),
        "verl": verl_keys(verl),
    }
    sources.add(bridge)
    return keys | {"bridge": bridge_keys(sources) | {f"model.{name}" for name in _DEV}}


def read(path: Path = TARGET) -> dict[str, set[str]]:
    """The keys that the file holds, by section."""
    sections: dict[str, set[str]] = {name: set() for name in SECTIONS}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            parent, _, names = line.partition(": ")
            sections[section] |= {f"{parent}.{name}" if parent != "-" else name for name in names.split()}
    return sections


def written(sections: dict[str, set[str]]) -> str:
    """The file's text: one line per parent, `parent: name name`; a dash stands for no parent."""
    lines = ["# Every key that upstream's sources declare. Written by lab/known_keys.py; do not edit."]
    for section in SECTIONS:
        parents: dict[str, list[str]] = {}
        for key in sorted(sections[section]):
            parent, _, name = key.rpartition(".")
            parents.setdefault(parent or "-", []).append(name)
        lines += [f"[{section}]", *(f"{parent}: {' '.join(names)}" for parent, names in sorted(parents.items()))]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    for name in ("megatron-lm", "bridge", "verl", "nemo-rl", "ms-swift", "slime"):
        parser.add_argument(f"--{name}", type=Path, action="append", default=[])
    parser.add_argument("--wheels", type=Path)
    options = parser.parse_args()
    found = collect(
        [
            *(
                root / part
                for root in options.megatron_lm
                for part in ("megatron", "pretrain_gpt.py", "examples", "tools")
                if (root / part).is_dir()
            ),
            *wheels(options.wheels, "megatron-core"),
        ],
        [*(root / "src" for root in options.bridge), *wheels(options.wheels, "megatron-bridge")],
        [*options.verl, *wheels(options.wheels, "verl")],
    )
    found |= {
        "nemo-rl": nemo_rl_keys(options.nemo_rl),
        "ms-swift": ms_swift_names(options.ms_swift),
        "slime": megatron_flags(Sources(root / part for root in options.slime for part in ("slime", "miles"))),
    }
    before = read()
    for section in SECTIONS:
        print(f"{section}: {len(found[section])} found, {len(found[section] - before[section])} new", file=sys.stderr)
    TARGET.write_text(written({name: before[name] | found[name] for name in SECTIONS}), encoding="utf-8")


def wheels(folder: Path | None, distribution: str) -> list[Path]:
    """The unpacked wheels of a distribution, by version."""
    return sorted(path for path in folder.glob(f"{distribution}-[0-9]*") if path.is_dir()) if folder else []


if __name__ == "__main__":
    main()
