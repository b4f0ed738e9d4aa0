"""The tree keeps its promises: layers import to the left only, torch stays in runtime, modules stay small."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "hcp"
LAYERS = {"core": 0, "launch": 1, "rules": 2, "cards": 3, "slurm": 3, "plan": 3, "cli": 4}
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 300


def imported(path: Path) -> set[str]:
    """Every module name that a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def layer_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_to_the_left_only(path: Path) -> None:
    mine = layer_of(path)
    for name in imported(path):
        match = re.match(r"hcp\.(\w+)", name)
        if match is None or match[1] not in {*LAYERS, "runtime"}:
            continue
        other = match[1]
        if mine == "runtime":
            assert other in ("runtime", "core"), f"runtime imports {name}"
        elif mine in LAYERS and other != mine:
            assert other != "runtime", f"{mine} imports {name}; only checks/ may"
            assert LAYERS[other] < LAYERS[mine], f"{mine} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_runtime_imports_torch(path: Path) -> None:
    heavy = {name.partition(".")[0] for name in imported(path)} & {"torch", "megatron", "tensordict"}
    assert not heavy or layer_of(path) == "runtime"


@pytest.mark.parametrize(
    "path",
    [path for path in MODULES if layer_of(path) == "core"],
    ids=lambda path: path.relative_to(PACKAGE).as_posix(),
)
def test_core_imports_the_standard_library_only(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "hcp"}
    assert {name.partition(".")[0] for name in imported(path)} <= allowed


def test_modules_stay_within_their_budget() -> None:
    long = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > MAX_LINES} == {}


def test_every_command_is_listed_with_a_module_that_exists() -> None:
    from hcp.cli.main import COMMANDS

    for name, (module, text) in COMMANDS.items():
        file = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        assert file.is_file() and f"def {name}(" in file.read_text(encoding="utf-8"), name
        assert text.endswith("."), name


def test_a_check_loads_nothing_heavy(root: Path) -> None:
    """Start-up is a promise: the check of a YAML launch imports no torch, numpy, megatron, jinja2, omegaconf, rich."""
    code = (
        "import json, sys\n"
        "from hcp.cli.main import main\n"
        "try:\n    main(['check', sys.argv[1], '-o', 'json=/dev/null'])\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write(json.dumps(sorted(name.partition('.')[0] for name in sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root / "examples" / "bridge_hcp.yaml")], capture_output=True, text=True
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "yaml" in loaded, done.stderr
    assert not loaded & {"torch", "numpy", "megatron", "jinja2", "omegaconf", "rich", "tree_sitter", "jsonschema"}


def test_no_path_of_one_machine_is_committed() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pattern = re.compile("/(?:root|work|farm)/" + r"|/home/[a-z]+/")
    found = []
    for name in files:
        path = ROOT / name
        if path.suffix in (".png", ".svg") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [name for _ in pattern.findall(text)]
    assert found == []
