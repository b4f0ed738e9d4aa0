"""The faults that lab/jobs/faults.py makes, and what each job should do: the rows of faults.txt."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from support.jobs import LAUNCH

TABLE = Path(__file__).with_name("faults.txt")
_LAUNCHES = {
    "": LAUNCH,
    "wrong_product": [*LAUNCH[:-3], "3", "2"],
    "wrong_world": ["--context-parallel-size", "3", *LAUNCH[2:4], "--exit-signal-handler"],
}


@dataclass
class Fault:
    """One way to fail. `act` causes it once `steps` steps are trained; the rest is what the first attempt should do.

    None: nothing is wanted there, but of `status`: Slurm ended the script before it could say anything. `kept`: the
    step of the last checkpoint, at least. `again`: the status of the second attempt, if that is waited for.
    """

    name: str
    start: str
    status: str | None
    code: int | None
    then: str | None
    first: str | None
    kept: int
    excluded: str | None
    says: list[str]
    act: str = ""
    steps: int = 0
    before: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=lambda: ["--requeue", "1"])
    light: bool = False
    trainer: list[str] = field(default_factory=list)
    launch: list[str] = field(default_factory=lambda: LAUNCH)
    sbatch: list[str] = field(default_factory=list)
    iters: int = 8
    again: str = ""

    def take(self, part: str) -> None:
        """Adds one part of the last column."""
        word, _, rest = part.partition(" ")
        if word.startswith("@"):
            self.steps, self.act = int(word[1:]), rest
        elif part == "never again":
            self.options = self.options[2:]
        elif word == "before":
            self.before.append(rest)
        elif word == "options":
            words = shlex.split(rest)
            self.options = words if "--requeue" in words else [*self.options, *words]
        elif word in ("light", "trainer"):
            self.light, self.trainer = word == "light", shlex.split(rest)
        elif word == "launch":
            self.launch = _LAUNCHES[rest]
        elif word == "sbatch":
            self.sbatch = shlex.split(rest)
        elif word == "iters":
            self.iters = int(rest)
        elif word == "again":
            self.again = rest
        else:
            raise AssertionError(f"{self.name}: found {part!r}")


def every_fault() -> list[Fault]:
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, starts, *wanted, says, how = (cell.strip() for cell in line.split("|"))
        status, code, then, first, kept, excluded = (None if cell == "-" else cell for cell in wanted)
        for start in starts.split():
            fault = Fault(
                name=name,
                start=start,
                status=status,
                code=None if code is None else int(code),
                then=then,
                first=first,
                kept=int(kept or 0),
                excluded=excluded,
                says=[] if says == "-" else says.split("; "),
            )
            for part in how.split("; "):
                fault.take(part.strip())
            found.append(fault)
    return found
