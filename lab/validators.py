"""Writes validators/tables: upstream's start-up validators as data, by release: `python lab validators`.

    python lab validators --megatron-lm GIT_DIRECTORY --megatron-bridge GIT_DIRECTORY --verl GIT_DIRECTORY

Megatron-LM's and Megatron-Bridge's are written together: each release of Bridge pins a commit of Megatron-LM, whose
units share their lines with Megatron-LM's releases. What decides no guard is left out (`lib/needed_lines.py`).

Nothing of upstream is run: its files are taken from the clone at each tag, or for a release without one from its
unpacked wheel (tests/fetch_upstream.py), and parsed. Printed are, for each release, how many guards it has and how many
could not be read; `--unreadable` lists those: `...` is what stands in the way.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from known_options import RELEASES
from needed_lines import needed_lines
from older_guards import older_guards
from program import parser_of
from start_tables.quiet import marked
from start_tables.woven import woven, written

from megatron_hcp.judge.start import judged
from megatron_hcp.launch.facts.last_read import last_read
from megatron_hcp.validators import table
from megatron_hcp.validators.framework_roots import UPSTREAMS
from megatron_hcp.validators.program import Unit, as_lines, is_readable
from megatron_hcp.validators.reader.checkout import OPTIONS, counted, units_of
from megatron_hcp.validators.reader.checkout import texts_of as wheel_texts
from megatron_hcp.validators.roots import UpstreamRoots
from megatron_hcp.validators.table import FOLDER, Table
from megatron_hcp.validators.upstreams import MEGATRON_LM

RELEASES_READ = {
    "megatron-bridge": "0.3.0 0.3.1 0.4.0 0.4.1 0.4.2 0.5.0 0.5.1 0.6.0".split(),
    "megatron-lm": RELEASES,
    "slime": ("0.2.0", "0.2.4", "0.3.0", "0.3.1"),
    "miles": ("0.1.0",),
    "ms-swift": "4.0.4 4.1.3 4.2.3 4.3.2 4.4.3 4.5.2".split(),
    "nemo-rl": "0.4.0 0.5.0 0.6.0 0.7.0".split(),
    "verl": ("0.7.1", "0.8.0", "0.9.0", "0.9.1"),
}
"""For each upstream its releases in the tables, oldest first; the branches of last_read.txt follow them."""
WHEELS = Path(os.environ.get("HCP_UPSTREAM", Path.home() / ".cache/hcp-upstream"))

ON_CORE = ("megatron-lm", "megatron-bridge")
"""Whose programs share units."""
BEFORE_CORE = ("slime", "miles")
"""Whose start-up runs before Megatron-LM's, on the same arguments."""
WORD = re.compile(r"[A-Za-z_]\w*")
Revisions = Mapping[str, Mapping[str, Unit]]
"""The units of each revision of an upstream."""

OLDER = Path(judged.__file__).with_name("older_guards.txt")
"""Which older releases a check asks, too."""


def revisions_of(repo: str, clone: Path) -> dict[str, str]:
    """The names of an upstream's revisions in its table, oldest first, and what the clone calls them.

    A branch is read at the commit of last_read.txt, whatever the clone's own branch has come to.
    """
    branches = {row.revision: row.commit for row in last_read() if row.project == repo and row.commit}
    for name, commit in branches.items():
        if subprocess.run(["git", f"--git-dir={clone}", "cat-file", "-e", commit], check=False).returncode:
            raise SystemExit(f"{clone} lacks {commit}, which is {repo}'s {name} in last_read.txt")
    tag = "core_v" if repo == "megatron-lm" else "v"
    return {name: f"{tag}{name}" for name in RELEASES_READ[repo]} | branches


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


def nearest(units: Mapping[str, Unit], releases: Revisions) -> str:
    """The release of Megatron-LM that has the most of these units word for word."""
    return max(releases, key=lambda release: sum(releases[release].get(name) == unit for name, unit in units.items()))


def table_of(revisions: Revisions, rows: Iterable[tuple[str, int, int, str]] | None = None) -> Table:
    """The table of the units of each revision; `rows` are its first lines, if they aren't about these units alone."""
    texts = [{name: as_lines(unit) for name, unit in units.items()} for units in revisions.values()]
    own = ((name, *counted(units.values()), "") for name, units in revisions.items())
    return Table(
        tuple(own if rows is None else rows),
        {name: woven([units.get(name, ()) for units in texts]) for name in set().union(*texts)},
    )


def tables_of(programs: Mapping[str, Revisions]) -> dict[str, Table]:
    """The table of each upstream; Megatron-LM's has the units of what Megatron-Bridge's revisions pin, too."""
    found = {repo: table_of(revisions) for repo, revisions in programs.items() if repo not in ON_CORE}
    if len(found) == len(programs):
        return found
    core, bridge = (programs[repo] for repo in ON_CORE)
    pinned = {name: {one: unit for one, unit in units.items() if is_core(unit)} for name, units in bridge.items()}
    own = {name: {one: unit for one, unit in units.items() if not is_core(unit)} for name, units in bridge.items()}
    rows = ((name, *counted(units.values()), nearest(units, core)) for name, units in bridge.items())
    joined = {**core, **{f"{ON_CORE[1]}/{name}": units for name, units in pinned.items()}}
    return found | {ON_CORE[0]: table_of(joined), ON_CORE[1]: table_of(own, rows)}


def is_core(unit: Unit) -> bool:
    """Whether a unit of Bridge's program is of the Megatron-LM below it."""
    return unit.path.startswith(("megatron/core/", "megatron/training/"))


def only_needed(programs: Mapping[str, Revisions]) -> dict[str, Revisions]:
    """The programs without what decides nothing. Bridge runs on Megatron-LM, which reads what slime and miles set."""
    found: dict[str, Revisions] = {}
    named = {path for upstream in UPSTREAMS for path, _ in upstream.decorated}
    for repos in (ON_CORE, *((repo,) for repo in programs if repo not in ON_CORE)):
        every = {(repo, name): units for repo in repos for name, units in programs.get(repo, {}).items()}
        kept = needed_lines(every, "start", words_of_core(found) if repos[0] in BEFORE_CORE else (), named)
        for place, units in every.items():
            assert counted(units.values()) == counted(kept[place].values()), f"{place} has lost guards"
        found |= {repo: {name: kept[repo, name] for name in programs[repo]} for repo in repos if repo in programs}
    return found


def words_of_core(programs: Mapping[str, Revisions]) -> set[str]:
    """The words of Megatron-LM's functions and classes, of these programs or of the tables as they are."""
    if ON_CORE[0] not in programs:
        texts = (text for name, text in table.table_of(ON_CORE[0]).units.items() if name != OPTIONS)
    else:
        every = (unit for units in programs[ON_CORE[0]].values() for unit in units.values() if unit.name != OPTIONS)
        texts = ("\n".join(unit.lines) for unit in every)
    return {word for text in texts for word in WORD.findall(text)}


def read_of(upstream: UpstreamRoots, repository: Path, megatron_lm: Path | None) -> Revisions:
    """The units of each revision of an upstream, from its clone, or from an unpacked wheel for what the clone lacks."""
    revisions: dict[str, dict[str, Unit]] = {}
    for name, revision in revisions_of(upstream.repo, repository).items():
        text_of = texts_of(repository, revision)
        if upstream.repo == "megatron-bridge" and megatron_lm is not None:
            text_of = with_pinned(repository, revision, megatron_lm)
        if text_of(upstream.functions[0][1][0]) is None:
            text_of = wheel_texts(str(WHEELS / f"{upstream.repo}-{name}"), upstream)
        revisions[name] = units_of(text_of, upstream)
        guards, unreadable = counted(revisions[name].values())
        print(f"{name}: {guards} guards, {unreadable} unreadable", file=sys.stderr)
    return revisions


def main() -> int:
    parser = parser_of(__doc__)
    for upstream in UPSTREAMS:
        parser.add_argument(f"--{upstream.repo}", type=Path, metavar="GIT_DIRECTORY")
    parser.add_argument("--unreadable", action="store_true", help="list the guards that could not be read")
    options = parser.parse_args()
    given = {upstream: getattr(options, upstream.repo.replace("-", "_")) for upstream in UPSTREAMS}
    clones = {upstream: clone for upstream, clone in given.items() if clone is not None}
    if len({upstream.repo for upstream in clones} & {*ON_CORE}) == 1:
        parser.error(f"found one of {' and '.join(ON_CORE)}; wanted both: their tables share units")
    read = {upstream.repo: read_of(upstream, clone, options.megatron_lm) for upstream, clone in clones.items()}
    programs = {
        repo: {name: marked(units, OPTIONS) for name, units in revisions.items()}
        for repo, revisions in only_needed(read).items()
    }
    if options.unreadable:
        for units in (units for revisions in programs.values() for units in revisions.values()):
            show_unreadable(units)
    for repo, found in tables_of(programs).items():
        Path(FOLDER, f"{repo}.txt").write_text(written(found), encoding="utf-8")
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
