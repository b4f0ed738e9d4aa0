"""Imports hcp once, then runs it in a fork for each line of standard input: words, folder, environment, input.

A script, so that it imports nothing but hcp. It answers each line with the exit code and both outputs.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # the folder of this file

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import tempfile
from pathlib import Path
from typing import Any

import megatron_hcp
from megatron_hcp.cli.main import main

_LEFT_OUT = frozenset(
    f"megatron_hcp.{name}" for name in ("runtime", "proofs", "integrations", "pretend", "mcp", "lsp", "__main__")
)
"""What imports torch or a server, or exits: each fork would copy the tables of its memory."""


def _import_all(packages: Any = megatron_hcp) -> None:
    for module in pkgutil.iter_modules(packages.__path__, f"{packages.__name__}."):
        if module.name not in _LEFT_OUT:
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                imported = importlib.import_module(module.name)
                if module.ispkg:
                    _import_all(imported)


def _warm() -> None:
    """Checks and renders examples here: what tables, patterns and templates are made into then serves every fork."""
    arguments = sys.argv
    examples = Path(__file__).parents[2] / "examples"
    launches = [str(examples / name) for name in ("bridge_hcp.yaml", "mlm_hcp.sbatch", "verl_dcp.yaml")]
    for words in [["check", *launches], ["render", launches[1]]]:
        sys.argv = ["hcp", *words]
        with (
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
            contextlib.suppress(SystemExit),
        ):
            main()
    sys.argv = arguments


def _become_hcp(request: dict[str, Any], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    if request["stdin"] is not None:
        reads, writes = os.pipe()
        os.write(writes, request["stdin"].encode())
        os.dup2(reads, 0)
        os.close(reads)
        os.close(writes)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["hcp", *request["words"]]
    try:
        main()
    except SystemExit as done:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(done.code or 0))  # Python would also take down each module, which takes longer than most commands


def _answer() -> None:
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    _import_all()
    _warm()
    assert "torch" not in sys.modules, "a fork for each command is then three times as slow"
    gc.collect()
    gc.freeze()
    for line in requests:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                _become_hcp(json.loads(line), out.fileno(), err.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode("latin-1"))
        answers.write(json.dumps([code, *texts]) + "\n")
        answers.flush()


if __name__ == "__main__":
    _answer()
