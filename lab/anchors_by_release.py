"""In which releases does upstream say what our anchors cite? `python lab anchors_by_release --repo NAME=GIT_DIR…`

NAME is megatron-lm (its tags are megatron-core's releases too) or another one of `_OLDEST`; GIT_DIR a git directory, of
which the release tags from that version on and the branches main and dev are read. `--wheels DIR` adds unpacked wheels,
`<dist>-<version>`. Prints every source whose stated range is wrong: releases inside it without the text, and releases
outside it with the text. The exit status is 1 if a release in a range lacks its text.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version
from program import parser_of

from megatron_hcp.judge.anchored import status_of
from megatron_hcp.launch.upstream import REPOSITORIES, checkout_version
from megatron_hcp.skills.anchors import (
    BRANCHES,
    Anchor,
    Root,
    all_anchors,
    can_tell,
    claims,
    unpacked_roots,
)

_OLDEST = {
    "megatron-lm": "0.12",
    "megatron-core": "0.12",
    "megatron-bridge": "0.2",
    "transformer-engine": "1.12",
    "verl": "0.7",
    "nemo-rl": "0.3",
    "ms-swift": "4.0",
    "slime": "0.2",
    "miles": "0.1",
}
"""The oldest release of each repository that is read."""
_TAG = {"megatron-lm": "core_v"}
"""The prefix of the version in a tag: v, except in Megatron-LM, whose own versions ended at 3."""


class Tree:
    """A release or branch of a repository: its files are read from the git directory on demand."""

    def __init__(self, root: Root, git_directory: Path | None, revision: str) -> None:
        self.root, self._git_directory, self._revision = root, git_directory, revision

    @property
    def name(self) -> str:
        return self.root.branch or str(self.root.version)

    def holds(self, anchor: Anchor) -> bool:
        if self._git_directory is not None:
            bare = anchor.source.path.removeprefix("src/")
            for path in (bare, f"src/{bare}"):
                self.take(path)
        return status_of(anchor.source, self.root.path)[0] == "holds"

    def take(self, path: str) -> None:
        target = self.root.path / path
        if not target.exists():
            shown = subprocess.run(
                ["git", f"--git-dir={self._git_directory}", "show", f"{self._revision}:{path}"], capture_output=True
            )
            if not shown.returncode:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(shown.stdout)


def trees_of(name: str, git_directory: Path, folder: Path) -> Iterator[Tree]:
    """The releases of a repository, from the oldest that rules know, and its branches main and dev."""
    listed = subprocess.run(
        ["git", f"--git-dir={git_directory}", "for-each-ref", "--format=%(refname:short)", "refs/tags", "refs/heads"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for revision in listed:
        before, _, rest = revision.partition(_TAG.get(name, "v"))
        version = version_of(rest) if not before else None
        if revision in BRANCHES:
            branch = Tree(Root(name, None, folder / revision, True, revision), git_directory, revision)
            branch.take(REPOSITORIES[name].version_file)
            branch.root = branch.root._replace(version=checkout_version(name, branch.root.path))
            yield branch
        elif version and not version.is_prerelease and version >= Version(_OLDEST[name]):
            yield Tree(Root(name, str(version), folder / str(version), True), git_directory, revision)


def version_of(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def remarks(anchor: Anchor, trees: Iterable[Tree]) -> Iterator[tuple[bool, str]]:
    """What is wrong with a source's range: (whether it is claimed without being there, in words)."""
    missing: list[str] = []
    more: list[str] = []
    for tree in trees:
        if can_tell(anchor.source, tree.root):
            claimed, holds = claims(anchor.source, tree.root), tree.holds(anchor)
            if claimed and not holds:
                missing.append(tree.name)
            elif holds and not claimed:
                more.append(tree.name)
    if missing:
        yield True, f"is not in {' '.join(dict.fromkeys(missing))}"
    if more:
        yield False, f"is in {' '.join(dict.fromkeys(more))}"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--repo", action="append", default=[], metavar="NAME=GIT_DIR", required=True)
    parser.add_argument("--wheels", type=Path, metavar="DIR")
    options = parser.parse_args()
    anchors, wrong = all_anchors(), 0
    with tempfile.TemporaryDirectory() as folder:
        trees = [
            tree
            for name, _, place in (text.partition("=") for text in options.repo)
            for tree in trees_of(name, Path(place), Path(folder) / name)
        ]
        trees += [Tree(root, None, "") for root in (unpacked_roots(options.wheels) if options.wheels else ())]
        for anchor in anchors:
            for is_wrong, text in remarks(anchor, trees):
                wrong += is_wrong
                source = anchor.source
                cited = source.contains or f"no {source.absent}"
                print(f"{'WRONG ' if is_wrong else 'wider '} {anchor.owner:<40} {source.versions or 'all':<14} {text}")
                print(f"       {'':<40} {source.repo} {source.path} {source.qualname}: {cited[:70]}")
    print(f"{len(anchors)} sources, {len(trees)} releases and branches: {wrong} claimed where they are not")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
