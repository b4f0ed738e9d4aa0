"""A skill's `config/card.yaml` (schema hcp.card/2; /1 is still accepted): what it claims, what proves it, what it runs.

`schemas/hcp.card.2.json` alone defines what a card may contain; docs/card.md explains it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from megatron_hcp.ground.below import file_below
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.schema import faults, refuse, wrong
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.forms.yaml.settings import load_plain
from megatron_hcp.resources import pack_dir
from megatron_hcp.rules.rule import Branch, Source
from megatron_hcp.skills.json_schema import published_shape

Level = Literal["static", "cpu", "gpu"]
LEVELS: tuple[Level, ...] = ("static", "cpu", "gpu")
SCHEMA = "hcp.card/2"
_NAMES = {"hcp.card/1": ("config", "launcher"), SCHEMA: ("recommended", "dialect")}
"""What a schema calls a card's recommended launches, and the dialect of one."""
CARD_PATH = Path("config") / "card.yaml"


@dataclass(frozen=True)
class Needs:
    """What a step needs to run: GPUs, Python distributions, programs on the PATH, wheels in $HCP_UPSTREAM."""

    gpus: int = 0
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expect:
    """What a step must produce: its exit status, and values in its JSON output by dotted path (`findings.0.rule`)."""

    exit: int = 0
    json: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Step:
    """One verification step: an argument list, never a shell string.

    `python` = this interpreter, `torchrun` = its torch.distributed.run on a free port, `hcp` = this hcp;
    `checks/x.py` is looked up in the pack, `scripts/x.py` in the skill.
    """

    id: str
    run: tuple[str, ...]
    level: Level
    timeout_s: float
    needs: Needs = Needs()
    expect: Expect = Expect()
    proves: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence, and what proves it: `rule:ID`, `step:ID` or `test:FILE::NAME`; `source` holds upstream anchors."""

    id: str
    text: str
    proved_by: tuple[str, ...]
    source: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recommended:
    """A launch that the card recommends; `hcp check` reports nothing about it."""

    dialect: str
    text: str
    assume: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Card:
    skill: str
    title: str
    summary: str
    stack: Mapping[str, str]
    recommended: tuple[Recommended, ...]
    rules: tuple[str, ...]
    claims: tuple[Claim, ...]
    verify: tuple[Step, ...]
    limitations: tuple[str, ...]
    unknown: tuple[str, ...]
    folder: Path


def skill_dirs() -> list[Path]:
    """The folders of the pack's skills, by name."""
    return sorted(path.parent for path in pack_dir("skills").glob("*/SKILL.md"))


def find_skill(name: str) -> Path:
    """The folder of a skill in the pack, or of the skill at that path.

    Raises:
        HcpError: there is no such skill.
    """
    for folder in skill_dirs():
        if folder.name == name:
            return folder
    if os.path.isfile(os.path.join(name, CARD_PATH)):
        return Path(name).resolve()
    names = ", ".join(folder.name for folder in skill_dirs())
    raise HcpError(
        f"found no skill {visible(name)[:200]}", wanted=f"one of {names}, or a folder with {CARD_PATH.as_posix()}"
    )


def is_ours(folder: Path) -> bool:
    """Whether a skill belongs to the installed pack and is therefore trusted."""
    return folder in skill_dirs()


def skill_file(folder: Path, name: str | Path, wanted: str) -> str:
    """The path of a skill's file.

    Raises:
        HcpError: there is none of that name in the folder, or it may not be read.
    """
    # An installer may have replaced the pack's own files with links to its cache.
    path = file_below(str(folder), str(name), wanted, follow=is_ours(folder))
    if path is None:
        raise HcpError(
            f"found no file {visible(str(name))[:200]} in {visible(str(folder))}",
            wanted=wanted,
            do="give the names of the folders and the file, such as references/notes.md",
        )
    return path


def read_skill_file(folder: Path, name: str | Path, wanted: str) -> str:
    """The text of a skill's file.

    Raises:
        HcpError: as `skill_file`; it is too large, or not UTF-8.
    """
    return read_text(skill_file(folder, name, wanted), wanted)


def load_card(folder: Path) -> Card:
    """The card of a skill.

    Raises:
        HcpError: it cannot be read or does not follow the schema; all faults are in one line.
    """
    file = str(folder / CARD_PATH)
    wanted = f"a card of schema {SCHEMA}"
    data = load_plain(read_skill_file(folder, CARD_PATH, wanted), visible(file), wanted)
    schema = str(data.get("schema"))
    names = _NAMES.get(schema, _NAMES[SCHEMA])
    found = list(faults(data, published_shape((schema if schema in _NAMES else SCHEMA).replace("/", "."))))
    if data.get("skill") != folder.name:
        found.append(wrong("skill", data.get("skill"), f"the folder's name, {folder.name!r}"))
    for key in ("claims", "verify"):
        items = data.get(key)
        items = items if isinstance(items, list) else []
        ids = Counter(str(item.get("id")) for item in items if isinstance(item, dict) and item.get("id") is not None)
        twice = [name for name, times in ids.items() if times > 1]
        found += [HcpError(f"{key}: found the id {visible(name)[:100]} twice", wanted="each id once") for name in twice]
    refuse(found, file)
    return _card(data, folder, *names)


def _card(data: Mapping[str, Any], folder: Path, recommended: str, dialect: str) -> Card:
    """The card from data that has already been validated."""
    return Card(
        skill=data["skill"],
        title=_line(data["title"]),
        summary=_line(data["summary"]),
        stack={name: str(version) for name, version in data["stack"].items()},
        recommended=tuple(
            Recommended(_line(item[dialect]), item["text"].strip(), _lines(item, "assume"), item.get("why") or "")
            for item in data.get(recommended) or ()
        ),
        rules=_lines(data, "rules"),
        claims=tuple(map(_claim, data.get("claims") or ())),
        verify=tuple(map(_step, data.get("verify") or ())),
        limitations=_lines(data, "limitations"),
        unknown=_lines(data, "unknown"),
        folder=folder,
    )


def _claim(data: Mapping[str, Any]) -> Claim:
    sources = tuple(map(_source, data.get("source") or ()))
    return Claim(data["id"], _line(data["text"]), _lines(data, "proved_by"), sources)


def _source(data: Mapping[str, Any]) -> Source:
    texts = {name: str(value) for name, value in data.items() if value is not None and name != "branches"}
    return Source(**texts, branches=tuple(data.get("branches", get_args(Branch))))  # type: ignore[arg-type]


def _step(data: Mapping[str, Any]) -> Step:
    needs, expect = data.get("needs") or {}, data.get("expect") or {}
    return Step(
        id=data["id"],
        run=tuple(data["run"]),
        level=data["level"],
        timeout_s=float(data["timeout_s"]),
        needs=Needs(needs.get("gpus") or 0, *(_lines(needs, key) for key in ("packages", "programs", "wheels"))),
        expect=Expect(expect.get("exit") or 0, expect.get("json")),
        proves=data.get("proves") or "",
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _lines(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(map(_line, data.get(key) or ()))
