"""Runs the programs of this folder: `python lab NAME …`, where NAME is a file's name without .py, as in plan/legal.

`python lab` alone lists them; README.md says what each shows and when it is run. Here alone stands where they and the
processes that they start find their modules: in src, tests and lab/lib, beside the program, and in this folder.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

LAB = Path(__file__).resolve().parent
ROOT = LAB.parent


def programs() -> dict[str, Path]:
    """By name, each file that does something when it is run."""
    files = (file for file in sorted(LAB.rglob("*.py")) if LAB / "lib" not in file.parents and file != Path(__file__))
    return {
        file.relative_to(LAB).with_suffix("").as_posix(): file
        for file in files
        if 'if __name__ == "__main__":' in file.read_text(encoding="utf-8")
    }


def main() -> None:
    known = programs()
    if len(sys.argv) == 1:
        for name, file in known.items():
            shown = (
                (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
                .partition("\n")[0]
                .partition("`python lab")[0]
            )
            print(f"{name:<22} {shown.rstrip(' :')}")
        return
    name = sys.argv[1]
    if name not in known:
        sys.exit(f"lab: found {name!r}; wanted one of {', '.join(known)}")
    source = str(ROOT / "src")
    # The program's folder comes after lib: lab/agree.py imports the package lib/agree.
    sys.path[:1] = [source, str(ROOT / "tests"), str(LAB / "lib"), str(known[name].parent), str(LAB)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    del sys.argv[1]
    runpy.run_path(str(known[name]), run_name="__main__")


if __name__ == "__main__":
    main()
