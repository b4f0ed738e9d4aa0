"""A process that runs upstream's code: it is asked one line of JSON at a time, and answers each with one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent / "upstream"
PYTHON = "HCP_AGREE_PYTHON"
"""The variable that names the interpreter for upstream's code, where it needs packages that this one lacks."""


class Upstream:
    """Upstream's code in a process of its own. It writes one object when it is ready: `ready`."""

    def __init__(self, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Starts `program`, a file beside this one, with the interpreter of `PYTHON`, else with this one."""
        self._process = subprocess.Popen(
            [os.environ.get(PYTHON, sys.executable), str(_HERE / program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.ready: dict[str, Any] = self.answer()

    def answer(self) -> dict[str, Any]:
        """The next object that the process writes."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process with upstream's code ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.send(question)
        return self.answer()

    def send(self, question: Mapping[str, Any]) -> None:
        """Asks without waiting: the answer is read later, in the order of the questions."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def ask_all(self, questions: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        for question in questions:
            yield self.ask(question)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def commit_of(checkout: Path) -> str:
    """The commit that a checkout is at; "unknown" for a tree without git."""
    found = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"
