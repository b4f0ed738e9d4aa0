"""What a tool says to a case: its exit code, and everything that it prints."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpbench.case import Case

_LONGEST_S = 60


class Answer(NamedTuple):
    """Exit code 0 means ok, 1 refused, anything else no answer.

    `text` is why it refused; `told` is what it said beside that: warnings and notes.
    """

    code: int
    text: str
    told: str = ""


COLUMNS = (
    "ok",
    "false error",
    "upstream's fault",
    "undecided",
    "refused",
    "told",
    "wrong cause",
    "silent",
    "no answer",
)
Tool = Callable[[Case], Answer]


def outcome_of(case: Case, answer: Answer) -> str:
    """One of `COLUMNS`: the first four are of launches that start, the others of those that do not."""
    if answer.code not in (0, 1):
        return "undecided" if case.expect == "ok" else "no answer"
    if case.expect == "ok":
        return "false error" if answer.code else "ok"
    if answer.code == 0:
        return "told" if any(name in answer.told for name in case.names) else "silent"
    return "refused" if any(name in answer.text for name in case.names) else "wrong cause"


def says_ok(case: Case) -> Answer:
    """The baseline: a tool that reads nothing."""
    return Answer(0, "")


def command(tool: str) -> Tool:
    """A tool as a command line; in it `{file}` is the case's file, and `{versions}` its releases, each a word."""
    words = shlex.split(tool)

    def answer(case: Case) -> Answer:
        with _on_disk(case) as (folder, file):
            try:
                done = subprocess.run(
                    list(_filled(words, file, case)), cwd=folder, capture_output=True, text=True, timeout=_LONGEST_S
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return Answer(2, str(error))
        said = done.stdout + done.stderr
        return Answer(done.returncode, said, said)

    return answer


def ours(*, versions: bool, upstream: Sequence[Path] = ()) -> Tool:
    """`hcp check` in this process, with or without the case's releases.

    `upstream`: checkouts that it reads, each for the cases that name its folder.
    """
    from megatron_hcp.cli.main import main

    def answer(case: Case) -> Answer:
        assumed = [word for version in case.versions if versions for word in ("--assume", version)]
        read = [word for tree in upstream if f":{tree.name}:" in f":{case.id}" for word in ("--upstream", str(tree))]
        out, before = io.StringIO(), Path.cwd()
        with _on_disk(case) as (folder, file), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            os.chdir(folder)
            try:
                main(["check", file, "--format", "json", "--full", *assumed, *read, *case.argv])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1 if end.code else 0
            finally:
                os.chdir(before)
        return _answer(code, out.getvalue())

    return answer


def _answer(code: int, said: str) -> Answer:
    """The text of the errors, and that of the other findings: what is not checked or undecided names settings, too."""
    try:
        found = json.loads(said)
    except ValueError:
        return Answer(code, said)
    launches = found.get("results") or [found]
    findings = [item for one in launches for item in one.get("findings", ())]
    errors, others = (
        [item for item in findings if (item["severity"] == "error") is is_error] for is_error in (True, False)
    )
    undecided = [str(item) for one in launches for item in one.get("undecided", ())]
    later = [
        f"{item['reference']} {item['when']}: {item['message']}" for one in launches for item in one.get("faults", ())
    ]
    close = [str(item["closest"]) for one in launches for item in one.get("backports", ()) if "closest" in item]
    refused = [str(found["error"])] if "error" in found else []
    return Answer(
        code,
        "\n".join([_line(item) for item in errors] or undecided or refused),
        "\n".join([*map(_line, others), *later, *close]),
    )


def _line(finding: Mapping[str, Any]) -> str:
    return " ".join([*(finding[part] for part in ("rule", "message", "found", "expected")), *finding["keys"]])


@contextlib.contextmanager
def _on_disk(case: Case) -> Iterator[tuple[Path, str]]:
    """(the folder to run in, the case's file there)"""
    if case.tree:
        yield Path(case.tree), case.file
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        yield Path(folder), case.file


def _filled(words: Sequence[str], file: str, case: Case) -> Iterator[str]:
    for word in words:
        if word == "{versions}":
            yield from case.versions
        else:
            yield word.replace("{file}", file)
