"""Walks through a script in the order of its statements, keeps its variables, and collects the programs it starts.

Nothing is executed. Where a condition cannot be decided, every branch is walked and what differs becomes a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hcp.bash import params as shell_params
from hcp.bash.assign import assigned_names
from hcp.bash.parse import parse
from hcp.bash.state import State, Var
from hcp.bash.statements import STATEMENTS
from hcp.bash.value import Hole, Items, Lit, Part, Source, Span, Value, source_of
from hcp.launch.script.options import sbatch_header
from hcp.launch.script.started import Context, Handed, Launched

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_STEPS = 10_000
MAX_NESTING = 60
MAX_CALLS = 12
MAX_SHELLS = 6


class Machine(State):
    """A script as it is walked through."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.launches: list[Launched] = []
        self.notes: dict[str, None] = {}
        self.context = Context()
        self.stop: str | None = None
        """Why the statements that follow are not reached: exit, return, break or continue."""
        self.left: dict[str, list[tuple[dict[str, Var], str, Span]]] = {"break": [], "continue": [], "return": []}
        """The variables where an undecided branch left a loop or a function, with the condition."""
        self.stdin: Value | None = None
        self.printed: list[Part] | None = None
        """What a command substitution prints, while one is walked; None outside."""
        self.spoiled = False
        self.files: dict[str, Value] = {}
        self.doubts: list[str] = []
        self.nesting = self.calls = self.shells = 0
        self.exports_all = self.is_cut_short = False
        self.locals: list[dict[str, Var | None]] = []
        self.expansion = partial(shell_params.expansion, self)
        self.captured = self._captured

    def walk(self) -> None:
        """Walks the whole script; where nothing is started, also through functions that it does not seem to call."""
        root = parse(self.source)
        self.header(self.source)
        kinds = [child.type if (child.text or b"")[:7] != b"#SBATCH" else "#SBATCH" for child in root.children]
        first = next((place for place, kind in enumerate(kinds) if kind not in ("comment", "#SBATCH")), len(kinds))
        if late := kinds[first:].count("#SBATCH"):
            self.note(f"{late} #SBATCH line(s) stand after the first command: sbatch does not read them")
        self.block(root.children)
        for body, source in list(self.functions.values()) if not self.launches else ():
            self.stop = None
            self.source = source
            self.run(body)

    def header(self, source: Source) -> None:
        """Takes in the #SBATCH lines; options on sbatch's own command line win."""
        found = sbatch_header(source)
        given = {name for name in self.context.options if name.startswith("sbatch.")}
        new = tuple(option for option in found if f"sbatch.{option.name}" not in given)
        self.context = self.context.with_options("sbatch", new, None)
        self.set_slurm()

    def set_slurm(self) -> None:
        options = {}
        for name, option in self.context.options.items():
            text = option.plain
            if name.startswith("sbatch.") and isinstance(text, str):
                options[name.removeprefix("sbatch.")] = (text, option.span)
        self.slurm = options

    def note(self, text: str) -> None:
        if len(self.notes) < 20:
            self.notes[text] = None

    def line(self, node: Node) -> int:
        return self.source.location(node.start_byte, node.start_byte).line

    def span(self, node: Node) -> Span:
        return (self.source, node.start_byte, node.end_byte)

    def block(self, nodes: Sequence[Node]) -> bool | None:
        """Walks statements one after the other; the status of the last one, None = not known."""
        status: bool | None = True
        for node in nodes:
            if self.stop is not None:
                break
            if node.is_named and node.type != "comment":
                status = self.run(node)
        return status

    def run(self, node: Node) -> bool | None:
        """Walks one statement."""
        self.steps += 1
        if self.steps > MAX_STEPS or self.nesting > MAX_NESTING:
            if self.steps > MAX_STEPS and not self.is_cut_short:
                self.is_cut_short = True
                self.note(f"the script is too long to follow to its end; it is read up to line {self.line(node)}")
            self.spoiled = True
            self.forget_assigned(node, "the script is too long or nests too deeply to follow")
            return None
        handler = STATEMENTS.get(node.type)
        if handler is None:
            return None
        self.nesting += 1
        try:
            return handler(self, node)
        finally:
            self.nesting -= 1

    def forget_assigned(self, node: Node, reason: str) -> None:
        """Makes every variable unknown that is assigned below a node."""
        span = self.span(node)
        for name in assigned_names(node):
            self.forget(name, reason, span)

    def either(self, branches: Sequence[Callable[[], object]], reason: str, span: Span) -> None:
        """Walks branches of which one is taken. One that ends the script without a launch is not: we got here."""
        before = self.vars
        after: list[dict[str, Var]] = []
        stops: list[str | None] = []
        self.spoiled = True
        for branch in branches:
            self.vars = dict(before)
            count = len(self.launches)
            self.doubts.append(reason)
            branch()
            self.doubts.pop()
            stop, self.stop = self.stop, None
            if stop in self.left:
                self.left[stop].append((self.vars, reason, span))
            elif stop is None or len(self.launches) > count:
                after.append(self.vars)
            stops.append(stop)
        self.meet(before, after or [before], reason, span)
        if not after:
            self.stop = next((stop for stop in stops if stop in self.left), None)

    def enter(self, *kinds: str) -> dict[str, list[tuple[dict[str, Var], str, Span]]]:
        """Starts a loop or a function: what is left inside by `kinds` is gathered anew. Gives what was before."""
        outer = self.left
        self.left = {**outer, **{kind: [] for kind in kinds}}
        return outer

    def arrive(self, kind: str) -> None:
        """Where a branch goes on that may have been left by `break`, `continue` or `return`."""
        if self.left[kind]:
            _, reason, span = self.left[kind][0]
            self.meet(self.vars, [self.vars, *(variables for variables, _, _ in self.left[kind])], reason, span)
            self.left[kind] = []

    def taken(self, nodes: Sequence[Node]) -> bool | None:
        """Walks a branch that is taken. If it ends the script (`exit`) before a launch, it is read as not taken."""
        before, count = self.vars, len(self.launches)
        self.vars = dict(before)
        status = self.block(nodes)
        if self.stop == "exit" and len(self.launches) == count:
            self.stop, self.vars = None, before
            self.note(f"as it stands, the script stops in line {self.line(nodes[0])}; it is read as if it went on")
            return None
        return status

    def subshell(self, branch: Callable[[], bool | None]) -> bool | None:
        """Walks statements whose variables are lost afterwards."""
        before, context = self.vars, self.context
        self.vars = dict(before)
        outer = self.enter("break", "continue", "return")
        status = branch()
        self.vars, self.context, self.stop, self.left = before, context, None, outer
        return status

    def handed(self, script: Handed, span: Span) -> bool | None:
        """Walks a script that the words give to another shell."""
        text = script.text
        if text is None and script.path is not None:
            text = self.files.get(script.path)
            if text is None:
                self.note(f"{script.path} is started, but not read")
                return None
        if text is None:
            text = self.stdin
        if text is None or self.shells >= MAX_SHELLS:
            return None

        def inside() -> None:
            self.context, self.positional = script.context, script.arguments
            if script.is_job:
                self.header(self.source)

        return self.subshell(lambda: self.again(text, inside))

    def again(self, text: Value, prepare: Callable[[], None] | None = None) -> bool | None:
        """Walks a text that is put together by the script itself (`eval`, `bash -c`)."""
        source, slurm, positional = self.source, self.slurm, self.positional
        self.source = source_of(text, source.file)
        self.shells += 1
        if prepare is not None:
            prepare()
        status = self.block(parse(self.source).children)
        self.shells -= 1
        self.source, self.slurm, self.positional = source, slurm, positional
        return status

    def call(self, name: str, arguments: Items) -> bool | None:
        """Walks a function's body with its arguments."""
        if self.calls >= MAX_CALLS:
            self.spoiled = True
            return None
        body, source = self.functions[name]
        outer = self.positional, self.source
        self.positional, self.source = arguments, source
        self.calls += 1
        self.locals.append({})
        left = self.enter("break", "continue", "return")
        status = self.run(body)
        if self.stop == "return":
            self.stop = None
        self.arrive("return")
        self.left = left
        for local, var in self.locals.pop().items():
            if var is None:
                self.vars.pop(local, None)
            else:
                self.vars[local] = var
        self.calls -= 1
        self.positional, self.source = outer
        return status

    def _captured(self, node: Node) -> Value:
        """What `$(…)` prints, where only `echo` and conditions are in it: everything else is never run."""
        span = self.span(node)
        hole = (Hole(f"the output of a command in line {self.line(node)} is not known: commands are never run", span),)
        if self.shells >= MAX_SHELLS or self.nesting > MAX_NESTING:
            return hole
        outer = self.printed, self.spoiled, self.stop
        self.printed, self.spoiled = [], not any(child.type in STATEMENTS for child in node.named_children)
        self.shells += 1
        self.subshell(lambda: self.block(node.children))
        self.shells -= 1
        printed, spoiled = self.printed, self.spoiled
        self.printed, self.spoiled, self.stop = outer
        if spoiled:
            return hole
        while printed and isinstance(printed[-1], Lit) and not printed[-1].text.strip("\n"):
            printed.pop()
        return tuple(printed)
