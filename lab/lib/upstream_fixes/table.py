"""The table of `hcp backports`: which commits of which projects go into it, and how a line is written."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version
from upstream_fixes.history import Commit, Releases, commits, git
from upstream_fixes.judged import JUDGED, READ
from upstream_fixes.places import UNSEEN, families_at, topics_at
from upstream_fixes.words import (
    families_of,
    is_elsewhere,
    is_unseen,
    options_of,
    topics_of,
    without_general,
)

from megatron_hcp.backports.lacking import OPTIONS
from megatron_hcp.backports.topics import TOPICS
from megatron_hcp.launch.dialects.known_keys import names_of
from megatron_hcp.launch.dialects.table import FACTS, keys_of
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.rules.known.condition import clauses_of
from megatron_hcp.rules.known.row import Package

_LONGEST = 110
_RARE = 8
"""Fixes of a project that name an option: where more do, it says little."""
_TURNED_ON = re.compile(
    r"([a-z][a-z0-9]*(?:_[a-z0-9]+)+)\b(?!['\"]?\s*[:=]\s*['\"]?(?:null|none|false|0|0\.0|~)?['\"]?\s*(?:[#\\].*)?$)",
    re.I | re.M,
)
_USUAL = 0.15
"""The share of a project's own launches that set an option which says little."""
_FEW = 6
"""Options of one change: where it names more, it is about none of them."""


class _Project(NamedTuple):
    package: Package
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


_ALL = (
    _Project(
        "mcore",
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
    _Project(
        "bridge",
        "NVIDIA-NeMo/Megatron-Bridge",
        "0.2",
        "2025-08-01",
        ("src/megatron/bridge",),
        own_fsdp=True,
        dialect="bridge",
    ),
    _Project(
        "te",
        "NVIDIA/TransformerEngine",
        "2.0",
        "2025-01-01",
        ("transformer_engine/pytorch", "transformer_engine/common"),
        own_fsdp=True,
    ),
    _Project(
        "verl",
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
    _Project(
        "nemo_rl",
        "NVIDIA-NeMo/RL",
        "0.3",
        "2025-06-01",
        ("nemo_rl", ":!*vllm*", ":!*sglang*", ":!*dtensor*", ":!*automodel*"),
        topics=("policy",),
        dialect="nemo-rl",
    ),
    _Project(
        "ms_swift",
        "modelscope/ms-swift",
        "3.9",
        "2025-08-01",
        ("swift/megatron",),
        topics=("rlhf",),
        dialect="ms-swift",
    ),
    _Project(
        "slime",
        "THUDM/slime",
        "0.1",
        "2025-06-01",
        ("slime", "slime_plugins", "train.py", "train_async.py", ":!*fsdp*", ":!*sglang*"),
        topics=("policy",),
        dialect="slime",
    ),
)
PROJECTS = {project.package: project for project in _ALL}


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


def row(commit: Commit, spans: str, project: _Project, options: list[str]) -> str | None:
    """The commit's line in the table; None where no release holds the fault, or nothing says whom it touches.

    A fix of a part that no fact shows, or that names none, touches a launch that sets an option of its change.
    """
    subject, paths = commit.subject, [change.path for change in commit.changes]
    families = families_of(subject) or families_at(paths)
    topics = {*topics_of(subject, project.topics), *topics_at(paths)}
    if (judged := JUDGED.get((project.package, commit.number))) is not None:
        topics, families, options = {*judged[0]} | ({OPTIONS} if judged[1] else set()), (), list(judged[1])
    elif UNSEEN in topics or is_unseen(subject) or not (topics or families):
        topics = {*topics, OPTIONS} - {UNSEEN} if options else set()
        families = families if options else ()
    foreign = {"fsdp", "torch_fsdp2"} & topics and not project.own_fsdp
    is_other = judged is None and is_elsewhere(subject, quantizes=project.package == "te")
    if not spans or is_other or not (topics or families) or foreign:
        return None
    named = (*without_general(topics), *({OPTIONS} & topics))
    fields = (commit.number, spans, " ".join(named), " ".join(families), " ".join(options))
    return "\t".join((*fields, commit.title[:_LONGEST].strip()))


def usual_options(folder: Path) -> set[str]:
    """The options that many of a project's own launches turn on: they say little of a launch."""
    counts, launches = Counter[str](), 0
    names = git(folder, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    for name in names:
        if name.endswith((".sh", ".yaml", ".yml")) and not name.startswith("."):
            text = git(folder, "show", f"HEAD:{name}").replace("-", "_")
            if "model_parallel_size" in text:
                launches += 1
                counts.update(set(_TURNED_ON.findall(text)))
    return {name for name, count in counts.items() if count > _USUAL * launches}


def _keys_of_topics(dialect: Dialect) -> set[str]:
    """The options whose setting a topic is already about."""
    facts = {clause.name for topic in TOPICS.values() for when in topic.when for clause in clauses_of(when)}
    return {key.rpartition(".")[2] for fact in facts for key in keys_of(FACTS[fact], dialect)}


def _lines(commit: Commit) -> Iterator[str]:
    return (line for change in commit.changes for line in (*change.removed, *change.added))


def _spans(commit: Commit, name: Package, held: Releases) -> str:
    """The releases with a fault, as people read them or else as their files show; empty if there is none."""
    return READ.get((name, commit.number)) or ranges(held.holding(commit), list(held.tags))


def section(name: Package, folder: Path) -> str:
    """A project's part of the file."""
    project = PROJECTS[name]
    tags = releases(folder, project)
    held = Releases(folder, tags)
    read = {number for package, number in JUDGED if package == name}
    found = [(commit, _spans(commit, name, held)) for commit in commits(folder, project.since, project.paths, read)]
    known = names_of(project.dialect) - _keys_of_topics(project.dialect) - usual_options(folder)
    options = {commit.sha: options_of(commit.subject, _lines(commit), known) for commit, _ in found}
    often = Counter(name for names in options.values() for name in names)
    rows = dict[str, str]()
    for commit, spans in found:
        rare = [name for name in options[commit.sha] if often[name] <= _RARE]
        written = row(commit, spans, project, rare if len(rare) <= _FEW else [])
        if written is not None:
            rows.setdefault(commit.title, written)
    date = git(folder, "log", "-1", "--format=%cs").strip()
    print(f"{name}: {len(rows)} fixes, {len(tags)} releases", file=sys.stderr)
    return "\n".join((f"# {name} {project.repo} {project.oldest} {list(tags)[-1]} {date}", *rows.values(), ""))
