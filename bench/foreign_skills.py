"""What `hcp skills validate` and `hcp anchors` say of other people's skills.

    python bench/foreign_skills.py megatron-bridge=DIR megatron-lm=DIR anthropics-skills=DIR [--write]

Each DIR is a checkout with a folder `skills`; lines that a skill cites are looked for in all of them. `--write` puts
the table into docs/foreign_skills.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "foreign_skills.md"


def hcp(*words: str) -> Any:
    done = subprocess.run([sys.executable, "-m", "hcp", *words, "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def commit_of(folder: Path) -> str:
    """The commit that a checkout says it is of, by git or by a file COMMIT beside it."""
    noted = folder / "COMMIT"
    if noted.is_file():
        return noted.read_text().strip()
    done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def rows_of(name: str, folder: Path, repos: list[str]) -> list[str]:
    skills = hcp("skills", "validate", str(folder / "skills"))["skills"]
    citations = hcp("anchors", str(folder / "skills"), *repos)["citations"]
    keys = Counter(
        fault.split(": ")[1] for each in skills.values() for fault in each["faults"] if "unknown key" in fault
    )
    faulty = sum(bool(each["faults"]) for each in skills.values())
    dead = sum(".md links to" in fault for each in skills.values() for fault in each["faults"])
    advised = sum(bool(each["advice"]) for each in skills.values())
    counts = Counter(row["status"] for row in citations)
    quoted = Counter(row["status"] for row in citations if row["lines"])
    statuses = ("right", "moved", "drifted", "gone", "unverified here")
    return [
        f"| {name} ({commit_of(folder)}) | {len(skills)} | {faulty} | {dead} | "
        f"{', '.join(f'{key} {number}' for key, number in keys.most_common(3)) or '-'} | {advised} | "
        + " | ".join(f"{counts[status]} ({quoted[status]})" for status in statuses)
        + " |"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    folders = {text.partition("=")[0]: Path(text.partition("=")[2]) for text in given.checkouts}
    repos = [word for name, folder in folders.items() for word in ("--repo", f"{name}={folder}")]
    lines = [
        "# Other people's skills",
        "",
        "What `hcp skills validate DIR` and `hcp anchors DIR` say of public skills, written by",
        "`bench/foreign_skills.py`. A fault breaks the Agent Skills specification, or is a link that leads nowhere;",
        "advice is what a public quality gate wants beyond it.",
        "Citations are fences `start:end:path` and paths in code spans; those with line numbers are counted again in",
        "brackets.",
        "",
        "| skills (commit) | number | with faults | dead links | unknown keys | with advice | right | moved | "
        "drifted | gone | unverified here |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, folder in folders.items():
        lines += rows_of(name, folder, repos)
    lines += [
        "",
        "`moved`: the quoted lines stand elsewhere in the file; `drifted`: some of them; `gone`: none, or no such",
        "file. For each, `hcp anchors` names the function that the lines are in, which outlasts a line number.",
    ]
    print("\n".join(lines))
    if given.write:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
