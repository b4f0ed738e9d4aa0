"""The facts of Bridge's recipes by release: `python lab recipes/table --release 0.6.2 BRIDGE MEGATRON_LM …`.

`--write` renews launch/recipes/recipes.txt from the checkouts (or unpacked wheels) that `--release` names, each
with the Megatron-LM that it pins; nothing of them is imported. Without `--release`, prints how long a look-up takes, as
a ratio to an empty Python, and how large the file is in a wheel.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from program import ROOT, parser_of

if TYPE_CHECKING:
    from bridge_recipes import Recipe

FILE = ROOT / "src" / "megatron_hcp" / "launch" / "recipes" / "recipes.txt"
_TIMED = """
import sys, time
sys.path.insert(0, {source!r})
import megatron_hcp.launch.load
start = time.perf_counter()
from megatron_hcp.launch.recipes.table import look_up
look_up({name!r}, {version!r})
print(time.perf_counter() - start)
"""


def written(releases: list[list[str]]) -> str:
    """The file for these (release, Bridge, Megatron-LM)."""
    from bridge_releases import as_text

    with ProcessPoolExecutor(2) as pool:
        found = dict(zip([release for release, *_ in releases], pool.map(_recipes_of, releases)))
    return as_text(found)


def _recipes_of(release: list[str]) -> list[Recipe]:
    from bridge_recipes import Recipes
    from bridge_releases import keys_of

    recipes = Recipes(*map(Path, release[1:]), start=keys_of(release[:1]))
    found = list(recipes)
    left_out = "".join(f"; left out: {name}: {why}" for name, why in recipes.left_out.items())
    print(f"{release[0]}: {len(found)} recipes{left_out}", flush=True)
    return found


def measure(runs: int = 15) -> None:
    """Prints seconds of a look-up in a fresh process, and the size of the file."""
    data = FILE.read_bytes()
    print(f"{FILE.name}: {len(data):,} bytes, {len(zlib.compress(data, 9)):,} in a wheel")
    empty = statistics.median(_seconds([sys.executable, "-c", "pass"]) for _ in range(runs))
    for version in ("0.6.2", None):
        code = _TIMED.format(source=str(ROOT / "src"), name="llama3_8b_pretrain_config", version=version)
        times = [
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            for _ in range(runs)
        ]
        median = statistics.median(times)
        told = version or "of any release"
        print(f"look-up, Bridge {told}: {median * 1e3:.1f} ms, {median / empty:.2f} x an empty Python")


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--release", nargs=3, action="append", metavar=("RELEASE", "BRIDGE", "MEGATRON_LM"))
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    if options.release:
        text = written(options.release)
        if options.write:
            FILE.write_text(text)
        elif text != FILE.read_text():
            print(f"{FILE.name} does not say this: renew it with --write")
            return 1
    measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
