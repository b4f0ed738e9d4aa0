"""Where what a command starts runs: on the machine of the job's own script, or elsewhere."""

from __future__ import annotations

from megatron_hcp.bash.value import Items
from megatron_hcp.launch.forms.script.commands import WRAPPERS, name_of
from megatron_hcp.launch.forms.script.started import StartContext

_HERE = frozenset(
    "nohup time exec timeout numactl mpirun mpiexec stdbuf taskset nice ionice setsid command unbuffer chrt".split()
)
"""Wrappers that start something on the same machine, or in a step of the job, and outside of any container."""


def is_here(items: Items, context: StartContext) -> bool:
    """Whether what the words start sees the files and commands of the job's own script: on its first node at least."""
    apart = ("container", "docker.", ".environment")
    return (
        not any(name_of(item) in WRAPPERS - _HERE for item in items)
        and not any(part in option for option in context.options for part in apart)
        and not {"srun", "docker", "env"} & context.hidden.keys()
        and context.start != "ray"
    )
