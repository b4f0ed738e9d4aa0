"""Real texts to be damaged: from this repository and from the named corpora."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
_KINDS = {
    **dict.fromkeys((".sh", ".sbatch", ".slurm", ".bash"), "shell"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".log", ".out", ".err"), "log"),
    ".json": "json",
    ".txt": "text",
}
_LARGEST = 30_000
_LAUNCHES = (b"pretrain_", b"main_ppo", b"MODEL_ARGS", b"context_parallel", b"context-parallel")


class Seeds(NamedTuple):
    """Texts by kind: shell, yaml, json, text, log, words (of rules' examples), card, skill, record."""

    texts: dict[str, tuple[bytes, ...]]

    def of(self, kind: str) -> tuple[bytes, ...]:
        return self.texts.get(kind, ())


@cache
def gathered(corpora: Sequence[str]) -> Seeds:
    """The seeds; in the same order on every machine with the same files."""
    found: dict[str, list[bytes]] = {}
    for kind, text in (*_own(), *(seed for corpus in corpora for seed in _texts_below(Path(corpus)))):
        found.setdefault(kind, []).append(text)
    return Seeds({kind: tuple(texts) for kind, texts in found.items()})


def _own() -> Iterator[tuple[str, bytes]]:
    from megatron_hcp.rules.registry import RULES

    yield from _texts_below(ROOT / "examples")
    for rule in RULES:
        for example in (rule.good, rule.bad):
            yield "words", str(getattr(example, "text", example)).encode()
    for block in (ROOT / "tests" / "triage" / "examples.txt").read_text("utf-8").split("\n\n"):
        yield "log", block.split("\n")[1].encode()
    records = sorted((ROOT / "skills").glob("*/config/verified.json"))  # a new skill has none yet
    for folder in (record.parents[1] for record in records):
        yield "card", (folder / "config" / "card.yaml").read_bytes()
        yield "skill", (folder / "SKILL.md").read_bytes()
        yield "record", (folder / "config" / "verified.json").read_bytes()


def _texts_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The texts in a folder, and below it; a file is a corpus of one."""
    paths = [str(folder)] if folder.is_file() else []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        paths += [os.path.join(place, name) for name in sorted(names)]
    for path in paths:
        kind = _KINDS.get(os.path.splitext(path)[1])
        if kind is not None and os.path.isfile(path) and 0 < os.path.getsize(path) <= _LARGEST:
            with open(path, "rb") as file:
                text = file.read()
            # A text that is not a launch is refused at once, so it teaches less.
            for _ in range(5 if any(sign in text for sign in _LAUNCHES) else 1):
                yield kind, text
