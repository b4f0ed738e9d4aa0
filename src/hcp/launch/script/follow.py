"""Follows a script, and collects the programs that it starts."""

from __future__ import annotations

from hcp.bash.parser.script import parse
from hcp.bash.statements import STATEMENTS
from hcp.bash.value import Items, ScriptText, Span, Value, script_text
from hcp.bash.walker import MAX_SHELLS, Prefix, Status, Walker
from hcp.launch.script.commands import take_apart
from hcp.launch.script.slurm import late_directives, sbatch_header, slurm_variable
from hcp.launch.script.started import Handed, Launched, StartContext

MAX_LAUNCHES = 200


class Followed:
    """A script that was followed to its end: the programs that it starts, in that order."""

    def __init__(self, text: ScriptText) -> None:
        script = parse(text)
        self.launches: list[Launched] = []
        self.context = StartContext()
        """How what is started here is started: the options of the job, and of the commands around a nested script."""
        self.walker = Walker(script, STATEMENTS, self._command, self._variable)
        self._read_header(text)
        if late := late_directives(script):
            self.walker.note(f"{late} #SBATCH line(s) stand after the first command: sbatch does not read them")
        self.walker.walk()

    def _read_header(self, text: ScriptText) -> None:
        """Takes in the #SBATCH lines; options on sbatch's own command line win."""
        new = tuple(option for option in sbatch_header(text) if f"sbatch.{option.name}" not in self.context.options)
        self.context = self.context.with_options("sbatch", new, None)

    def _variable(self, name: str, span: Span) -> Value | None:
        return slurm_variable(name, self.context.options, span)

    def _command(self, walker: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        context = self.context.with_environment(prefix) if prefix else self.context
        found = take_apart(items, context, span)
        if isinstance(found, Handed):
            return self._script(walker, found)
        if found is not None and len(self.launches) < MAX_LAUNCHES:
            self.launches.append(Launched(found, walker.environment(), walker.doubts[-1] if walker.doubts else None))
            walker.found += 1
        return None

    def _script(self, walker: Walker, handed: Handed) -> Status:
        """A script that the words give to another shell."""
        value = handed.text
        if value is None and handed.path is not None:
            value = walker.files.get(handed.path)
            if value is None:
                walker.note(f"{handed.path} is started, but not read")
                return None
        if value is None:
            value = walker.stdin
        if value is None or walker.shells >= MAX_SHELLS:
            return None
        text = script_text(value, walker.source.file)
        outer, self.context = self.context, handed.context
        if handed.is_job:
            self._read_header(text)
        status = walker.shell(text, handed.arguments)
        self.context = outer
        return status
