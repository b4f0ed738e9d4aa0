"""Imports: rooms to the left only, no circles, nothing heavy where it is not used. support/tree.py has the chains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.rows import rows
from support.tree import (
    HEAVY,
    MODULES,
    PACKAGE,
    ROOT,
    WITH_TORCH,
    circles_in,
    imported,
    name_of,
    room_of,
    rooms,
    wrong_imports,
)

pytestmark = pytest.mark.xdist_group("tree")  # what is parsed once serves all of them

each_module = rows("path", MODULES)


@each_module
def test_imports_point_to_the_left_only(path: Path) -> None:
    if name_of(path) == "megatron_hcp.__main__":
        assert imported(path) >= {"megatron_hcp.cli.main"}
    else:
        assert wrong_imports(name_of(path), imported(path)) == set()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("megatron_hcp.core.ranks", "megatron_hcp.launch.fact"),
        ("megatron_hcp.core.ranks", "megatron_hcp.resources.more"),
        ("megatron_hcp.triage.read", "megatron_hcp.render.job"),
        ("megatron_hcp.draw.groups", "megatron_hcp.rules.rule"),
        ("megatron_hcp.runtime.groups", "megatron_hcp.proofs.world"),
        ("megatron_hcp.skills.card", "megatron_hcp.cli.verify.command"),
        ("megatron_hcp.cli.verify.command", "megatron_hcp.proofs.world"),
        ("megatron_hcp.launch.forms.words.split", "megatron_hcp.launch.dialects.table"),
        ("megatron_hcp.rules.cp.heads", "megatron_hcp.rules.dcp.view"),
        ("megatron_hcp.rules.moe", "megatron_hcp.rules.tp"),
        ("megatron_hcp.rules.view", "megatron_hcp.rules.moe"),
        ("megatron_hcp.rules.moe", "megatron_hcp.rules.registry"),
    ],
)
def test_an_upward_arrow_is_seen(module: str, name: str) -> None:
    assert wrong_imports(module, frozenset((name, "megatron_hcp.ground.errors", "megatron_hcp", "json"))) == {name}


def test_every_folder_is_a_room() -> None:
    assert {room_of(name_of(path)) for path in MODULES} - {""} <= rooms().keys()


def test_no_modules_import_each_other() -> None:
    circles = circles_in({name_of(path): set(imported(path)) for path in MODULES})
    assert not circles, "\n".join(circles)


def test_a_circle_is_seen() -> None:
    assert circles_in({"a": {"b", "json"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"f", "e"}}) in (
        ["a <- c <- b <- a", "d <- e <- d"],
        ["d <- e <- d", "a <- c <- b <- a"],
    )


@each_module
def test_torch_is_imported_where_a_training_job_or_a_proof_runs(path: Path) -> None:
    heavy = {name.partition(".")[0] for name in imported(path)} & HEAVY
    assert not heavy or room_of(name_of(path)) in WITH_TORCH


def test_core_imports_the_standard_library_only() -> None:
    core = [path for path in MODULES if room_of(name_of(path)) == "core"]
    assert {name.partition(".")[0] for path in core for name in imported(path)} <= {
        *sys.stdlib_module_names,
        "megatron_hcp",
    }


def test_every_command_is_listed_with_a_module_that_exists() -> None:
    from megatron_hcp.cli.main import COMMANDS

    for name, (module, text) in COMMANDS.items():
        file = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        assert file.is_file() and f"def {name}(" in file.read_text(encoding="utf-8"), name
        assert text.endswith("."), name


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        ([], {"torch", "numpy", "megatron", "jinja2", "click"}),
        (
            ["check", "examples/bridge_hcp.yaml", "-o", f"json={Path('/dev/null')}"],
            {"torch", "numpy", "megatron", "jinja2", "omegaconf", "rich", "tree_sitter", "jsonschema", "click"},
        ),
        (
            ["check", "examples/mlm_hcp.sbatch", "-o", f"json={Path('/dev/null')}"],
            {"yaml", "pathlib", "jinja2", "rich", "click"},
        ),
    ],
    ids=["import", "yaml", "script"],
)
def test_what_starts_often_loads_nothing_heavy(arguments: list[str], absent: set[str]) -> None:
    """Start-up is a promise: of the command line, and of the check of a launch."""
    code = (
        "import json, sys\n"
        "from megatron_hcp.cli.main import main\n"
        "try:\n    sys.argv[1:] and main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert ("megatron_hcp.judge.engine" in loaded) == bool(arguments), done.stderr
    assert not loaded & absent
