"""Starts the programs of checks/ as a user does, or with one part of hcp or upstream broken first."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from support.processes import HANG_S

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "checks"
_PATHS = [str(ROOT / "tests"), str(ROOT / "src")]


class Ran(NamedTuple):
    code: int
    report: dict[str, Any]
    stderr: str

    def held(self, *words: str) -> bool:
        """Whether the one result whose name has all `words` held."""
        matches = [result for result in self.report["results"] if all(word in result["name"] for word in words)]
        assert len(matches) == 1, f"{words} name {[result['name'] for result in matches]}"
        return matches[0]["ok"]

    def failed(self) -> list[str]:
        return [result["name"] for result in self.report["results"] if not result["ok"]]


def run_check(program: str, *arguments: str) -> Ran:
    """Runs `checks/PROGRAM.py --json` as a process of its own."""
    done = subprocess.run(
        [sys.executable, str(CHECKS / f"{program}.py"), *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return Ran(done.returncode, _report(done.stdout), done.stderr)


def run_in_fork(program: str, *arguments: str, patch: str = "") -> Ran:
    """The same in a fork of this process, where `patch` (Python) runs first.

    A fork, because so megatron-core is imported once for all these tests and not once for each.
    """
    for module in ("megatron.core.models.gpt", "megatron.core.hyper_comm_grid"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                sys.argv = [str(CHECKS / f"{program}.py"), *arguments, "--json", "--timeout", str(HANG_S)]
                exec(patch, {})
                runpy.run_path(sys.argv[0], run_name="__main__")
            except SystemExit as done:
                code = done.code if isinstance(done.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        out.seek(0)
        err.seek(0)
        return Ran(os.waitstatus_to_exitcode(status), _report(out.read()), err.read())


def _report(stdout: str) -> dict[str, Any]:
    return json.loads(stdout) if stdout.startswith("{") else {"results": [], "stdout": stdout}


def run_broken(jobs: dict[str, tuple[list[str], str]]) -> dict[str, Ran]:
    """Each program with its patch, in forks of one process that has imported Transformer Engine's newest wheel first.

    A process of its own: after that import torch is good for nothing else.

    Args:
        jobs: (program and its arguments, the patch) by name.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.programs"],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=CHECKS.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*_PATHS, *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return {name: Ran(*ran) for name, ran in json.loads(done.stdout.splitlines()[-1]).items()}


def _answer() -> None:
    from megatron_hcp.ground.upstream_folder import unpacked
    from megatron_hcp.proofs.te_cpu.module import load_with_module

    load_with_module(unpacked("transformer-engine"))
    jobs = json.loads(sys.stdin.read())
    print(json.dumps({name: run_in_fork(*words, patch=patch) for name, (words, patch) in jobs.items()}))


if __name__ == "__main__":
    _answer()
