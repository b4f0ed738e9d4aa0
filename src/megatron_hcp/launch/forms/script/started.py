"""What a command starts, and how: the result of parsing its words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from megatron_hcp.bash.state import Var
from megatron_hcp.bash.value import Field, Hole, Item, Items, Span, Unseen, Value
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.forms.script.options import Option

if TYPE_CHECKING:
    from megatron_hcp.bash.run_time import SetupLine


class StartContext(NamedTuple):
    """What the words so far say about how the program is started."""

    start: str | None = None
    doubt: str | None = None
    """Why `start` isn't known."""
    options: Mapping[str, Option] = MappingProxyType({})
    """`srun.nodes`, `sbatch.time`, `torchrun.nnodes`, …"""
    hidden: Mapping[str, str] = MappingProxyType({})
    """Programs whose options aren't all known -> why."""
    environment: Mapping[str, tuple[Value | None, Span]] = MappingProxyType({})
    by_srun: bool = False
    """srun is among what starts the program, so there is one launcher per Slurm task."""

    def with_options(self, program: str, found: tuple[Option, ...], unseen: str | None) -> StartContext:
        options = {**self.options, **{f"{program}.{option.name}": option for option in found}}
        hidden = {**self.hidden, program: unseen} if unseen else self.hidden
        return self._replace(options=options, hidden=hidden)

    def with_environment(self, more: Mapping[str, tuple[Value | None, Span]]) -> StartContext:
        return self._replace(environment={**self.environment, **more})

    def with_start(self, start: str) -> StartContext:
        return self._replace(start=start, doubt=None)


class Started(NamedTuple):
    """A program with its arguments. `script` None: its name isn't known."""

    context: StartContext
    script: str | None
    is_module: bool
    arguments: Items
    span: Span


class Launched(NamedTuple):
    """A program that the script starts, with the variables passed to it."""

    started: Started
    environment: dict[str, Var]
    doubt: str | None
    """The condition (undecidable here) under which it is started."""
    setup: tuple[SetupLine, ...] = ()
    """The commands before it that set up its software."""


class Handed(NamedTuple):
    """A script passed to another shell: as text, as a file path, or (both None) on standard input."""

    context: StartContext
    text: Value | None = None
    path: Value | None = None
    is_job: bool = False
    arguments: Items = ()
    """What the script gets as $1, $2, …"""
    is_here: bool = False
    """Whether it sees the files and commands of the script that starts it."""


class ContainerStart(NamedTuple):
    """What a container starts instead of a script: a command, its variables, files and size."""

    items: Items
    variables: Mapping[str, tuple[Value | None, Span]]
    files: Mapping[str, Value]
    options: tuple[Option, ...]
    start: str | None
    hidden: str | None
    """What may set further variables, and the line that names it."""


def from_outside(context: StartContext, item: Item) -> Handed | None:
    """The text that a variable holds if whoever starts the script sets it: `srun $COMMAND`; None for any other word."""
    if not context.by_srun and context.start is None:
        return None
    part = item.parts[0] if isinstance(item, Field) and len(item.parts) == 1 else item
    if not isinstance(part, Hole | Unseen) or not part.outside.isidentifier():
        return None
    return Handed(context, (Hole(part.reason, part.span, outside=part.outside),))
