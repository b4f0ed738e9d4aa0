"""What a package that is found empty answers to code that only looks at it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.proofs.te_cpu.absent import empty_module

pytestmark = pytest.mark.torch


def test_no_value_is_an_instance_of_an_empty_packages_class() -> None:
    arrays = empty_module("cupy")
    assert not isinstance(1, arrays.ndarray) and not isinstance(1, (arrays.ndarray, str))


def test_an_empty_packages_class_is_a_context_and_loses_what_is_taken_from_it() -> None:
    package = empty_module("trl")
    with package.Timer(name="update"):
        del package.GRPOTrainer.__init__


def test_no_loop_goes_over_an_empty_package() -> None:
    with pytest.raises(TypeError, match="_Anything"):
        iter(empty_module("datasets").load_dataset("squad"))


def test_who_looks_for_an_empty_package_finds_it(tmp_path: Path) -> None:
    code = """
import importlib.util, sys
from megatron_hcp.pretend.stand_ins import files
files.install()
assert importlib.util.find_spec("tensorboard") is not None
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_no_part_is_made_for_a_package_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "installed.py").write_text("def __getattr__(name): raise AttributeError(name)\n", encoding="utf-8")
    code = """
import importlib, sys
from megatron_hcp.pretend.stand_ins.packages import ImportedParts
from megatron_hcp.proofs.te_cpu.absent import AbsentPackages
for finder in (AbsentPackages(["installed", "absent"]), ImportedParts(["installed", "absent"])):
    sys.meta_path.append(finder)
    import absent.part, installed
    installed.__path__ = []
    try:
        importlib.import_module("installed.part")
    except ImportError:
        continue
    raise SystemExit("a part was made")
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
