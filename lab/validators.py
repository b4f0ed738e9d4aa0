"""Writes validators/tables: upstream's start-up validators as data, by release: `python lab validators`.

    python lab validators --megatron-lm GIT_DIRECTORY --megatron-bridge GIT_DIRECTORY --verl GIT_DIRECTORY

Megatron-Bridge's tables need Megatron-LM's clone too: each release pins a commit of it. A unit that Megatron-LM's own
tables have word for word is not written again.

Nothing of upstream is run: its files are taken from the clone at each tag, or for a release without one from its
unpacked wheel (tests/fetch_upstream.py), and parsed. Printed are, for each release, how many guards it has and how many
could not be read; `--unreadable` lists those: `...` is what stands in the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from known_options import BRANCHES, RELEASES
from older_guards import older_guards
from program import parser_of

from megatron_hcp.judge.start import judged
from megatron_hcp.validators.framework_roots import UPSTREAMS
from megatron_hcp.validators.program import Unit, as_lines, is_readable
from megatron_hcp.validators.reader.checkout import OPTIONS, counted, units_of
from megatron_hcp.validators.reader.checkout import texts_of as wheel_texts
from megatron_hcp.validators.reader.quiet import marked
from megatron_hcp.validators.table import FOLDER, Table, program_of_release, releases_of, woven, written
from megatron_hcp.validators.upstreams import MEGATRON_LM

REVISIONS = {
    "megatron-bridge": {
        **{name: f"v{name}" for name in "0.3.0 0.3.1 0.4.0 0.4.1 0.4.2 0.5.0 0.5.1 0.6.0".split()},
        BRANCHES[0]: BRANCHES[0],
    },
    "megatron-lm": {**{name: f"core_v{name}" for name in RELEASES}, **{name: name for name in BRANCHES}},
    "slime": {**{name: f"v{name}" for name in ("0.2.0", "0.2.4", "0.3.0", "0.3.1")}, "main": "HEAD"},
    "miles": {"0.1.0": "v0.1.0", "main": "HEAD"},
    "ms-swift": {**{name: f"v{name}" for name in "4.0.4 4.1.3 4.2.3 4.3.2 4.4.3 4.5.2".split()}, "main": "HEAD"},
    "nemo-rl": {**{name: f"v{name}" for name in "0.4.0 0.5.0 0.6.0 0.7.0".split()}, "main": "HEAD"},
    "verl": {**{name: f"v{name}" for name in ("0.7.1", "0.8.0", "0.9.0", "0.9.1")}, "main": "HEAD"},
}
"""For each upstream the names of its revisions in the tables, oldest first, and what the clone calls them."""
WHEELS = Path(os.environ.get("HCP_UPSTREAM", Path.home() / ".cache/hcp-upstream"))

OLDER = Path(judged.__file__).with_name("older_guards.txt")
"""Which older releases a check asks, too."""


def texts_of(repository: Path, revision: str) -> Callable[[str], str | None]:
    """What gives the text of a file at a revision."""

    @cache
    def text_of(path: str) -> str | None:
        shown = subprocess.run(
            ["git", f"--git-dir={repository}", "show", f"{revision}:{path}"], capture_output=True, check=False
        )
        return shown.stdout.decode() if shown.returncode == 0 else None

    return text_of


def with_pinned(clone: Path, revision: str, megatron_lm: Path) -> Callable[[str], str | None]:
    """What gives the text of a file of Bridge, or of the Megatron-LM that this revision of it pins."""
    row = subprocess.run(
        ["git", f"--git-dir={clone}", "ls-tree", revision, "3rdparty/Megatron-LM"], capture_output=True, check=True
    )
    own, pinned = texts_of(clone, revision), texts_of(megatron_lm, row.stdout.decode().split()[2])
    return lambda path: own(f"src/{path}") if path.startswith("megatron/bridge/") else pinned(path)


def nearest(units: Mapping[str, Unit]) -> str:
    """The release of Megatron-LM whose tables have the most of these units word for word."""
    return max(releases_of("megatron-lm"), key=lambda release: len(_common(units, release)))


def _common(units: Mapping[str, Unit], release: str) -> set[str]:
    program = program_of_release("megatron-lm", release)
    assert program is not None
    found = {name: program.find(name) for name in units}
    return {name for name, unit in units.items() if found[name] == unit}


def table_of(revisions: Mapping[str, Mapping[str, Unit]], *, pins: bool) -> Table:
    """The table of the units of each revision; `pins`: but for those that Megatron-LM's table has."""
    rows, own = [], []
    for name, units in revisions.items():
        pinned = nearest(units) if pins else ""
        common = _common(units, pinned) if pins else set()
        rows.append((name, *counted(units.values()), pinned))
        own.append({name: as_lines(unit) for name, unit in units.items() if name not in common})
    return Table(tuple(rows), {name: woven([units.get(name, ()) for units in own]) for name in set().union(*own)})


def main() -> int:
    parser = parser_of(__doc__)
    for upstream in UPSTREAMS:
        parser.add_argument(f"--{upstream.repo}", type=Path, metavar="GIT_DIRECTORY")
    parser.add_argument("--unreadable", action="store_true", help="list the guards that could not be read")
    options = parser.parse_args()
    for upstream in UPSTREAMS:
        repository: Path | None = getattr(options, upstream.repo.replace("-", "_"))
        if repository is None:
            continue
        revisions = {}
        for name, revision in REVISIONS[upstream.repo].items():
            if upstream.repo == "megatron-bridge":
                text_of = with_pinned(repository, revision, options.megatron_lm)
            else:
                text_of = texts_of(repository, revision)
            if text_of(upstream.functions[0][1][0]) is None:
                text_of = wheel_texts(str(WHEELS / f"{upstream.repo}-{name}"), upstream)
            revisions[name] = marked(units_of(text_of, upstream), OPTIONS)
            guards, unreadable = counted(revisions[name].values())
            print(f"{name}: {guards} guards, {unreadable} unreadable", file=sys.stderr)
            if options.unreadable:
                show_unreadable(revisions[name])
        Path(FOLDER, f"{upstream.repo}.txt").write_text(
            written(table_of(revisions, pins=upstream.repo == "megatron-bridge")), encoding="utf-8"
        )
    if options.megatron_lm is not None:
        OLDER.write_text(older_guards("megatron-lm", MEGATRON_LM.releases), encoding="utf-8")
    return 0


def show_unreadable(units: Mapping[str, Unit]) -> None:
    for unit in units.values():
        for line in unit.guards if unit.kind == "def" else ():
            if not is_readable(line):
                print(f"  {unit.name}: {line}")


if __name__ == "__main__":
    sys.exit(main())
