"""A skill's `config/card.yaml` (schema hcp.card/2, and still /1): what it claims, what proves it, what it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from hcp.core.errors import HcpError
from hcp.resources import pack_dir
from hcp.rules.rule import Source

Level = Literal["static", "cpu", "gpu"]
LEVELS: tuple[Level, ...] = ("static", "cpu", "gpu")
SCHEMA = "hcp.card/2"
_NAMES = {"hcp.card/1": ("config", "launcher"), SCHEMA: ("recommended", "dialect")}
"""What a schema calls the launches that a card recommends, and the dialect of one."""
CARD_PATH = Path("config") / "card.yaml"
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Without a dot: a module inside a package cannot be looked up without running the package's code."""


@dataclass(frozen=True)
class Needs:
    """What a step needs to run: GPUs (a number), Python distributions, programs on the PATH."""

    gpus: int = 0
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expect:
    """What a step must do: its exit status, and values in its JSON output by dotted path (`findings.0.rule`)."""

    exit: int = 0
    json: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Step:
    """One verification step: an argument list, never a shell string.

    `python` = this interpreter, `torchrun` = its torch.distributed.run on a free port, `hcp` = this hcp, and
    `checks/x.py` is looked up in the pack.
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
    """A sentence, and what proves it: `rule:ID`, `step:ID` or `test:FILE::NAME`; `source` are upstream anchors."""

    id: str
    text: str
    proved_by: tuple[str, ...]
    source: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recommended:
    """A launch that the card recommends: `hcp check` finds nothing in it."""

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
    """The folder of a skill of the pack, or of the skill at that path.

    Raises:
        HcpError: there is no such skill.
    """
    for folder in skill_dirs():
        if folder.name == name:
            return folder
    path = Path(name)
    if (path / CARD_PATH).is_file():
        return path.resolve()
    names = ", ".join(folder.name for folder in skill_dirs())
    raise HcpError(f"found no skill {name!r}; wanted one of {names}, or a folder with {CARD_PATH.as_posix()}")


def load_card(folder: Path) -> Card:
    """The card of a skill.

    Raises:
        HcpError: it cannot be read, or does not follow the schema; all faults in one line.
    """
    path = folder / CARD_PATH
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise HcpError(f"cannot read {path}: {error.strerror}; wanted a card of schema {SCHEMA}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise HcpError(f"{path} is no YAML: {error}; wanted a card of schema {SCHEMA}") from None
    parser = _Parser(str(path))
    card = parser.card(data, folder)
    if parser.faults:
        raise HcpError(f"{path}: " + "; ".join(parser.faults))
    return card


class _Parser:
    """Reads plain data into the dataclasses, and collects every fault instead of stopping at the first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[str] = []

    def card(self, data: Any, folder: Path) -> Card:
        if not isinstance(data, dict):
            self.faults.append("found no mapping at the top; wanted the keys of a card")
            data = {}
        if str(data.get("schema")) not in _NAMES:
            self.faults.append(f"schema is {data.get('schema')!r}; wanted {SCHEMA}")
        recommended, dialect = _NAMES.get(str(data.get("schema")), _NAMES[SCHEMA])
        known = {item.name for item in fields(Card)} - {"folder", "recommended"} | {"schema", recommended}
        self._unknown_keys("card", data, known)
        if data.get("skill") != folder.name:
            self.faults.append(f"skill is {data.get('skill')!r}; wanted the folder's name, {folder.name!r}")
        stack = data.get("stack")
        if not isinstance(stack, dict) or not stack:
            self.faults.append("stack is missing; wanted package: version range")
        return Card(
            skill=str(data.get("skill")),
            title=self._text("card", data, "title"),
            summary=self._text("card", data, "summary"),
            stack={str(key): str(value) for key, value in stack.items()} if isinstance(stack, dict) else {},
            recommended=self._objects(data, recommended, lambda item: self._recommended(item, dialect)),
            rules=self._texts("card", data, "rules"),
            claims=self._objects(data, "claims", self._claim),
            verify=self._objects(data, "verify", self._step),
            limitations=self._texts("card", data, "limitations"),
            unknown=self._texts("card", data, "unknown"),
            folder=folder,
        )

    def _recommended(self, data: dict[str, Any], dialect: str) -> Recommended:
        where = "recommended launch"
        self._unknown_keys(where, data, {dialect, "text", "assume", "why"})
        return Recommended(
            self._text(where, data, dialect),
            self._text(where, data, "text"),
            self._texts(where, data, "assume"),
            str(data.get("why", "")),
        )

    def _claim(self, data: dict[str, Any]) -> Claim:
        where = f"claim {data.get('id')!r}"
        self._unknown_keys(where, data, {"id", "text", "proved_by", "source"})
        proved_by = self._texts(where, data, "proved_by")
        if not proved_by:
            self.faults.append(f"{where} has no proved_by; what nothing proves goes under unknown")
        for proof in proved_by:
            if proof.partition(":")[0] not in ("rule", "step", "test"):
                self.faults.append(f"{where}: proved_by {proof!r}; wanted rule:ID, step:ID or test:FILE::NAME")
        sources = tuple(self._source(where, item) for item in data.get("source") or () if isinstance(item, dict))
        return Claim(self._text(where, data, "id"), self._text(where, data, "text"), proved_by, sources)

    def _source(self, where: str, data: dict[str, Any]) -> Source:
        names = set(Source._fields)
        self._unknown_keys(f"{where}, source", data, names)
        texts = {name: str(data[name]) for name in names if name in data}
        if not {"repo", "path", "qualname"} <= texts.keys():
            self.faults.append(f"{where}: a source needs repo, path and qualname")
        return Source(**{"repo": "", "path": "", "qualname": "", **texts})  # type: ignore[arg-type]

    def _step(self, data: dict[str, Any]) -> Step:
        where = f"step {data.get('id')!r}"
        self._unknown_keys(where, data, {"id", "run", "level", "needs", "timeout_s", "expect", "proves"})
        run = data.get("run")
        if not isinstance(run, list) or not run or not all(isinstance(word, str) for word in run):
            self.faults.append(f"{where}: run is {run!r}; wanted a list of words, never a shell string")
            run = []
        elif run[0] not in ("python", "torchrun", "hcp"):
            self.faults.append(f"{where}: run starts with {run[0]!r}; wanted python, torchrun or hcp")
        level = data.get("level")
        if level not in LEVELS:
            self.faults.append(f"{where}: level is {level!r}; wanted one of {', '.join(LEVELS)}")
        timeout = data.get("timeout_s")
        if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout <= 0:
            self.faults.append(f"{where}: timeout_s is {timeout!r}; wanted seconds above 0")
            timeout = 1
        needs, expect = data.get("needs") or {}, data.get("expect") or {}
        self._unknown_keys(f"{where}, needs", needs, {"gpus", "packages", "programs"})
        self._unknown_keys(f"{where}, expect", expect, {"exit", "json"})
        packages = needs.get("packages") or []
        for package in packages if isinstance(packages, list) else ():
            if not isinstance(package, str) or not _PACKAGE.fullmatch(package):
                self.faults.append(
                    f"{where}: needs.packages has {package!r}; wanted a package's plain name, such as torch"
                )
        return Step(
            id=self._text(where, data, "id"),
            run=tuple(run),
            level=cast(Level, level),
            timeout_s=float(timeout),
            needs=Needs(
                int(needs.get("gpus", 0)), self._texts(where, needs, "packages"), self._texts(where, needs, "programs")
            ),
            expect=Expect(int(expect.get("exit", 0)), expect.get("json")),
            proves=str(data.get("proves", "")),
        )

    def _unknown_keys(self, where: str, data: Mapping[str, Any], known: set[str]) -> None:
        extra = sorted(str(key) for key in data if key not in known)
        if extra:
            self.faults.append(f"{where}: unknown keys {', '.join(extra)}; wanted only {', '.join(sorted(known))}")

    def _text(self, where: str, data: Mapping[str, Any], key: str) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value.strip():
            self.faults.append(f"{where}: {key} is missing; wanted text")
            return ""
        return " ".join(value.split())

    def _texts(self, where: str, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.faults.append(f"{where}: {key} is no list of texts")
            return ()
        return tuple(" ".join(item.split()) for item in value)

    def _objects(self, data: Mapping[str, Any], key: str, read: Callable[[dict[str, Any]], Any]) -> tuple[Any, ...]:
        value = data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.faults.append(f"{key} is no list of mappings")
            return ()
        items = tuple(read(item) for item in value)
        ids = [item["id"] for item in value if "id" in item]
        twice = sorted({str(name) for name in ids if ids.count(name) > 1})
        if twice:
            self.faults.append(f"{key}: used twice: {', '.join(twice)}")
        return items
