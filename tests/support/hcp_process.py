"""`hcp` as a process of its own, forked from one that has imported it (hcp_parent.py): a start takes a tenth as long.

Arguments, folder, environment, standard streams and exit are its own. What Python reads as it starts (PYTHON*, the
locale) no fork can change: a test that sets such a variable gets a process that is started as a user starts it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from functools import cache
from pathlib import Path

from support.processes import HANG_S

_PIPE_BYTES = 65_536
"""What a pipe takes before anybody reads it."""


def run_hcp(
    *args: str | os.PathLike[str],
    cwd: Path | None = None,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`hcp ARGS` as a process of its own, its output captured."""
    command = [sys.executable, "-m", "megatron_hcp", *map(str, args)]
    environment = {**os.environ, **(env or {})}
    own = frozenset(item for item in environment.items() if item[0].startswith(("PYTHON", "LC_", "LANG")))
    if not own <= os.environ.items() or len((stdin or "").encode()) > _PIPE_BYTES:
        return subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=HANG_S, env=environment
        )
    parent = _parent(own)
    assert parent.stdin and parent.stdout
    request = {"words": command[3:], "cwd": str(cwd or Path.cwd()), "env": environment, "stdin": stdin}
    parent.stdin.write(json.dumps(request) + "\n")
    parent.stdin.flush()
    assert select.select([parent.stdout], [], [], HANG_S)[0], f"{command} hangs"
    code, *outputs = json.loads(parent.stdout.readline())
    texts = [text.encode("latin-1").decode().replace("\r\n", "\n").replace("\r", "\n") for text in outputs]
    return subprocess.CompletedProcess(command, code, *texts)


@cache
def _parent(variables: frozenset[tuple[str, str]]) -> subprocess.Popen[str]:
    """The process that forks, for these values of Python's own variables. It ends with this one."""
    script = Path(__file__).with_name("hcp_parent.py")
    return subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
