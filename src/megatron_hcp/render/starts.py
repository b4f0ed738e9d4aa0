"""The launchers that can start a job's ranks, and their properties."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.dialects.verl.framework import VERL
from megatron_hcp.launch.fact import ELASTIC_STARTS, Launch


class Start(NamedTuple):
    """One way to start ranks.

    `tasks_are_ranks`: Slurm starts every rank itself; otherwise one launcher per node does. `has_ranks`: which rank is
    on which node is known before training. `names_interpreter`: the command must name Python; launchers add it
    themselves. `stop_signal`: what scancel sends so that the trainer saves and exits; None if it cannot be asked.
    """

    name: str
    title: str
    tasks_are_ranks: bool = False
    has_ranks: bool = True
    names_interpreter: bool = False
    stop_signal: str | None = "USR1"


STARTS: dict[str, Start] = {
    start.name: start
    for start in (
        Start(
            "srun",
            "srun starts every rank",
            tasks_are_ranks=True,
            names_interpreter=True,
            stop_signal="TERM",
        ),
        Start("torchrun", "torchrun on every node"),
        Start("ft_launcher", "ft_launcher on every node"),
        Start("ray", "one Ray cluster over all nodes", has_ranks=False, names_interpreter=True, stop_signal=None),
        Start("verify", "hcp verify on every node", has_ranks=False, stop_signal=None),
    )
}
"""verify: a job that does not train but runs `hcp verify` on every node."""
ONLY_START = {"verl": "ray", "nemo-rl": "ray", "slime": "ray", "ms-swift": "torchrun"}
"""Frameworks, by dialect, whose ranks are started in one way only."""


def only_start(launch: Launch | None) -> str | None:
    """The one way in which a launch's ranks can be started; None if there are several."""
    if launch is None:
        return None
    start, script = launch.facts.get("start"), launch.facts.get("script")
    by_torchrun = start is not None and start.origin == "launch" and start.value in ELASTIC_STARTS
    if launch.dialect == "verl" and (by_torchrun or (script is not None and not VERL.by_ray(str(script.value)))):
        return None
    return ONLY_START.get(launch.dialect)


def refuse_steps(targets: Sequence[str], words: Sequence[str]) -> None:
    """Returns if the targets can be steps of `hcp verify`.

    Raises:
        HcpError: a target is a file or not a name, or there are arguments for a trainer.
    """
    if words:
        raise HcpError("found words after -- with --start verify", wanted="steps as targets", do="leave them out")
    files = [target for target in targets if os.path.isfile(target)]
    if files:
        raise HcpError(
            f"found the file {files[0]} with --start verify",
            wanted="skills, or steps as SKILL:STEP",
            do="see hcp verify --list",
        )
    odd = [target for target in targets if not target.isprintable()]
    if odd:
        raise HcpError(
            f"found {visible(odd[0])[:200]} with --start verify",
            wanted="a skill, or a step as SKILL:STEP",
            do="see hcp verify --list",
        )


def title_of(start: str, launch: Launch | None, steps: Sequence[str]) -> str:
    if launch is None:
        return f"Verification across nodes: {len(steps) or 'all'} steps."
    return f"Training on the Megatron stack, {launch.dialect}: {STARTS[start].title}."
