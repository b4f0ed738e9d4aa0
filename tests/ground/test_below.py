"""What may be read below a folder, whatever a name from outside says."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from megatron_hcp.ground.below import file_below, folder_below
from megatron_hcp.ground.errors import HcpError

WANTED = "a card"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file, links that stay in it, and links out of it."""
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "x.md").write_text("mine")
    (root / "inner.md").symlink_to("real/x.md")
    (root / "inner").symlink_to("real")
    (tmp_path / "secret").write_text("s")
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "x.md").write_text("s")
    (root / "link.md").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    (root / "nowhere").symlink_to(tmp_path / "none")
    (root / "loop").symlink_to("loop")
    return root


@pytest.mark.parametrize("name", ["real/x.md", "./real//x.md", "real/../real/x.md", "inner.md", "inner/x.md"])
def test_a_file_in_the_folder_is_found(root: Path, name: str) -> None:
    found = file_below(str(root), name, WANTED)
    assert found is not None and Path(found).read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret", "real/../../secret", "../root2/x.md", "/etc/passwd", "//etc/passwd", "none", "a\0b",
     "x" * 5000, "real/x.md/y", "real/../.."],
)  # fmt: skip
def test_a_name_that_leads_out_or_nowhere_means_no_file(root: Path, name: str) -> None:
    assert file_below(str(root), name, WANTED) is None


def test_an_absolute_name_means_nothing_even_inside_the_folder(root: Path) -> None:
    assert file_below(str(root), str(root / "real" / "x.md"), WANTED) is None
    assert folder_below(str(root), str(root / "real"), WANTED) is None


@pytest.mark.parametrize("name", ["link.md", "out/secret", "out/root2/x.md", "nowhere"])
def test_a_link_out_is_refused_unless_an_installer_made_it(root: Path, name: str) -> None:
    with pytest.raises(HcpError, match="leads elsewhere; wanted a card inside"):
        file_below(str(root), name, WANTED)
    if name == "link.md":
        assert file_below(str(root), name, WANTED, follow=True) == str(root / name)


def test_what_is_no_regular_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
        for name in ("pipe", "socket", "real", "inner", "loop"):
            with pytest.raises(HcpError, match="is not a regular file; wanted a card"):
                file_below(str(root), name, WANTED)


def test_a_name_may_start_from_another_folder_as_long_as_it_ends_below(root: Path) -> None:
    assert file_below(str(root), "../real/x.md", WANTED, of=str(root / "deep")) == str(root / "real" / "x.md")
    assert file_below(str(root), "x.md", WANTED, of=str(root.parent / "root2")) is None


def test_the_folder_itself_may_be_a_link_and_relative(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root.parent / "alias").symlink_to(root)
    monkeypatch.chdir(root.parent)
    assert file_below("alias", "real/x.md", WANTED) == "alias/real/x.md"
    monkeypatch.chdir(root)
    assert file_below("", "real/x.md", WANTED) == "real/x.md"


@pytest.mark.parametrize("name", ["real", "inner", "./real/", "real/../inner"])
def test_a_folder_below_is_found(root: Path, name: str) -> None:
    found = folder_below(str(root), name, WANTED)
    assert found is not None and os.path.samefile(found, root / "real")


@pytest.mark.parametrize("name", ["", "..", "../root2", "real/../../root2", "/etc", "none", "real/x.md", "a\0b"])
def test_a_name_that_leads_out_or_nowhere_means_no_folder(root: Path, name: str) -> None:
    assert folder_below(str(root), name, WANTED) is None


@pytest.mark.parametrize("name", ["out", "out/root2"])
def test_a_link_out_of_the_folder_is_no_folder_below(root: Path, name: str) -> None:
    with pytest.raises(HcpError, match="leads elsewhere; wanted a card inside"):
        folder_below(str(root), name, WANTED)


@example(name="../x")
@example(name="/etc/passwd")
@given(name=st.text("./ax\0~-", max_size=12) | st.text(max_size=6))
def test_no_name_finds_what_lies_outside(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    outer = tmp_path_factory.getbasetemp() / "any"
    (outer / "a" / "x").mkdir(parents=True, exist_ok=True)
    for place in (outer / "x", outer / "a" / "a"):
        place.touch()
    try:
        found = file_below(str(outer / "a"), name, WANTED)
    except HcpError:
        return
    assert found in (None, str(outer / "a" / "a"))
