"""What is taken from a launch for the keys of a site, and what became of each of its words."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.render.site import BY_NAME
from megatron_hcp.render.values import checked, dashed
from megatron_hcp.render.words import TakenWord


class Taken:
    """`site`: values of site keys; `origins`: where each is stated, `FILE:LINE`; `words`: what became of each word."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.site: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.words: list[TakenWord] = []
        self.setup: list[tuple[str, str]] = []

    def take(self, name: str, value: object, fact: Fact | None = None, *, line: int = 0) -> None:
        """Takes a value for a site key, or records why not."""
        where = self.where(fact, line)
        if BY_NAME[name].type == "size" and isinstance(value, str) and value.isdecimal():
            value = int(value)
        shown = f"{name}={visible(str(value))[:200]}" if isinstance(value, str | int) else name
        try:
            self.site[name] = checked(BY_NAME[name].type, value, f"{where}: {name}", BY_NAME[name].choices)
        except HcpError as error:
            self.words.append(TakenWord(shown, where, "left out", str(error).removeprefix(f"{where}: {name}: ")))
        else:
            self.origins[name] = where
            self.words.append(TakenWord(shown, where, "carried", key=name))

    def take_variables(self, facts: Mapping[str, Fact]) -> None:
        """Takes environment variables, each of which is a word of its own."""
        self.take("env", {name: fact.value for name, fact in facts.items()})
        self.words.pop()
        for name, fact in facts.items():
            self.origins[f"env.{name}"] = self.where(fact)
            self.words.append(TakenWord(f"export {name}", self.where(fact), "carried", key="env"))

    def pass_on(self, program: str, options: list[tuple[str, Fact]]) -> None:
        """Takes options unchanged; only those that a directive cannot express are left out."""
        taken: list[str] = []
        for name, fact in options:
            text = f"--{dashed(name)}" + ("" if fact.value is True else f"={fact.value}")
            self.take(program, [text], fact)
            self.words[-1] = self.words[-1]._replace(text=text)
            if self.site.get(program) == (text,):
                taken.append(text)
        if taken:
            self.site[program] = tuple(taken)

    def change(self, text: str, where: str, became: str) -> None:
        """Records a word that the job has in another form."""
        self.words.append(TakenWord(text, where, "rewritten", became))

    def leave(self, text: str, where: str, why: str) -> None:
        """Records a word that the job does not have."""
        self.words.append(TakenWord(text, where, "left out", why))

    def where(self, fact: Fact | None, line: int = 0) -> str:
        file = self.launch.reading.target
        if fact is not None and fact.location is not None:
            file, line = fact.location.file, fact.location.line
        file = visible(posixpath.basename(file))
        return f"{file}:{line}" if line else file

    def of(self, program: str) -> dict[str, Fact]:
        """The options of a program, by name."""
        return {
            name.partition(".")[2]: fact
            for name, fact in self.launch.facts.items()
            if name.startswith(program + ".") and fact.origin == "launch"
        }

    @property
    def start(self) -> str | None:
        """What starts the ranks, as the launch says."""
        fact = self.launch.facts.get("start")
        return fact.value if fact is not None and fact.origin == "launch" else None

    def start_of_mpi(self) -> str | None:
        """mpirun starts each rank itself, as srun does, and `hcp job run` sets the ranks' variables either way."""
        ranks, nodes, gpus = self.launch.facts.get("world_size"), self.site.get("nodes"), self.site.get("gpus_per_node")
        is_other = ranks is not None and nodes and gpus and ranks.value != nodes * gpus
        if is_other or not self.launch.unknown.get("start", "").startswith("started by mpi"):
            return None
        became = "srun starts the ranks; a program that uses MPI itself needs Slurm's: --srun=--mpi=pmix"
        self.change("mpirun", self.where(None), became)
        return "srun"
