"""What hcp reads, each with a maker of cases: the same seed and number make the same case on every machine."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzzer import launches, others
from fuzzer.case import Case
from fuzzer.launches import GOOD, Made
from fuzzer.seeds import Seeds
from fuzzer.text import Dice
from fuzzer.watch import DECOY


def made(reader: str, seed: int, number: int, seeds: Seeds) -> Case:
    """Case `number` of a reader."""
    random = Dice(f"{seed}:{reader}:{number}")
    random.wild = random.choice((0.0, 0.01, 0.05, 0.05, 0.2, 0.5))
    words, files, stdin = READERS[reader][1](random, seeds)
    # A command line holds no NUL; nothing names the decoy.
    words = [word.replace("\0", "")[:60_000] for word in words]
    return Case(reader, tuple(words), (*files, (DECOY + ".sh", GOOD)), stdin)


READERS: dict[str, tuple[int, Callable[[Random, Seeds], Made]]] = {
    "shell": (30, launches.shell),
    "yaml": (18, launches.yaml),
    "words": (12, launches.words),
    "triage": (10, others.triage),
    "lengths": (7, others.lengths),
    "options": (5, launches.options),
    "card": (5, others.card),
    "site": (4, others.site),
    "render": (3, others.render),
    "model": (2, launches.model),
    "facts": (1, launches.facts),
    "groups": (2, others.groups),
    "commands": (1, others.commands),
}
"""Reader -> (its share of the inputs in percent, its maker)."""
assert sum(share for share, _ in READERS.values()) == 100
