"""Follows a script statement by statement and tracks its variables. Nothing is executed.

The effects of each kind of statement are passed in as a table (`bash.statements`), and so is the handler for
commands that are not builtins. If a condition cannot be decided, every branch is followed, and values that differ
afterwards become choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.reason import WhyUnknown, of_command
from megatron_hcp.bash.state import PWD, SOURCE, Preset, State, Var, assigned_names
from megatron_hcp.bash.syntax import CommandSubstitution, Function, Script, Statement, SyntaxNode
from megatron_hcp.bash.value import Hole, Items, Lit, Part, ScriptText, Span, Value, cut
from megatron_hcp.ground.secrets import without_secrets

MAX_STEPS = 10_000
MAX_NESTING = 60
MAX_CALLS = 12
MAX_SHELLS = 6

Status = bool | None
"""Whether a statement succeeds; None if unknown."""
Prefix = Mapping[str, tuple[Value | None, Span]]
"""The assignments in front of a command."""
Left = dict[str, list[tuple[dict[str, Var], str, Span]]]
OnCommand = Callable[["Walker", Items, Prefix, Span], Status]
FindScript = Callable[[Value, Value], Script | str]
"""The file that a value names, as a script, or why it is not read; then the current folder, empty if only asked for."""


class Walker(State):
    """A script as it is followed.

    Args:
        script: the script.
        statements: what each kind of statement does.
        on_command: called for each command that is neither a builtin nor a function of the script. If it is one that
            the caller looks for, the callback counts it in `found`.
        preset: the variables that are set from outside.
        find_script: returns the files that the script sources. Their paths are as in `megatron_hcp.bash.paths`.
        arguments: what the script is started with; None where that is not known.
    """

    def __init__(
        self,
        script: Script,
        statements: Mapping[type[Statement], Callable[[Walker, Any], Status]],
        on_command: OnCommand,
        preset: Preset,
        find_script: FindScript = lambda path, here: "no file is read beside the script",
        arguments: Items | None = None,
    ) -> None:
        super().__init__(script, preset)
        self.statements, self.on_command, self.find_script = statements, on_command, find_script
        self.positional = arguments
        self.found = 0
        """How many of the commands that the caller looks for were met: a branch that exits before any is not taken."""
        self.notes: dict[str, None] = {}
        self.functions: dict[str, tuple[Function, Script]] = {}
        self.stop: str | None = None
        """Why the statements that follow are not reached: exit, return, break or continue."""
        self.left: Left = {"break": [], "continue": [], "return": []}
        """The variables where an undecided branch left a loop or a function, with the condition."""
        self.stdin: Value | None = None
        self.printed: list[Part] | None = None
        """What a command substitution prints, while one is followed; None outside."""
        self.files, self.changed, self.made, self.setup = dict[str, Value](), dict[str, str](), set[str](), list[Any]()
        self.doubts: list[str] = []
        """The undecidable conditions under which the script reaches its current place."""
        self.nesting = self.calls = self.shells = self.other_shells = self.elsewhere = self.steps_around = 0
        self.spoiled = self.exports_all = self.is_cut_short = False
        self.locals: list[dict[str, Var | None]] = []

    def walk(self) -> None:
        """Follows the whole script; if nothing is found, also functions that it does not appear to call."""
        self.block(self.script.statements)
        for function, script in list(self.functions.values()) if not self.found else ():
            self.stop = None
            self.script = script
            self.run(function.body)

    def note(self, text: str) -> None:
        """Adds a note for the user."""
        if len(self.notes) < 20:
            self.notes[without_secrets(text)] = None

    def line(self, node: SyntaxNode) -> str:
        """The line in which a node starts, with its file if that is not the script itself."""
        place = self.source.location(node.start, node.start)
        return f"{place.line}" if place.file == self.file else f"{place.line} of {place.file}"

    def span(self, node: SyntaxNode) -> Span:
        """A node's place."""
        return (self.source, node.start, node.end)

    def text(self, node: SyntaxNode) -> str:
        """A node's source text."""
        return self.source.data[node.start : node.end].decode("utf-8", "replace")

    def block(self, statements: Sequence[Statement]) -> Status:
        """Follows statements in order; returns the status of the last one."""
        status: Status = True
        for statement in statements:
            if self.stop is not None:
                break
            status = self.run(statement)
        return status

    def run(self, statement: Statement) -> Status:
        """Follows one statement."""
        self.steps += 1
        if self._is_long or self.nesting > MAX_NESTING:
            return self._give_up(statement)
        self.nesting += 1
        try:
            return self.statements[type(statement)](self, statement)
        finally:
            self.nesting -= 1

    @property
    def _is_long(self) -> bool:
        return self.steps > MAX_STEPS or self.work > MAX_STEPS

    def _give_up(self, statement: Statement) -> Status:
        if self._is_long and not self.is_cut_short:
            self.is_cut_short = True
            self.note(f"the script is too long to follow to its end; it is read up to line {self.line(statement)}")
        self.spoiled = True
        self.forget_assigned(statement, "the script is too long or nests too deeply to follow")
        return None

    def forget_assigned(self, statement: Statement, reason: str) -> None:
        """Makes every variable unknown that is assigned anywhere in a statement."""
        span = self.span(statement)
        for name in self.script.assigned_in(statement):
            self.forget(name, reason, span)

    def either(self, branches: Sequence[Callable[[], object]], reason: str, span: Span) -> None:
        """Follows branches of which one is taken. One that ends the script before anything is found is not taken."""
        before = self.vars
        after: list[dict[str, Var]] = []
        stops: list[str | None] = []
        self.spoiled = True
        for branch in branches:
            self.vars = dict(before)
            found = self.found
            self.doubts.append(reason)
            branch()
            self.doubts.pop()
            stop, self.stop = self.stop, None
            if stop in self.left:
                self.left[stop].append((self.vars, reason, span))
            elif stop is None or self.found > found:
                after.append(self.vars)
            stops.append(stop)
        self.meet(before, after or [before], reason, span)
        if not after:
            self.stop = next((stop for stop in stops if stop in self.left), None)

    def enter(self, *kinds: str) -> Left:
        """Starts a loop or a function: exits inside by `kinds` are collected afresh. Returns those collected before."""
        outer = self.left
        self.left = {**outer, **{kind: [] for kind in kinds}}
        return outer

    def arrive(self, kind: str) -> None:
        """Where a branch continues that `break`, `continue` or `return` may have left."""
        if self.left[kind]:
            _, reason, span = self.left[kind][0]
            reason = reason.without_test() if isinstance(reason, WhyUnknown) else reason
            self.meet(self.vars, [self.vars, *(variables for variables, _, _ in self.left[kind])], reason, span)
            self.left[kind] = []

    def taken(self, statements: Sequence[Statement]) -> Status:
        """Follows a branch that is taken. If it ends the script before anything is found, it counts as not taken."""
        before, found = self.vars, self.found
        self.vars = dict(before)
        status = self.block(statements)
        if self.stop == "exit" and self.found == found:
            self.stop, self.vars = None, before
            self.note(f"as it stands, the script stops in line {self.line(statements[0])}; it is read as if it went on")
            return None
        return status

    def subshell(self, branch: Callable[[], Status]) -> Status:
        """Follows statements in a subshell: their variables are discarded afterwards."""
        before, setup = self.vars, self.setup
        self.vars, self.setup = dict(before), [*setup]
        outer = self.enter("break", "continue", "return")
        status = branch()
        self.vars, self.stop, self.left, self.setup = before, None, outer, setup
        return status

    def shell(self, text: ScriptText, arguments: Items, given: Mapping[str, Var]) -> Status:
        """Follows a text that another shell gets (`bash -c`). `given` are variables of that shell alone."""
        return self._other_shell(lambda: self.again(text), arguments, given)

    def start_file(self, script: Script, path: str, arguments: Items, given: Mapping[str, Var]) -> Status:
        """Follows a file that another shell gets (`bash FILE`); the rest is as in `follow_file` and `shell`."""
        outer, self.name = self.name, path
        status = self._other_shell(lambda: self.follow_file(script, path, arguments), arguments, given)
        self.name = outer
        return status

    def _other_shell(self, branch: Callable[[], Status], arguments: Items, given: Mapping[str, Var]) -> Status:
        """Another shell sees only the exported variables. It may run elsewhere."""
        outer, outer_vars = self.positional, self.vars
        kept = {name: self.vars[name] for name in (PWD, SOURCE) if name in self.vars}
        self.vars = {**self.environment(), **kept, **given}
        self.positional, self.other_shells, self.made = arguments, self.other_shells + 1, set()
        status = self.subshell(branch)
        self.positional, self.vars, self.other_shells, self.made = outer, outer_vars, self.other_shells - 1, set()
        return status

    def again(self, text: ScriptText) -> Status:
        """Follows a text that the script puts together for its own shell (`eval`)."""
        outer = self.script, self.positional
        self.script = parse(text)
        # The longer a nonsensical text, the longer the parser takes.
        self.pay(len(text.data) ** 2, 40_000)
        self.shells += 1
        status = self.block(self.script.statements)
        self.shells -= 1
        self.script, self.positional = outer
        return status

    def follow_file(self, script: Script, path: str, arguments: Items | None) -> Status:
        """Follows a file that the script sources; its functions and variables stay.

        Args:
            script: the file.
            path: where it lies as seen from the script's folder.
            arguments: what `$1`, … are in it; None: those of the script.
        """
        outer = self.script, self.positional, self.vars[SOURCE]
        self.script = script
        self._stand_in(path)
        if arguments is not None:
            self.positional = arguments
        self.assigned = assigned_names(script) | self.assigned
        self.pay(len(script.text.data), 40)
        self.shells += 1
        left = self.enter("break", "continue", "return")
        status = self.block(script.statements)
        if self.stop == "return":
            self.stop = None
        self.arrive("return")
        self.left = left
        self.shells -= 1
        self.script, self.positional, self.vars[SOURCE] = outer
        return status

    def call(self, name: str, arguments: Items) -> Status:
        """Follows a function's body with its arguments."""
        if self.calls >= MAX_CALLS:
            self.spoiled = True
            return None
        outer = self.positional, self.script
        function, self.script = self.functions[name]
        self.positional = arguments
        self.calls += 1
        self.locals.append({})
        left = self.enter("break", "continue", "return")
        status = self.run(function.body)
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
        self.positional, self.script = outer
        return status

    def captured(self, substitution: CommandSubstitution) -> Value:
        """What `$(…)` prints, if it contains only `echo` and conditions: anything else is never run."""
        span = self.span(substitution)
        hole = (Hole(of_command(self.line(substitution)), span),)
        if self.shells >= MAX_SHELLS or self.nesting > MAX_NESTING:
            return hole
        outer = self.printed, self.spoiled, self.stop
        self.printed, self.spoiled = [], not substitution.statements
        self.shells += 1
        self.subshell(lambda: self.block(substitution.statements))
        self.shells -= 1
        printed, spoiled = self.printed, self.spoiled
        self.printed, self.spoiled, self.stop = outer
        if spoiled:
            return hole
        while printed and isinstance(last := printed[-1], Lit) and last.text.endswith("\n"):
            kept = len(last.text.rstrip("\n"))
            printed[-1:] = [cut(last, 0, kept)] if kept else []
        return tuple(printed)
