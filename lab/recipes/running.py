"""How Bridge's recipes run a job, for `hcp plan`: `python lab recipes/running --release 0.7.0 BRIDGE MEGATRON_LM …`.

`--write` renews launch/recipes/running.txt: what each recipe sets of precision, overlaps, graphs, recomputation and the
optimizer, helpers that it calls included. These settings are no facts of a rule; those stand in recipes.txt.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bridge_recipes import _BENCHMARKS, _MISSING, Recipes, _is_plain, _plain, _walk
from follow.call import Call
from follow.values import Node, NotFollowed, Raised, Unknown
from program import ROOT, parser_of

from megatron_hcp.launch.recipes.running import KEYS

FILE = ROOT / "src" / "megatron_hcp" / "launch" / "recipes" / "running.txt"
_HEAD = "# Written by lab/recipes/running.py from Megatron-Bridge's sources; hcp plan reads it.\n"


def settings_of(recipes: Recipes, name: str) -> dict[str, Any] | None:
    """The keys that this recipe leaves known; None if it cannot be followed."""
    function = recipes.names()[name]
    assert isinstance(function.code, ast.FunctionDef)
    try:
        config = Call(recipes._world, function.module).run(function, [], {})
    except (Raised, NotFollowed, RecursionError):
        return None
    if not isinstance(config, Node):
        return None
    found = {key: _walk(config, key) for key in KEYS}
    return {
        key: _plain(value)
        for key, value in found.items()
        if value is not _MISSING and not isinstance(value, Unknown) and _is_plain(value) and value is not None
    }


def settings_by_name(bridge: Path, megatron_lm: Path) -> dict[str, tuple[str, ...]]:
    """The settings of each of a release's performance recipes, as lines of the file."""
    recipes, found = Recipes(bridge, megatron_lm), {}
    for name, function in recipes.names().items():
        if function.module.startswith(_BENCHMARKS):
            settings = settings_of(recipes, name) or {}
            found[name] = tuple(f"{key} {json.dumps(value)}" for key, value in settings.items())
    return found


def written(releases: dict[str, dict[str, tuple[str, ...]]]) -> str:
    """The file: releases, settings, then for each recipe and release the places of its settings."""
    lines = sorted({line for recipes in releases.values() for settings in recipes.values() for line in settings})
    place = {line: str(at) for at, line in enumerate(lines)}
    by_row: dict[tuple[str, str], list[str]] = defaultdict(list)
    for at, recipes in enumerate(releases.values()):
        for name, settings in recipes.items():
            by_row[name, " ".join(place[line] for line in settings)].append(str(at))
    rows = sorted(f"{name}|{','.join(at)}|{places}" for (name, places), at in by_row.items())
    return _HEAD + "\n\n".join("\n".join(part) for part in (releases, lines, rows)) + "\n"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--release", nargs=3, action="append", required=True, metavar=("RELEASE", "BRIDGE", "MEGATRON_LM")
    )
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)
    text = written({name: settings_by_name(Path(bridge), Path(core)) for name, bridge, core in options.release})
    if options.write:
        FILE.write_text(text)
    elif text != FILE.read_text():
        print(f"{FILE.name} does not say this: renew it with --write")
        return 1
    print(f"{FILE.name}: {len(text):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
