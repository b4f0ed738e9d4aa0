"""The start of every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECK = "from hcp.cli.main import main; main(['check', 'launch.yaml'])"


def loaded_by(code: str, folder: Path) -> set[str]:
    """The modules that a process has when it ends."""
    listing = "import atexit, sys; atexit.register(lambda: print(*sys.modules, sep='\\n', file=sys.stderr)); "
    done = subprocess.run([sys.executable, "-c", listing + code], capture_output=True, text=True, cwd=folder)
    return set(done.stderr.split())


def test_a_check_loads_no_module_that_it_does_not_use(tmp_path: Path) -> None:
    """A check is over in 0.1 s: each of these takes a hundredth of it, or more."""
    (tmp_path / "launch.yaml").write_text("model: {context_parallel_size: 4}\n")
    loaded = loaded_by(CHECK, tmp_path)
    assert {"hcp.rules.engine", "hcp.launch.yaml.bridge"} <= loaded
    unused = {"json", "pathlib", "shlex", "subprocess", "tempfile", "jinja2", "tree_sitter", "hcp.launch.options"}
    assert not unused & (loaded - loaded_by("import click, yaml", tmp_path))
