"""Random kinds of context parallelism: what `hcp support` answers, and what `hcp check` finds in such a launch."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from families import FAMILIES

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.facts.releases import MEGATRON_CORE, TRANSFORMER_ENGINE
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.support.question import COMM_TYPES, LAYOUTS, MODEL_WORDS, Subject, Way

_PACKED = ("--sft", "--calculate-per-token-loss", "--no-create-attention-mask-in-dataloader")
_OF_SFT = {"KNOWN052"}
"""Rules about --sft, which hcp support doesn't ask about: it asks about packed rows, however they are made."""
_GUARDS = "START"
"""Upstream's own guards judge whole launches; hcp support is asked about one with its sizes and little else."""
_ARCHS = (None, "sm80", "sm90", "sm100")
_CUDNN = (None, "9.10", "9.21")


class Draw(NamedTuple):
    """A model, versions and a way."""

    family: str
    config: dict[str, Any]
    assumes: tuple[str, ...]
    way: Way


WAYS = 10
"""Ways that are asked about one model and its versions, so that answers that are kept are used."""


def draws(source: random.Random, number: int) -> Iterator[Draw]:
    """So many random ways, legal or not."""
    for start in range(0, number, WAYS):
        drawn = _subject(source)
        for _ in range(min(WAYS, number - start)):
            yield drawn._replace(way=_way(source, drawn))


def _subject(source: random.Random) -> Draw:
    """A family, with other head counts half of the time, and released versions."""
    family = source.choice(list(FAMILIES))
    config = json.loads(json.dumps(FAMILIES[family]))
    sizes = config.get("text_config", config)
    if source.random() < 0.5:
        heads = source.choice((8, 12, 16, 24, 32, 40, 64))
        sizes["num_attention_heads"] = heads
        sizes["num_key_value_heads"] = source.choice([size for size in (1, 2, 3, 4, 6, 8, heads) if heads % size == 0])
    stated = {
        "te": source.choice(TRANSFORMER_ENGINE),
        "mcore": source.choice(MEGATRON_CORE),
        "arch": source.choice(_ARCHS),
        "cudnn": source.choice(_CUDNN),
    }
    assumes = tuple(f"{name}={value}" for name, value in stated.items() if value)
    return Draw(family, config, assumes, Way("p2p", "sbhd", 1, 2))


def _way(source: random.Random, drawn: Draw) -> Way:
    # Before 0.16 --sft packs nothing, so a packed launch of Megatron-LM's own does not exist there.
    packs = not any(f"mcore=0.{minor}." in text for text in drawn.assumes for minor in (12, 13, 14, 15))
    comm_type, layout = source.choice(COMM_TYPES), source.choice(LAYOUTS if packs else LAYOUTS[:1])
    levels = None
    cp = source.choice((2, 3, 4, 6, 8, 16, 32))
    if comm_type == "a2a+p2p":
        levels = (source.choice((1, 2, 3, 4, 8)), source.choice((1, 2, 4)))
        cp = levels[0] * levels[1]
    return Way(comm_type, layout, source.choice((1, 2, 4, 8)), cp, levels)


def words_of(way: Way) -> tuple[str, ...]:
    """Megatron-LM's command line for a way."""
    words = [*MODEL_WORDS, "--context-parallel-size", str(way.cp), "--cp-comm-type", way.comm_type]
    words += ["--tensor-model-parallel-size", str(way.tp), *(["--sequence-parallel"] if way.tp > 1 else [])]
    if way.sizes is not None:
        words += ["--hierarchical-context-parallel-sizes", *map(str, way.sizes)]
    return (*words, *(_PACKED if way.layout == "thd" else ()))


class Judges:
    """Asks both, with the subjects that were asked before kept, as `hcp support` keeps its own."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory() if folder is None else None
        self.folder = Path(self._folder.name if self._folder else folder or "")
        self._subjects: dict[tuple[str, tuple[str, ...]], Subject] = {}

    def disagreement(self, drawn: Draw) -> str | None:
        """What the two say where they differ; None where they agree."""
        file = self.folder / "config.json"
        text = json.dumps(drawn.config)
        file.write_text(text, encoding="utf-8")
        options = LoadOptions(dialect="mlm", assumes=drawn.assumes, model_file=str(file))
        subject = self._subjects.get((text, drawn.assumes))
        if subject is None:
            launch = load_launch("", options._replace(words=MODEL_WORDS))
            subject = Subject(launch.reading, launch.assumed, launch.model)
            self._subjects[text, drawn.assumes] = subject
        ours = set(subject.ask(drawn.way).blocked)
        report = check_launch(load_launch("", options._replace(words=words_of(drawn.way))), rules_for, fixes=False)
        errors = {finding.rule.id for finding in report.findings if finding.severity == "error"}
        theirs = {rule for rule in errors - _OF_SFT if not rule.startswith(_GUARDS)}
        if ours == theirs:
            return None
        return f"{drawn.family} {drawn.assumes} {drawn.way}: support {sorted(ours)}, check {sorted(theirs)}"
