"""A command that is asked to stop cleans up first, and says by its exit code what stopped it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

CODE = """
import os, signal, sys
from megatron_hcp.ground.signals import ends_cleanly
number = getattr(signal, sys.argv[1])
if "ignored" in sys.argv:
    signal.signal(number, signal.SIG_IGN)
class Last:
    def __del__(self):  # while Python ends, when it has given up its own handlers
        os.kill(os.getpid(), number)
kept = Last()
with ends_cleanly():
    try:
        os.kill(os.getpid(), number)
        print("goes on")
    finally:
        os.kill(os.getpid(), number)
        print("cleaned up")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_the_first_signal_ends_the_command_and_the_second_does_not_end_the_cleaning_up(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, name], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + getattr(signal, name), "cleaned up\n", "")


IN_CALLBACK = """
import os, signal, sys, time, weakref
from megatron_hcp.ground.signals import ends_cleanly
class Thing: pass
thing = Thing()
asks = weakref.ref(thing, lambda _: os.kill(os.getpid(), getattr(signal, sys.argv[1])))
with ends_cleanly():
    del thing  # Python drops what is raised in the callback
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_callback_of_python_ends_the_command_too(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", IN_CALLBACK, name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + getattr(signal, name), "")


def test_what_the_caller_ignores_stays_ignored() -> None:
    """As under `nohup`."""
    done = subprocess.run([sys.executable, "-c", CODE, "SIGHUP", "ignored"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "goes on\ncleaned up\n")
