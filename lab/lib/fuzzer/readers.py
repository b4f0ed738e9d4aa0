"""What hcp reads, each with a maker of cases: the same seed and number make the same case on every machine."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzzer import doors, launches, machine, others, repositories
from fuzzer.case import Case
from fuzzer.launches import GOOD, Made
from fuzzer.secrets import planted
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
    files, secret = planted(random, files) if random.random() < 0.3 else (files, "")
    return Case(reader, tuple(words), (*files, (DECOY + ".sh", GOOD)), stdin, secret)


READERS: dict[str, tuple[int, Callable[[Random, Seeds], Made]]] = {
    "shell": (18, launches.shell),
    "yaml": (10, launches.yaml),
    "words": (9, launches.words),
    "triage": (9, others.triage),
    "packed": (7, doors.packed),
    "message": (6, doors.message),
    "dumps": (5, doors.dumps),
    "lengths": (5, others.lengths),
    "options": (5, launches.options),
    "card": (4, others.card),
    "kubernetes": (2, doors.kubernetes),
    "rendered": (2, doors.rendered),
    "plan": (3, doors.plan),
    "recipe": (1, doors.recipe),
    "site": (2, others.site),
    "render": (2, others.render),
    "model": (1, launches.model),
    "facts": (1, launches.facts),
    "groups": (1, others.groups),
    "commands": (1, others.commands),
    "repository": (2, repositories.repository),
    "editor": (1, repositories.editor),
    "spec": (1, repositories.spec),
    "dryrun": (1, machine.dryrun),
    "doctor": (1, machine.doctor),
}
"""Reader -> (its share of the inputs in percent, its maker)."""
assert sum(share for share, _ in READERS.values()) == 100
