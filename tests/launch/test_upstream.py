"""Whose code `--upstream` names, and which release: told by the folder, never by running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Fact, UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.upstream import recognised, upstreams_of

INFO = "MAJOR = 0\nMINOR = 21\nPATCH = 0\nPRE_RELEASE = 'rc1'\n"


def tree(folder: Path, file: str, text: str = INFO) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("file", "text", "repo", "release"),
    [
        ("megatron/core/package_info.py", INFO, "megatron-lm", "0.21.0rc1"),
        ("src/megatron/bridge/package_info.py", INFO, "megatron-bridge", "0.21.0rc1"),
        ("megatron/bridge/package_info.py", INFO, "megatron-bridge", "0.21.0rc1"),
        ("verl/version/version", "0.9.1\n", "verl", "0.9.1"),
        ("swift/version.py", "__version__ = '4.1.0'\n", "ms-swift", "4.1.0"),
        ("slime/utils/arguments.py", "", "slime", None),
    ],
)
def test_a_folder_tells_whose_code_it_is_and_which_release(
    tmp_path: Path, file: str, text: str, repo: str, release: str | None
) -> None:
    folder = str(tree(tmp_path, file, text))
    assert upstreams_of([folder]) == (UpstreamTree(repo, folder, release),)
    assert upstreams_of([f"{repo}={folder}"], cached=False) == (UpstreamTree(repo, folder, release, False),)


def test_a_folder_of_installed_packages_has_the_code_of_several(tmp_path: Path) -> None:
    tree(tree(tmp_path, "megatron/core/package_info.py"), "megatron/bridge/package_info.py")
    assert recognised(str(tmp_path)) == ["megatron-lm", "megatron-bridge"]
    assert [item.repo for item in upstreams_of([f"bridge={tmp_path}"])] == ["megatron-bridge"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "which is no code of upstream"),
        ("{}/nowhere", "no such folder"),
        ("", "an empty text"),
        (__file__, "which is a file"),
        ("verl={}", "no code of verl"),
        ("nonsense={}", "a name that is unknown"),
    ],
)
def test_a_folder_that_is_not_what_it_is_called_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(HcpError, match=says):
        upstreams_of([text.format(tmp_path)])


def test_the_release_of_the_code_is_a_fact_unless_another_is_stated(tmp_path: Path) -> None:
    trees = upstreams_of([str(tree(tmp_path, "megatron/core/package_info.py"))])
    words = ("--context-parallel-size", "2")
    launch = load_launch("", LoadOptions(words=words, upstream=trees))
    assert launch.facts["mcore"] == Fact("0.21.0rc1", "upstream")
    stated = load_launch("", LoadOptions(words=words, upstream=trees, assumes=("mcore=0.20.0",)))
    assert stated.facts["mcore"].value == "0.20.0"
    assert stated.reading.upstream == trees


def test_the_dev_branch_is_told_by_its_scheduler(tmp_path: Path) -> None:
    tree(tmp_path, "megatron/core/package_info.py")
    tree(tmp_path, "megatron/core/datasets/data_schedule.py", "class DefaultDynamicCPScheduler: ...\n")
    launch = load_launch("", LoadOptions(words=("--seq-length", "2"), upstream=upstreams_of([str(tmp_path)])))
    assert launch.facts["mcore_branch"] == Fact("dev", "upstream")


def test_a_repository_has_one_folder(tmp_path: Path) -> None:
    one, two = (str(tree(tmp_path / name, "megatron/core/package_info.py")) for name in ("one", "two"))
    assert [item.path for item in upstreams_of([one, one])] == [one]
    with pytest.raises(HcpError, match="wanted one folder for each repository"):
        upstreams_of([one, two])
