"""Writes validators/tables: upstream's start-up validators as data, by release: `python lab validators`.

    python lab validators --megatron-lm GIT_DIRECTORY

Nothing of upstream is run: its files are taken from the clone at each tag and parsed. Printed are, for each release,
how many guards it has and how many could not be read; `--unreadable` lists those: `...` is what stands in the way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from known_options import BRANCHES, RELEASES
from program import parser_of

from megatron_hcp.validators.checkout import OPTIONS, counted, units_of
from megatron_hcp.validators.program import Unit, as_lines, is_readable
from megatron_hcp.validators.reader.quiet import marked
from megatron_hcp.validators.roots import UPSTREAMS
from megatron_hcp.validators.table import FOLDER, Table, woven, written


def texts_of(repository: Path, revision: str) -> Callable[[str], str | None]:
    """What gives the text of a file at a revision."""

    @cache
    def text_of(path: str) -> str | None:
        shown = subprocess.run(
            ["git", f"--git-dir={repository}", "show", f"{revision}:{path}"], capture_output=True, check=False
        )
        return shown.stdout.decode() if shown.returncode == 0 else None

    return text_of


def table_of(revisions: Mapping[str, Mapping[str, Unit]]) -> Table:
    """The table of the units of each revision."""
    units = {
        name: woven([as_lines(units[name]) if name in units else () for units in revisions.values()])
        for name in set().union(*revisions.values())
    }
    return Table(tuple((name, *counted(units.values())) for name, units in revisions.items()), units)


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
        for name in (*RELEASES, *BRANCHES):
            revision = name if name in BRANCHES else f"core_v{name}"
            revisions[name] = marked(units_of(texts_of(repository, revision), upstream), OPTIONS)
            guards, unreadable = counted(revisions[name].values())
            print(f"{name}: {guards} guards, {unreadable} unreadable", file=sys.stderr)
            if options.unreadable:
                show_unreadable(revisions[name])
        Path(FOLDER, f"{upstream.repo}.txt").write_text(written(table_of(revisions)), encoding="utf-8")
    return 0


def show_unreadable(units: Mapping[str, Unit]) -> None:
    for unit in units.values():
        for line in unit.guards if unit.kind == "def" else ():
            if not is_readable(line):
                print(f"  {unit.name}: {line}")


if __name__ == "__main__":
    sys.exit(main())
