"""The table of `hcp backports`: which commits of which projects go into it, and how a line is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version
from upstream_fixes.history import Commit, Releases, commits, git
from upstream_fixes.words import families_of, topics_of

_LONGEST = 110


class _Project(NamedTuple):
    repo: str
    oldest: str
    since: str
    paths: tuple[str, ...]
    """What a training runs."""
    tag: str = "v"
    own_fsdp: bool = False
    """Whether its subjects mean Megatron-FSDP by FSDP, and not torch's."""


PROJECTS = {
    "mcore": _Project(
        "NVIDIA/Megatron-LM",
        "0.12",
        "2025-01-01",
        (
            "megatron/core",
            "megatron/training",
            *(f":!megatron/core/{name}" for name in ("inference", "export", "post_training")),
        ),
        "core_v",
        own_fsdp=True,
    ),
    "bridge": _Project("NVIDIA-NeMo/Megatron-Bridge", "0.2", "2025-08-01", ("src/megatron/bridge",), own_fsdp=True),
    "te": _Project(
        "NVIDIA/TransformerEngine",
        "2.0",
        "2025-01-01",
        ("transformer_engine/pytorch", "transformer_engine/common"),
        own_fsdp=True,
    ),
    "verl": _Project(
        "verl-project/verl",
        "0.5",
        "2025-05-01",
        (
            "verl/models",
            "verl/workers",
            "verl/utils",
            "verl/trainer",
            ":!*fsdp*",
            ":!*rollout*",
            ":!*vllm*",
            ":!*sglang*",
        ),
    ),
    "nemo_rl": _Project(
        "NVIDIA-NeMo/RL", "0.3", "2025-06-01", ("nemo_rl", ":!*vllm*", ":!*sglang*", ":!*dtensor*", ":!*automodel*")
    ),
    "ms_swift": _Project("modelscope/ms-swift", "3.9", "2025-08-01", ("swift/megatron",)),
    "slime": _Project(
        "THUDM/slime",
        "0.1",
        "2025-06-01",
        ("slime", "slime_plugins", "train.py", "train_async.py", ":!*fsdp*", ":!*sglang*"),
    ),
}


def releases(folder: Path, project: _Project) -> dict[str, str]:
    """Release -> tag, oldest first; release candidates and post releases are left out."""
    found = {}
    for tag in git(folder, "tag").split():
        try:
            version = Version(tag.removeprefix(project.tag)) if tag.startswith(project.tag) else Version("0")
        except InvalidVersion:
            continue
        if version >= Version(project.oldest) and not version.is_prerelease and not version.is_postrelease:
            found[str(version)] = tag
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def ranges(holding: list[str], all_releases: list[str]) -> str:
    """The releases as ranges, each up to the next release that is not among them.

    >>> ranges(["0.2", "0.3", "0.5"], ["0.1", "0.2", "0.3", "0.4", "0.5"])
    '>=0.2,<0.4 | >=0.5'
    """
    parts = list[str]()
    inside = False
    for release in all_releases:
        if (release in holding) == inside:
            continue
        if inside:
            parts[-1] += f",<{release}"
        else:
            parts.append(f">={release}")
        inside = not inside
    return " | ".join(parts)


def row(commit: Commit, holding: list[str], all_releases: list[str], project: _Project) -> str | None:
    """The commit's line in the table; None where no release holds the fault, or its subject names no topic."""
    topics, families = topics_of(commit.title), families_of(commit.title)
    if not holding or not (topics or families) or ({"fsdp", "torch_fsdp2"} & {*topics} and not project.own_fsdp):
        return None
    fields = (commit.number, ranges(holding, all_releases), " ".join(topics), " ".join(families))
    return "\t".join((*fields, commit.title[:_LONGEST].strip()))


def section(name: str, folder: Path) -> str:
    """A project's part of the file."""
    project = PROJECTS[name]
    tags = releases(folder, project)
    held = Releases(folder, tags)
    rows = dict[str, str]()
    for commit in commits(folder, project.since, project.paths):
        written = row(commit, held.holding(commit), list(tags), project)
        if written is not None:
            rows.setdefault(commit.title, written)
    date = git(folder, "log", "-1", "--format=%cs").strip()
    print(f"{name}: {len(rows)} fixes, {len(tags)} releases", file=sys.stderr)
    return "\n".join((f"# {name} {project.repo} {project.oldest} {list(tags)[-1]} {date}", *rows.values(), ""))
