"""Anchors are found by name and content; every anchor of rules and cards holds in the sources that PyPI has."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.rules.rule import Source
from megatron_hcp.skills.anchors import Anchor, Root, all_anchors, named_root, unpacked_roots, verdicts

CODE = """\
class Attention:
    def forward(self, group):
        if group is None:
            cp_size = 1
        return cp_size


def helper():
    return "unique text"
"""


def verdict(tmp_path: Path, source: Source, version: str | None = "2.0") -> tuple[str, str]:
    file = tmp_path / "pkg" / "attention.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(CODE)
    (found,) = verdicts([Anchor("X", source)], [Root("verl", version, tmp_path)])
    return found.status, found.detail


def source(
    qualname: str, contains: str = "", versions: str = "", absent: str = "", path: str = "pkg/attention.py"
) -> Source:
    return Source("verl", path, qualname, contains, versions, absent=absent)


@pytest.mark.parametrize(
    ("anchor", "status"),
    [
        (source("Attention.forward", "cp_size = 1"), "holds"),
        (source("Attention.forward", absent="cp_size = 2"), "holds"),
        (source("", "unique text"), "holds"),
        (source("Attention.forward", "cp_size = 2"), "changed"),
        (source("Attention.forward", absent="cp_size = 1"), "changed"),
        (source("Other.forward", "cp_size = 1"), "moved"),
        (source("Nothing", "unique text"), "moved"),
        (source("Nothing", "no such text"), "gone"),
        (source("helper", path="pkg/other.py"), "gone"),
        (source("helper", versions=">=3"), "unverified here"),
    ],
)
def test_the_status_says_what_became_of_an_anchor(tmp_path: Path, anchor: Source, status: str) -> None:
    assert verdict(tmp_path, anchor)[0] == status


def test_text_of_another_function_does_not_count(tmp_path: Path) -> None:
    assert verdict(tmp_path, source("Attention.forward", "unique text"))[0] == "changed"


def test_a_wheel_says_nothing_about_what_only_a_checkout_has(tmp_path: Path) -> None:
    anchor = Anchor("X", Source("verl", "tests/t.py", "test", where="checkout"))
    for is_checkout, status in ((False, "unverified here"), (True, "gone")):
        (found,) = verdicts([anchor], [Root("verl", "2.0", tmp_path, is_checkout)])
        assert found.status == status


@pytest.mark.parametrize(
    ("version", "versions", "status"),
    [
        ("2.0.0rc0", ">=2.0", "unverified here"),
        ("2.0.0rc0", ">=1.9", "holds"),
        ("2.20.0.dev0", ">=2.19", "holds"),
        ("2.20.0.dev0", ">=2.20", "unverified here"),
        ("2.20.2", ">=2.20", "holds"),
    ],
)
def test_versions_are_ordered_as_pep_440_says(tmp_path: Path, version: str, versions: str, status: str) -> None:
    assert verdict(tmp_path, source("helper", versions=versions), version)[0] == status


@pytest.mark.parametrize(
    ("branches", "branch", "status"),
    [
        (("main", "dev"), None, "holds"),
        (("main", "dev"), "dev", "holds"),
        (("main",), "dev", "unverified here"),
        (("main",), "main", "holds"),
        (("main",), "core_v0.19.0", "holds"),  # a tag is a release
        (("dev",), "dev", "holds"),
        (("dev",), "main", "unverified here"),
        (("dev",), None, "unverified here"),
        ((), None, "holds"),
        ((), "main", "unverified here"),
    ],
)
def test_an_anchor_is_about_its_branches_and_their_releases(
    tmp_path: Path, branches: tuple[str, ...], branch: str | None, status: str
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "attention.py").write_text(CODE)
    anchor = Anchor("X", source("helper", "unique text")._replace(branches=branches))
    (found,) = verdicts([anchor], [Root("verl", "2.0", tmp_path, True, branch)])
    assert (found.status, found.branch) == (status, branch if status == "holds" else None)


@pytest.mark.parametrize("text", ["verl", "verl=/no/such/folder", "verl@dev", "@dev=.", "."])
def test_a_wrong_repo_option_is_refused(text: str) -> None:
    with pytest.raises(HcpError, match="wanted"):
        named_root(text)


def test_a_checkout_is_of_main_unless_a_branch_is_named_and_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "build_tools").mkdir()
    (tmp_path / "build_tools" / "VERSION.txt").write_text("2.20.0.dev0\n")
    assert named_root(f"transformer-engine={tmp_path}")[1:] == ("2.20.0.dev0", tmp_path, True, "main")
    assert named_root(f"transformer-engine@release_v2.20={tmp_path}").branch == "release_v2.20"
    assert named_root(f"te={tmp_path}").repo == "transformer-engine"
    assert named_root(f"our-fork@dev={tmp_path}") == Root("our-fork", None, tmp_path, True, "dev")


def test_every_source_of_a_rule_says_since_when() -> None:
    assert [anchor for anchor in all_anchors() if not anchor.source.versions] == []


@pytest.mark.upstream
def test_every_anchor_that_pypi_sources_decide_holds(upstream: Path) -> None:
    roots = unpacked_roots(upstream)
    assert {root.repo for root in roots} == {"megatron-core", "megatron-bridge", "verl", "transformer-engine"}
    found = list(verdicts(all_anchors(), roots))
    broken = [
        (item.anchor.owner, item.where, item.status, item.detail)
        for item in found
        if item.status not in ("holds", "unverified here")
    ]
    assert broken == []
    assert sum(item.status == "holds" for item in found) > 100


@pytest.mark.upstream
def test_an_anchor_that_claims_to_be_on_pypi_is_decided_there(upstream: Path) -> None:
    roots = unpacked_roots(upstream)
    undecided = [
        item.anchor
        for item in verdicts(all_anchors(), roots)
        if item.status == "unverified here" and item.anchor.source.where == "pypi"
    ]
    assert undecided == []


def test_a_folder_whose_name_ends_in_no_version_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "verl-0.5.0 (copy)").mkdir()
    with pytest.raises(HcpError, match=r"found the folder 'verl-0.5.0 \(copy\)'.*wanted.*; rename"):
        unpacked_roots(tmp_path)


@pytest.mark.parametrize("text", [b"caf\xe9 = 1\n", b"a = 1\0\n", b"(" * 100_000, b"def f(: pass"])
def test_sources_that_are_no_python_are_looked_into_all_the_same(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "a.py").write_bytes(text)
    source = Source("verl", "verl/a.py", "f", "anything", "")
    (found,) = verdicts([Anchor("X001", source)], [Root("verl", "1.0", tmp_path)])
    assert found.status == "gone"
