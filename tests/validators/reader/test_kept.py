"""Programs in hcp's cache: the same as read anew, until a file of the tree changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground import cache
from megatron_hcp.validators.program import StartProgram, as_lines
from megatron_hcp.validators.reader.checkout import program_of_folder
from megatron_hcp.validators.reader.kept import program_of_tree
from support.small_upstream import ARGUMENTS, small_upstream


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hcp"


def lines(program: StartProgram) -> tuple[object, ...]:
    units = [program.find(name) for name in ("start", "validate_args", "options")]
    return (*program[:2], program.guards, *(as_lines(unit) for unit in units if unit is not None))


def test_a_program_from_the_cache_is_the_one_that_was_read(tmp_path: Path, home: Path) -> None:
    tree = small_upstream(tmp_path / "tree")
    read, (entry,) = program_of_tree(tree), home.iterdir()
    assert "our_own_switch" in entry.read_text()
    assert lines(program_of_tree(tree)) == lines(read) == lines(program_of_folder(tree))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    tree = small_upstream(tmp_path / "tree")
    before = program_of_tree(tree)
    small_upstream(tmp_path / "tree", ARGUMENTS.replace("== 1,", "== 2,"))
    after = program_of_tree(tree)
    assert lines(before) != lines(after) == lines(program_of_folder(tree))


def test_a_file_that_is_new_is_read(tmp_path: Path) -> None:
    """One that was looked for, and not there."""
    tree = small_upstream(tmp_path / "tree")
    program_of_tree(tree)
    (tmp_path / "tree/megatron/training/argument_utils.py").write_text(
        "def core_transformer_config_from_args(args):\n    assert args.micro_batch_size != 3\n"
    )
    assert program_of_tree(tree).find("core_transformer_config_from_args") is not None


@pytest.mark.parametrize("text", ["[]", "null", '{"files": {}, "units": [[]], "repo": "megatron-lm", "version": ""}'])
def test_an_entry_that_is_no_program_is_read_anew(tmp_path: Path, home: Path, text: str) -> None:
    tree = small_upstream(tmp_path / "tree")
    read, (entry,) = program_of_tree(tree), home.iterdir()
    entry.write_text(text)
    assert lines(program_of_tree(tree)) == lines(read)


def test_without_a_folder_for_the_cache_the_program_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert program_of_tree(small_upstream(tmp_path / "tree")).guards == 1
    assert cache.kept(cache.digest_of(["x"])) is None
