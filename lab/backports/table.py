"""Writes the table of `hcp backports` from upstream's histories: `python lab backports/table NAME=GIT_DIR...`

NAME is one of `upstream_fixes.table.PROJECTS`; GIT_DIR is a clone with its whole history and its tags. A project
that is not named keeps its rows. Of each commit on the main branch whose subject says that it fixes something, the
releases are found that hold the lines which it replaced and not those that it wrote instead; what its subject is about
decides whom it concerns.
"""

from __future__ import annotations

import sys
from pathlib import Path

from program import ROOT, parser_of
from upstream_fixes.table import PROJECTS, section

FILE = ROOT / "src" / "megatron_hcp" / "backports" / "backports.txt"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("clones", nargs="+", metavar="NAME=GIT_DIR")
    clones = parser.parse_args().clones
    before = f"\n{FILE.read_text('utf-8')}".split("\n# ")[1:] if FILE.exists() else []
    parts = {text.split(" ", 1)[0]: f"# {text.strip()}\n" for text in before}
    for word in clones:
        name, _, folder = word.partition("=")
        if name not in PROJECTS or not (Path(folder).is_dir()):
            sys.exit(f"found {word}; wanted NAME=GIT_DIR with NAME one of {', '.join(PROJECTS)}")
        parts[name] = section(name, Path(folder))
    FILE.write_text("".join(parts[name] for name in PROJECTS if name in parts), "utf-8")


if __name__ == "__main__":
    main()
