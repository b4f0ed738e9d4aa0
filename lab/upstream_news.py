"""What upstream has fixed since the last review: `python lab upstream_news megatron-lm=DIR verl=DIR`.

NAME is megatron-lm, megatron-bridge, transformer-engine, verl or another project of launch/facts/last_read.txt; DIR is
a checkout or a bare mirror: nothing is fetched. Prints the commits on its branches since the ones that the table
records, if they touch files of context parallelism, packing or attention and speak of a fix: date, pull request,
subject, and the rules that cite one of these files. A person reads them and adds rows to rules/known/. `--seen` then
records today's heads. A commit that is not in DIR is replaced by its newest tag.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

from program import ROOT, parser_of

from megatron_hcp.launch.facts.last_read import LastRead, parse, written

TABLE = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "last_read.txt"
_VERSION_FILES = ("megatron/core/package_info.py", "src/megatron/bridge/package_info.py", "nemo_rl/package_info.py",
                  "build_tools/VERSION.txt", "verl/version/version", "swift/version.py", "setup.py")  # fmt: skip
_VERSION = re.compile(
    r"MAJOR = (\d+)\s+MINOR = (\d+)\s+PATCH = (\d+)|^\s*(?:_*version_* ?= ?)?['\"]?(\d+)\.(\d+)\.(\d+)", re.MULTILINE
)
_SUBJECT = re.compile(
    r"fix|bug|wrong|incorrect|broken|crash|hang|deadlock|nan\b|revert|regress|silent|mismatch|reject|refuse|support",
    re.IGNORECASE,
)
_FILES = re.compile(
    r"context_parallel|cp_schedule|cp_layout|dynamic_cp|data_schedule|packed|packing|seq_params|attention|rope|rotary"
    r"|gpt_step|vlm_step|sft|multi_token|mamba|gated_delta|parallel_state|schedules\.py|arguments\.py|training/config"
    r"|mcore/util|engine/megatron|finalize_model_grads",
    re.IGNORECASE,
)
_NO_CODE = re.compile(r"(^|/)(tests?|docs?|examples|\.github|benchmarks?)/|\.(md|rst|ya?ml|toml|lock)$")


class Commit(NamedTuple):
    """A commit: its abbreviated id, its day, its subject, and the files that it touches."""

    id: str
    day: str
    subject: str
    files: tuple[str, ...]

    @property
    def pull_request(self) -> str:
        """`#6746`, or empty: the last number in brackets, since a cherry-pick names the first one before it."""
        found = re.findall(r"\(#(\d+)\)", self.subject)
        return f"#{found[-1]}" if found else ""


def commits_of(log: str) -> Iterator[Commit]:
    """The commits in the output of `git log --format=%x00%h%x09%as%x09%s --name-only`.

    >>> next(commits_of("\\0ab12\\t2026-08-01\\tFix CP (#12)\\n\\na/b.py\\n")).files
    ('a/b.py',)
    """
    for entry in log.split("\0")[1:]:
        head, *files = entry.splitlines()
        commit, day, subject = head.split("\t", 2)
        yield Commit(commit, day, subject, tuple(filter(None, files)))


def is_news(commit: Commit) -> bool:
    """Whether a person should read the commit: it speaks of a fix, and touches code that CP or packing runs through."""
    touched = (name for name in commit.files if not _NO_CODE.search(name))
    return bool(_SUBJECT.search(commit.subject)) and any(_FILES.search(name) for name in touched)


def cited_files() -> dict[str, set[str]]:
    """By upstream file, without a leading src/, the rules that cite it."""
    from megatron_hcp.rules.registry import RULES

    cited: dict[str, set[str]] = {}
    for rule in RULES:
        for source in rule.source:
            cited.setdefault(source.path, set()).add(rule.id)
    return cited


def line_of(commit: Commit, cited: dict[str, set[str]]) -> str:
    """What is printed about a commit."""
    rules = sorted({rule for name in commit.files for rule in cited.get(name.removeprefix("src/"), ())})
    some = " ".join(rules[:6]) + (f" and {len(rules) - 6} more" if len(rules) > 6 else "")
    return f"{commit.day} {commit.id} {commit.pull_request:>7} {commit.subject}" + (f"  [{some}]" if some else "")


def git(folder: Path, *arguments: str) -> str:
    """The output of git in a checkout or bare mirror; empty where the revision is not there."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    return done.stdout if done.returncode == 0 else ""


def heads(folder: Path, branches: Iterable[str]) -> dict[str, str]:
    """The branches that are followed, and their commits: the newer of a checkout's own and its remote's."""
    found = {}
    for branch in branches:
        names = (f"refs/remotes/origin/{branch}", f"refs/heads/{branch}")
        known = [name for name in names if git(folder, "rev-parse", "--verify", "-q", name)]
        if known:
            found[branch] = git(folder, "rev-list", "--max-count=1", *known).strip()
    return found


def newest_tag(folder: Path, head: str) -> str:
    return git(folder, "describe", "--tags", "--abbrev=0", head).strip()


def version_at(folder: Path, commit: str, before: str) -> str:
    """The version that the project's own files give it; `before` where none does."""
    texts = (git(folder, "show", f"{commit}:{path}") for path in _VERSION_FILES)
    found = next(filter(None, map(_VERSION.search, texts)), None)
    return ".".join(filter(None, found.groups())) if found else before


def renewed(row: LastRead, folder: Path, today: str) -> LastRead:
    """The row of a branch, at its head of today; as it was where the folder has no such branch."""
    head = heads(folder, (row.revision,)).get(row.revision)
    if head is None:
        return row
    day = git(folder, "log", "-1", "--format=%cs", head).strip()
    return row._replace(version=version_at(folder, head, row.version), commit=head, date=day, read_on=today)


def news(folder: Path, seen: str, head: str) -> list[Commit]:
    """What is new on a branch, the oldest first."""
    log = git(folder, "log", "--format=%x00%h%x09%as%x09%s", "--name-only", "--reverse", f"{seen}..{head}")
    return [commit for commit in commits_of(log) if is_news(commit)]


def report(folder: Path, rows: Iterable[LastRead], cited: dict[str, set[str]]) -> Iterator[str]:
    """What is new on each branch of a project; `rows` are its branches."""
    for row in rows:
        name, head = f"{row.project} {row.revision}", heads(folder, (row.revision,)).get(row.revision)
        if head is None:
            continue
        since = row.commit if git(folder, "rev-parse", "--verify", "-q", f"{row.commit}^{{commit}}") else ""
        if not since and (since := newest_tag(folder, head)):
            yield f"{name}: {row.commit[:12]} is not in {folder}: its newest tag is taken"
        if not since:
            yield f"{name}: {row.commit[:12]} is not in {folder}, nor a tag: nothing to compare with"
            continue
        found = news(folder, since, head)
        yield f"{name}: {len(found)} commits to read since {since[:12]}"
        yield from (f"  {line_of(commit, cited)}" for commit in found)


def named(texts: Iterable[str], projects: Iterable[str]) -> dict[str, Path]:
    """`NAME=DIR` texts."""
    found = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if name not in projects or not Path(folder).is_dir():
            raise SystemExit(f"found {text!r}; wanted NAME=DIR of a folder, NAME one of {', '.join(projects)}")
        found[name] = Path(folder)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("repositories", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--seen", action="store_true", help="after printing, record the heads as seen")
    parser.add_argument("--table", type=Path, default=TABLE, help="what was read  [default: the package's]")
    options = parser.parse_args()
    text = options.table.read_text(encoding="utf-8")
    rows = parse(text)
    branches = [row for row in rows if row.commit]
    folders = named(options.repositories, list(dict.fromkeys(row.project for row in branches)))
    cited = cited_files()
    for name, folder in folders.items():
        for line in report(folder, (row for row in branches if row.project == name), cited):
            print(line)
    if options.seen:
        today = str(date.today())
        new = [renewed(row, folders[row.project], today) if row in branches and row.project in folders else row
               for row in rows]  # fmt: skip
        options.table.write_text(written(text, new), encoding="utf-8")


if __name__ == "__main__":
    main()
