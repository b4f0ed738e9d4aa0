"""What a script does before it starts the training, as text for a job that needs what this sets: the last resort.

A list of data that a program writes first, a loop over files, a count of tokens by awk: only bash can follow these, so
the job has bash do so, once, and takes back the variables whose values could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shlex import quote

from megatron_hcp.bash.reason import RunTime
from megatron_hcp.bash.run_time import below_all, with_credentials
from megatron_hcp.bash.split import Frag, assemble
from megatron_hcp.bash.state import PWD, SOURCE, Var
from megatron_hcp.bash.syntax import (
    AndOr,
    Assignment,
    Command,
    Declaration,
    Function,
    Negation,
    NotUnderstood,
    Parameter,
    Pipeline,
    Redirected,
    Statement,
    SyntaxNode,
)
from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, OneOf, Part, Span, Unseen, Value
from megatron_hcp.bash.walker import Walker
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.ground.secrets import is_secret_name, without_secrets
from megatron_hcp.launch.fact import OF_THE_JOB

_STARTS = frozenset(
    "srun sbatch salloc scancel mpirun mpiexec torchrun ray docker podman enroot apptainer singularity ssh pdsh nohup "
    "exec eval bash sh zsh kubectl accelerate deepspeed trap".split()
)
"""Commands that start what the job must not start twice, or elsewhere, or that a text alone does not show."""
_IN_BACKGROUND = r"(?<![&<>|\\])&(?![&>])"
_WORD = r"[A-Za-z_]\w*"
_OF_A_RANK = re.compile(
    r"(?:SLURM_(?:PROCID|NODEID|LOCALID|STEP\w*)|(?:LOCAL_|NODE_|GROUP_|MACHINE_)?RANK|PMIX?_\w+|"
    r"OMPI_(?!COMM_WORLD_(?:LOCAL_)?SIZE\Z)\w+|SLURMD_NODENAME|HOSTNAME|hostname)\Z"
)
_WRITERS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|uv|cp|mv|rm|ln|touch|tee|rsync|wget|curl|tar|unzip|git|aws|gsutil|hf)\Z"
)
_AS_FIRST_RANK = (
    "export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_NODE_RANK=0\n"
    'export OMPI_COMM_WORLD_SIZE="${SLURM_NTASKS:-1}" OMPI_COMM_WORLD_LOCAL_SIZE="${SLURM_NTASKS_PER_NODE:-1}"\n'
)
"""Source: Open MPI's documentation, "environment variables set in the launched processes"."""


class Prologue(NamedTuple):
    """`run`: the text. `values`: the variables that it leaves, as far as they aren't known and stay until the start.

    `lines`: its first line, and the one that starts the training, if it is of the script itself. `writes`: it may write
    files, so that no command or condition may be run without it.
    """

    run: RunTime
    values: Mapping[str, Value]
    lines: tuple[int, int] = (0, 0)
    writes: bool = False

    def filled(self, items: Items, is_lost: Sequence[bool]) -> Items:
        """The words of the training command, as `_filled`; a list that a variable holds is that variable."""
        found = list(zip(items, is_lost, strict=True))
        for name, value in self.values.items():
            words = assemble([Frag(part, True) for part in value], value[0].span) if len(value) > 1 else []
            for at in range(len(found) - len(words) + 1) if len(words) > 1 else ():
                there = found[at : at + len(words)]
                if any(lost for _, lost in there) and all(map(_same, words, (item for item, _ in there))):
                    one = Unseen(f"{name} is set as the job starts", value[0].span, False, name, None, self.run)
                    found[at : at + len(words)] = [(one, False)]
                    break
        return tuple(self._filled(item, lost) for item, lost in found)

    def _filled(self, item: Item, is_lost: bool) -> Item:
        """A word in which the variables of the script stand for what is not known of them.

        `is_lost`: the job can't tell the word otherwise; else only what a file sets that is taken in is changed, since
        the text takes it in too.
        """
        if isinstance(item, Field):
            parts = item.parts
            return item._replace(parts=self._parts(parts) if is_lost else tuple(map(self._taken, parts)))
        if is_lost and self._holds(item):
            return Unseen(item.reason, item.span, isinstance(item, Unseen), item.of, None, self.run)
        if isinstance(item, Unseen) and (is_lost or item.taken_in is not None) and _is_from_outside(item):
            return item._replace(taken_in=self.run)
        return item

    def _taken(self, part: Part) -> Part:
        if isinstance(part, OneOf):
            return part._replace(options=tuple(tuple(map(self._taken, one)) for one in part.options))
        return part._replace(taken_in=self.run) if isinstance(part, Hole) and part.taken_in is not None else part

    def _holds(self, part: Unseen | Maybe | Hole | OneOf) -> bool:
        """Whether a variable still has the value that the part is."""
        value = self.values.get(part.of) if part.of else None
        return value is not None and len(value) == 1 and not isinstance(value[0], Lit) and value[0].of is part.of

    def _parts(self, parts: Value) -> Value:
        for name, value in self.values.items():
            for at in range(len(parts) - len(value) + 1):
                if len(value) > 1 and parts[at : at + len(value)] == value:
                    hole = self._hole(name, value[0].span)
                    return (*self._parts(parts[:at]), hole, *self._parts(parts[at + len(value) :]))
        return tuple(map(self._part, parts))

    def _part(self, part: Part) -> Part:
        if isinstance(part, Lit):
            return part
        if self._holds(part):
            return self._hole(part.of, part.span)
        if isinstance(part, OneOf):
            return part._replace(options=tuple(map(self._parts, part.options)))
        return part._replace(taken_in=self.run) if _is_from_outside(part) else part

    def _hole(self, name: str, span: Span) -> Hole:
        return Hole(f"{name} is set as the job starts", span, outside=name, taken_in=self.run)


def _is_from_outside(part: Unseen | Hole) -> bool:
    """Whether a part is a variable of whoever starts the job, and not also one of the job's own script."""
    return bool(part.outside) and part.outside not in OF_THE_JOB


def _same(one: Item, other: Item) -> bool:
    if isinstance(one, Field) and isinstance(other, Field):
        return one.parts == other.parts
    return one == other


def is_open(item: Item) -> bool:
    """Whether a word is not known."""
    return not isinstance(item, Field) or any(not isinstance(part, Lit) for part in item.parts)


def prologue(w: Walker, span: Span, by_ranks: bool) -> Prologue | None:
    """What the shell that starts the training at `span` does before; None where the job can't do it in its place.

    Args:
        by_ranks: each rank runs this shell. The job runs it once, as the first rank would, and no variable that hangs
                on the rank is taken from it.
    """
    given, arguments, depth = w.entry
    nodes = w.script.statements
    at = next((place for place, node in enumerate(nodes) if node.start <= span[1] < node.end), 0)
    if not at or w.calls or w.shells != depth or span[0] is not w.source or w.globs_otherwise or "IFS" in w.vars:
        return None
    before = [node for node in nodes[:at] if not _is_secret(w, node)]
    text = _text(w, before, nodes[at].start)
    names = _names(before, arguments is not None)
    assigned = {name for node in before for name in w.script.assigned_in(node)}
    kept_back = {name for node in nodes[:at] if node not in before for name in w.script.assigned_in(node)}
    if (
        names is None
        or names & kept_back
        or (names | _in_sums(text)) & OF_THE_JOB - assigned - given.keys()  # the job's script has its own of that name
        or re.search(_IN_BACKGROUND, re.sub(r"'[^']*'", "", text))
        or any(m in text for m in w.source.marks)
    ):
        return None
    ours = (PWD, SOURCE)
    known = {name: var for name, var in given.items() if name not in ours and not is_secret_name(f"--{name}")}
    known |= {name: Var((Lit(w.told[name], w.here, False),)) for name in names & w.told.keys()}
    if with_credentials(w, {**known, "": Var((Lit(text, w.here, False),))}) or without_secrets(text) != text:
        return None
    words = [item.text if isinstance(item, Field) else None for item in arguments or ()]
    if arguments is not None:
        if None in words or w.is_shifted:
            return None
        text = f"set -- {' '.join(quote(word) for word in words if word is not None)}\n{text}"
    folder = given[PWD].value or () if PWD in given else ()
    stays = not folder or (len(folder) == 1 and isinstance(folder[0], Hole) and folder[0].below == ".")
    run = RunTime(f"{_AS_FIRST_RANK if by_ranks else ''}{text}", known, None if stays else folder, names, is_whole=True)
    first, last = (w.source.location(node.start, node.start) for node in (nodes[0], nodes[at]))
    lines = (first.line, last.line) if not depth and first.file == w.file else (0, 0)
    writes = any(_may_write(w, node) for node in below_all(before))
    return Prologue(run, _open_values(w, before, nodes[at], by_ranks), lines, writes)


def _in_sums(text: str) -> set[str]:
    """The names in arithmetic and conditions, which read variables without a `$`."""
    return {name for one in re.findall(r"\(\(.*?\)\)|\[\[.*?\]\]", text) for name in re.findall(_WORD, one)}


def _may_write(w: Walker, node: SyntaxNode) -> bool:
    if isinstance(node, Redirected):
        return bool(node.outputs) and re.search(r">(?!\s*(?:&|/dev/null))", w.text(node)) is not None
    return isinstance(node, Command) and node.name not in w.functions and _WRITERS.match(node.name) is not None


def _text(w: Walker, nodes: list[Statement], end: int) -> str:
    """The text of statements and what is between them, such as the end of a here document; without those left out."""
    pieces, data = [], w.source.data
    starts = {
        node.start: later.start for node, later in zip(w.script.statements, w.script.statements[1:], strict=False)
    }
    for node in nodes:
        pieces.append(data[node.start : min(starts.get(node.start, end), end)].decode("utf-8", "replace").rstrip())
    return "\n".join(re.sub(r"(?m)^[ \t]*#.*\n?", "", piece) if "<<" not in piece else piece for piece in pieces)


def _is_secret(w: Walker, node: Statement) -> bool:
    """A statement that does nothing but set a credential: the shell that submits the job has it."""
    sets = isinstance(node, Assignment | Declaration) or (isinstance(node, Command) and not node.words)
    return sets and any(is_secret_name(f"--{name}") for name in w.script.assigned_in(node))


def _names(nodes: list[Statement], has_arguments: bool) -> frozenset[str] | None:
    """The variables that statements read; None if the job can't run them in the place of the script."""
    names: set[str] = set()
    functions = [node.body for node in below_all(nodes) if isinstance(node, Function)]
    of_functions = {id(node) for node in below_all(functions)}
    for node in below_all(nodes):
        if isinstance(node, NotUnderstood) or (isinstance(node, Command) and node.name in _STARTS):
            return None
        if isinstance(node, Parameter):
            if node.prefix == "!" or node.name in (SOURCE, "0", "!"):
                return None
            is_own = node.name.isidentifier() or node.name in "?$-" or id(node) in of_functions
            if not (is_own or has_arguments):
                return None
            names.add(node.name)
    return frozenset(name for name in names if name.isidentifier())


def _open_values(w: Walker, before: list[Statement], start: Statement, by_ranks: bool) -> dict[str, Value]:
    """The variables whose values aren't known, the longest value first: what the last statement sets is not of them."""
    simple = isinstance(start, Command | Redirected | Pipeline | AndOr | Negation)
    if not simple and w.functions:
        return {}
    lost = {*w.script.assigned_in(start), *(_of_ranks(w, before) if by_ranks else ())}
    found = {
        name: tuple(part for part in var.value if not isinstance(part, Lit) or part.text)
        for name, var in w.vars.items()
        if name not in lost | {PWD, SOURCE}
        and var.value
        and not is_secret_name(f"--{name}")
        and is_open(Field(var.value, w.here))
    }
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))


def _of_ranks(w: Walker, nodes: list[Statement]) -> set[str]:
    """The variables that hang on which rank sets them."""
    links: list[tuple[list[str], set[str]]] = []
    for node in nodes:
        read = {one.name for one in below_all([node]) if isinstance(one, Parameter)}
        if isinstance(node, Function):
            read |= {"RANK"}  # who calls it is not asked
        links.append((w.script.assigned_in(node), read | set(re.findall(_WORD, w.text(node)))))
    lost = {name for _, read in links for name in read if _OF_A_RANK.match(name)}
    while more := {name for names, read in links if read & lost for name in names} - lost:
        lost |= more
    return lost
