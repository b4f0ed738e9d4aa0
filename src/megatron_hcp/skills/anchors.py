"""Source anchors: does upstream's code still say what a rule or card claims? Found by name and content, not by line."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.anchored import AnchorStatus, status_of
from megatron_hcp.launch.upstream import REPOSITORIES, SHORT, checkout_version, recognised
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Branch, Source
from megatron_hcp.skills.card import load_card, skill_dirs

BRANCHES: tuple[str, ...] = get_args(Branch)
STATUSES: tuple[AnchorStatus, ...] = get_args(AnchorStatus)

_MODULES = {
    "megatron-core": "megatron",
    "megatron-bridge": "megatron.bridge",
    "verl": "verl",
    "transformer-engine": "transformer_engine",
    "nvidia-resiliency-ext": "nvidia_resiliency_ext",
}


class Anchor(NamedTuple):
    """A source that a rule (its id) or a claim (`skill:claim`) relies on."""

    owner: str
    source: Source


class Root(NamedTuple):
    """A tree of upstream sources: an unpacked wheel, an installed package or a checkout; `version` None if unknown.

    `branch` is the checkout's, and None for a release.
    """

    repo: str
    version: str | None
    path: Path
    is_checkout: bool = False
    branch: str | None = None


class AnchorVerdict(NamedTuple):
    """The state of an anchor in a source tree; `where` is the tree's version, or the path of a checkout."""

    anchor: Anchor
    status: AnchorStatus
    where: str
    detail: str = ""
    branch: str | None = None


def all_anchors() -> list[Anchor]:
    """The anchors of every rule and of every claim in the pack's cards."""
    rules = [Anchor(rule.id, source) for rule in RULES for source in rule.source]
    return rules + [anchor for folder in skill_dirs() for anchor in anchors_of(folder)]


def anchors_of(folder: Path) -> list[Anchor]:
    """The anchors of one skill's claims; its card may name any repository."""
    card = load_card(folder)
    return [Anchor(f"{card.skill}:{claim.id}", source) for claim in card.claims for source in claim.source]


def unpacked_roots(folder: Path) -> list[Root]:
    """The wheels unpacked under `folder` as `<dist>-<version>`."""
    roots = []
    for path in sorted(folder.glob("*-*")) if os.path.isdir(folder) else []:
        match = re.fullmatch(rf"({'|'.join(_MODULES)})-(\d.*)", path.name)
        if match and not _is_version(match[2]):
            raise HcpError(
                f"found the folder {path.name!r} in --sources",
                wanted="<dist>-<version>",
                do="rename it, or move it away",
            )
        if match:
            roots.append(Root(match[1], match[2], path))
    return roots


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return len(text) <= 100


def installed_roots() -> list[Root]:
    """The packages installed here, found without importing them."""
    roots = []
    for repo, module in _MODULES.items():
        try:
            version = metadata.version(repo)
            spec = importlib.util.find_spec(module.partition(".")[0])
        except (metadata.PackageNotFoundError, ImportError, ValueError):
            continue
        places = list(spec.submodule_search_locations or ()) if spec else []
        if places:
            roots.append(Root(repo, version, Path(places[0]).parent))
    return roots


def named_root(text: str) -> Root:
    """`--upstream [NAME[@BRANCH]=]DIR`: a checkout of main, or of the named branch or release tag.

    NAME is the repository of an anchor, and may be any: a card cites what it likes. Without one, the folder tells.

    Raises:
        HcpError: the folder does not exist, or does not tell whose code it is.
    """
    before, equals, path = text.partition("=")
    if not equals or os.path.isdir(text):
        before, path = next(iter(recognised(text)), ""), text
    name, _, branch = before.partition("@")
    name = SHORT.get(name, name)
    if not name or not os.path.isdir(path):
        wanted = f"[NAME[@BRANCH]=]DIR, NAME being {', '.join(REPOSITORIES)} or another that a card cites"
        raise HcpError(f"found --upstream {text[:100]}", wanted=wanted)
    return Root(name, checkout_version(name, path), Path(path), is_checkout=True, branch=branch or "main")


def verdicts(anchors: Iterable[Anchor], roots: Iterable[Root]) -> Iterator[AnchorVerdict]:
    """Checks each anchor against every source tree that it covers; yields one `unverified here` if there is none."""
    roots = list(roots)
    for anchor in anchors:
        trees = [root for root in roots if claims(anchor.source, root)]
        if not trees:
            versions = anchor.source.versions or "any version"
            yield AnchorVerdict(anchor, "unverified here", "", f"no sources of {anchor.source.repo} {versions}")
        for root in trees:
            status, detail = status_of(anchor.source, root.path)
            yield AnchorVerdict(anchor, status, root.version or os.fspath(root.path), detail, root.branch)


def claims(source: Source, root: Root) -> bool:
    """Whether the source covers this tree: its repository, branch and version."""
    # Releases are cut from main, or from a branch of their own.
    is_there = root.branch in source.branches if root.branch in BRANCHES else source.branches != ("dev",)
    if not is_there or not can_tell(source, root):
        return False
    try:
        # By PEP 440: 2.20.0.dev0 is newer than 2.19 and older than 2.20.
        return root.version is None or SpecifierSet(source.versions).contains(root.version, prereleases=True)
    except InvalidSpecifier:
        found = f"an anchor into {source.repo} has versions {source.versions!r}"
        raise HcpError(found, wanted="a PEP 440 range") from None


def can_tell(source: Source, root: Root) -> bool:
    """Whether the tree is from the source's repository and contains that part of it.

    A checkout of Megatron-LM contains megatron-core too. A wheel lacks what only the repository has (tests,
    megatron/training) and cannot verify that.
    """
    same = source.repo == root.repo or (source.repo == "megatron-core" and root.repo == "megatron-lm")
    return same and (source.where != "checkout" or root.is_checkout)
