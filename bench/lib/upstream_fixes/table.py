"""The table of `hcp backports`: which commits of which projects go into it, and how a line is written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version
from upstream_fixes.history import Commit, Releases, commits, git
from upstream_fixes.words import families_of, options_of, topics_of

from hcp.launch.fact import Dialect
from hcp.launch.facts.known_keys import names_of
from hcp.launch.facts.table import FACTS, keys_of
from hcp.rules.backports.topics import TOPICS
from hcp.rules.known.condition import clauses_of

_LONGEST = 110
_RARE = 8
"""Fixes of a project that name an option: where more do, it says little."""
_FEW = 6
"""Options of one change: where it names more, it is about none of them."""


class _Project(NamedTuple):
    repo: str
    oldest: str
    since: str
    paths: tuple[str, ...]
    """What a training runs."""
    tag: str = "v"
    own_fsdp: bool = False
    """Whether its subjects mean Megatron-FSDP by FSDP, and not torch's."""
    topics: tuple[str, ...] = ()
    """Of `words.OWN`."""
    dialect: Dialect = "mlm"
    """Whose options its changes name."""


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
    "bridge": _Project(
        "NVIDIA-NeMo/Megatron-Bridge",
        "0.2",
        "2025-08-01",
        ("src/megatron/bridge",),
        own_fsdp=True,
        dialect="bridge",
    ),
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
        topics=("policy",),
        dialect="verl",
    ),
    "nemo_rl": _Project(
        "NVIDIA-NeMo/RL",
        "0.3",
        "2025-06-01",
        ("nemo_rl", ":!*vllm*", ":!*sglang*", ":!*dtensor*", ":!*automodel*"),
        topics=("policy",),
        dialect="nemo-rl",
    ),
    "ms_swift": _Project(
        "modelscope/ms-swift",
        "3.9",
        "2025-08-01",
        ("swift/megatron",),
        topics=("rlhf",),
        dialect="ms-swift",
    ),
    "slime": _Project(
        "THUDM/slime",
        "0.1",
        "2025-06-01",
        ("slime", "slime_plugins", "train.py", "train_async.py", ":!*fsdp*", ":!*sglang*"),
        topics=("policy",),
        dialect="slime",
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


def row(
    commit: Commit, holding: list[str], all_releases: list[str], project: _Project, options: list[str]
) -> str | None:
    """The commit's line in the table; None where no release holds the fault, or nothing says whom it touches.

    A commit that names no topic touches a launch that sets an option of its change: the topic `options`.
    """
    topics, families = topics_of(commit.title, project.topics), families_of(commit.title)
    if not topics and not families:
        topics = ("options",) if options else ()
    if not holding or not (topics or families) or ({"fsdp", "torch_fsdp2"} & {*topics} and not project.own_fsdp):
        return None
    fields = (commit.number, ranges(holding, all_releases), " ".join(topics), " ".join(families), " ".join(options))
    return "\t".join((*fields, commit.title[:_LONGEST].strip()))


def _keys_of_topics(dialect: Dialect) -> set[str]:
    """The options whose setting a topic is already about."""
    facts = {clause.name for topic in TOPICS.values() for when in topic.when for clause in clauses_of(when)}
    return {key.rpartition(".")[2] for fact in facts for key in keys_of(FACTS[fact], dialect)}


def _lines(commit: Commit) -> Iterator[str]:
    return (line for change in commit.changes for line in (*change.removed, *change.added))


def section(name: str, folder: Path) -> str:
    """A project's part of the file."""
    project = PROJECTS[name]
    tags = releases(folder, project)
    held = Releases(folder, tags)
    found = [(commit, held.holding(commit)) for commit in commits(folder, project.since, project.paths)]
    known = names_of(project.dialect) - _keys_of_topics(project.dialect)
    options = {commit.sha: options_of(commit.title, _lines(commit), known) for commit, _ in found}
    often = Counter(name for names in options.values() for name in names)
    rows = dict[str, str]()
    for commit, holding in found:
        rare = [name for name in options[commit.sha] if often[name] <= _RARE]
        written = row(commit, holding, list(tags), project, rare if len(rare) <= _FEW else [])
        if written is not None:
            rows.setdefault(commit.title, written)
    date = git(folder, "log", "-1", "--format=%cs").strip()
    print(f"{name}: {len(rows)} fixes, {len(tags)} releases", file=sys.stderr)
    return "\n".join((f"# {name} {project.repo} {project.oldest} {list(tags)[-1]} {date}", *rows.values(), ""))
