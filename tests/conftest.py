"""How tests start `hcp` as a user would. support/selection.py says which tests run, support/needs.py what they need."""

from __future__ import annotations

import compileall
import os
import signal
import sys
from pathlib import Path

import pytest

from support.hcp_process import run_hcp
from support.ranks import ranks
from support.slurm import slurm

__all__ = ["ranks", "slurm"]

pytest_plugins = ["support.selection", "support.needs"]

ROOT = Path(__file__).resolve().parents[1]

# What runs the tests in the background may have told them to ignore signals, and subprocesses inherit that.
for _signal in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(_signal, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# So that subprocesses (`python -m megatron_hcp`, torchrun) find this checkout, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
sys.path.insert(0, str(ROOT / "src"))

# Where PYTHONDONTWRITEBYTECODE is set, a start of hcp takes twice as long as an installed one, and pytest compiles 400
# modules of tests anew on every process of every run.
compileall.compile_dir(ROOT / "src", quiet=2)
sys.dont_write_bytecode = False


@pytest.fixture
def hcp():
    return run_hcp


@pytest.fixture
def root() -> Path:
    return ROOT
