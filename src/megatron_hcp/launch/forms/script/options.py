"""Options of sbatch, srun and torchrun: their long names, and which take no value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, Span, Unseen, Value, default_of, text_of
from megatron_hcp.ground.record import NamedTuple

SLURM_SHORT = {
    "A": "account",
    "B": "extra_node_info",
    "C": "constraint",
    "D": "chdir",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "I": "immediate",
    "J": "job_name",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "O": "overcommit",
    "Q": "quiet",
    "S": "core_spec",
    "V": "version",
    "W": "wait",
    "a": "array",
    "b": "begin",
    "c": "cpus_per_task",
    "d": "dependency",
    "e": "error",
    "h": "help",
    "i": "input",
    "k": "no_kill",
    "m": "distribution",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "x": "exclude",
    # srun only:
    "E": "preserve_env",
    "K": "kill_on_bad_exit",
    "T": "threads",
    "X": "disable_status",
    "Z": "no_allocate",
    "l": "label",
    "r": "relative",
    "u": "unbuffered",
}
_SLURM_BARE_NAMES = (
    "hold immediate overcommit quiet version help no_kill oversubscribe verbose preserve_env kill_on_bad_exit "
    "disable_status no_allocate label unbuffered exclusive requeue no_requeue contiguous spread_job use_min_nodes "
    "overlap pty multi_prog test_only parsable ignore_pbs reboot uid_map external no_container_mount_home "
    "container_mount_home container_writable container_readonly no_container_entrypoint container_entrypoint "
    "container_remap_root no_container_remap_root propagate get_user_env interactive"
)
SLURM_BARE = frozenset(_SLURM_BARE_NAMES.split())
"""Options that take no value, or one only after `=`. (srun's -I, -K and -k take one without a space.)"""
_SBATCH_WITH_VALUE = frozenset({"wait"})
"""srun: `--wait SECONDS`; sbatch: `--wait` without a value."""
_TORCHRUN_BARE_NAMES = (
    "standalone no_python module m run_path use_env virtual_local_rank help h ft_use_infra_group_rank "
    "ignore_missing_fault_tol_cfg ft_ignore_missing_cfg skip_nvrx_cfg"
)
TORCHRUN_BARE = frozenset(_TORCHRUN_BARE_NAMES.split())


class Option(NamedTuple):
    """One option as given. `value` None: given without a value."""

    name: str
    value: Value | None
    span: Span
    written: str

    @property
    def plain(self) -> object:
        """True for a bare option, else its text, or None if that is unknown."""
        return True if self.value is None else text_of(self.value)


class Options(NamedTuple):
    """The options at the start of a list of words, and the index of the first word after them."""

    found: tuple[Option, ...]
    rest: int
    unseen: str | None


def slurm_options(items: Sequence[Item], start: int, program: str) -> Options:
    """The options of srun or sbatch from `items[start]` on."""
    bare = SLURM_BARE | _SBATCH_WITH_VALUE if program == "sbatch" else SLURM_BARE
    return _options(items, start, bare, SLURM_SHORT)


def srun_options(items: Items, start: int) -> tuple[Options, Items]:
    """The options of srun, and the words of the first component: `srun a : b` has two, and then `het_group` too."""
    options = slurm_options(items, start, "srun")
    for place in range(options.rest, len(items)):
        item = items[place]
        if isinstance(item, Field) and item.text == ":":
            group = Option("het_group", None, item.span, ":")
            return options._replace(found=(*options.found, group)), items[:place]
    return options, items


def torchrun_options(items: Sequence[Item], start: int) -> Options:
    """The options of torchrun or ft_launcher from `items[start]` on."""
    return _options(items, start, TORCHRUN_BARE, {})


_MPI_RANKS = {
    **dict.fromkeys(("-np", "--np", "-n", "-c"), "np"),
    **dict.fromkeys(("-npernode", "--npernode", "-N", "-ppn", "--ppn", "-perhost"), "ranks_per_node"),
}


def mpi_options(items: Sequence[Item], start: int, end: int) -> Options:
    """How many ranks mpirun starts, in total and per node (Open MPI's and MPICH's option names)."""
    found: list[Option] = []
    for place in range(start, end - 1):
        option, argument = items[place], items[place + 1]
        name = _MPI_RANKS.get(option.text or "") if isinstance(option, Field) else None
        if name is None or not isinstance(option, Field):
            continue
        value = argument.parts if isinstance(argument, Field) else _unknown(argument)
        found.append(Option(name, value, _from_to(option.span, argument.span), (option.text or "")))
    hidden = [item.reason for item in items[start:end] if not isinstance(item, Field)]
    return Options(tuple(found), end, hidden[0] if hidden else None)


def _options(items: Sequence[Item], start: int, bare: frozenset[str], short: dict[str, str]) -> Options:
    found: list[Option] = []
    unseen: str | None = None
    place = start
    while place < len(items):
        item = items[place]
        if isinstance(item, Maybe):
            if not any(isinstance(first, Field) and first.prefix[:1] == "-" for o in item.options for first in o[:1]):
                break
            unseen = item.reason
            place += 1
            continue
        if isinstance(item, Unseen):
            if not any(_starts_program(later) for later in items[place + 1 :]):
                break
            unseen = item.reason
            place += 1
            continue
        word = item.prefix
        if len(word) < 2 or word[0] != "-":
            break
        place += 1
        if word == "--":
            break
        name, value, complete = _named(item, word, bare, short)
        if complete or name in bare:
            found.append(Option(name, value, item.span, word.partition("=")[0]))
            continue
        if place < len(items):
            argument = items[place]
            place += 1
            if isinstance(argument, Field):
                span = _from_to(item.span, argument.span)
                found.append(Option(name, argument.parts, span, word))
                continue
            unseen = None if isinstance(argument, Unseen) and argument.scalar else argument.reason
            found.append(Option(name, _unknown(argument), item.span, word))
    return Options(tuple(found), place, unseen)


def _named(item: Field, word: str, bare: frozenset[str], short: dict[str, str]) -> tuple[str, Value | None, bool]:
    """An option's long name, the value in the same word if any, and whether the option is complete."""
    if word[:2] == "--" or not short:
        name, equals, _ = word.lstrip("-").partition("=")
        value = _after(item, word.index("=") + 1) if equals else None
        return name.replace("-", "_"), value, bool(equals)
    name = short.get(word[1], word[1])
    if len(word) == 2 and len(item.parts) == 1:
        return name, None, False
    if name in bare and word[2:].isalpha():
        return name, None, True  # several letters in one word: -lK
    return name, _after(item, 3 if word[2:3] == "=" else 2), True


def _after(item: Field, count: int) -> Value:
    """The word's parts from the `count`-th character on, which is in its known start."""
    parts: list[Lit] = []
    for place, part in enumerate(item.parts):
        if not isinstance(part, Lit):
            return (*parts, *item.parts[place:])
        if count < len(part.text):
            parts.append(part._replace(text=part.text[count:], exact=False))
        count = max(0, count - len(part.text))
    return tuple(parts)


def _starts_program(item: Item) -> bool:
    return isinstance(item, Field) and re.search(r"(\.py|(^|/)python[\d.]*)$", item.prefix) is not None


def _unknown(item: Unseen | Maybe) -> Value:
    return (Hole(item.reason, item.span),)


def _from_to(first: Span, last: Span) -> Span:
    if first[0] is last[0] and first[2] <= last[1]:
        return (first[0], first[1], last[2])
    return first


def gpu_count(text: str | None) -> int | None:
    """GPUs in `8`, `h100:8`, `gpu:8`, `gpu:h100:8,nvme:1`; None if none are named or the text is unknown.

    Beside an entry `gpu`, the others are other resources.

    >>> gpu_count("gpu:h100:8(S:0-1)"), gpu_count("gpu"), gpu_count("shard:4")
    (8, 1, None)
    """
    total = 0
    listed = [entry.strip().removeprefix("gres/").partition("(")[0] for entry in (text or "").split(",")]
    entries = [entry.replace("=", ":").split(":") for entry in listed]
    for name, *fields in [entry for entry in entries if entry[0] == "gpu"] or entries:
        last = fields[-1] if fields else name
        if name == "gpu" and (not fields or not last.isdecimal()):
            total += 1
        elif last.isdecimal() and len(last) < 7 and (name == "gpu" or (len(fields) < 2 and name != "shard")):
            total += int(last)
    return total or None


_COUNTS = frozenset(("nnodes", "num_nodes", "n_gpus_per_node", "actor_num_nodes", "actor_num_gpus_per_node"))
"""Options and keys, by their last word, that count nodes or GPUs."""


def counted_by_default(items: Items) -> str:
    """The variable whose default the number of nodes or GPUs is: `trainer.nnodes=${PET_NNODES:-1}`; "" if none."""
    before = ""
    for item in items:
        text = (item.text or "") if isinstance(item, Field) else ""
        key = text.partition("=")[0] if "=" in text else before
        counts = key.lstrip("+-").rpartition(".")[2].replace("-", "_") in _COUNTS
        if counts and isinstance(item, Field) and (variable := default_of(item.parts)):
            return variable
        before = text
    return ""
