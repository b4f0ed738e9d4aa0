"""What starts the ranks of a job, and how that has to be treated."""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """One way to start ranks.

    `tasks_are_ranks`: Slurm starts every rank itself; elsewhere one launcher per node does. `has_ranks`: which rank is
    on which node is known before training. `names_interpreter`: the command has to name Python; launchers do it
    themselves. `stop_signal`: what scancel sends so that the trainer saves and ends; None: it cannot be asked.
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
"""verify: a job that trains nothing and runs `hcp verify` on every node."""
