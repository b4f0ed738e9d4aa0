"""Follows a script and collects the programs that it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from megatron_hcp.bash.parser.script import parse
from megatron_hcp.bash.paths import below, seen_from_folder
from megatron_hcp.bash.state import PWD, Var
from megatron_hcp.bash.statements import STATEMENTS
from megatron_hcp.bash.syntax import Script
from megatron_hcp.bash.value import Field, Hole, Items, Lit, ScriptText, Span, Value, script_text, text_of
from megatron_hcp.bash.walker import MAX_SHELLS, Prefix, Status, Walker
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.comments import acceptances_in
from megatron_hcp.launch.fact import ALONE, Acceptance, Beside
from megatron_hcp.launch.forms.kubernetes.sight import applies_input, is_kubernetes
from megatron_hcp.launch.forms.script.apart import Apart, argument_of, is_below, is_here, placeholders_in
from megatron_hcp.launch.forms.script.commands import take_apart
from megatron_hcp.launch.forms.script.files import MAX_CHARACTERS, Files
from megatron_hcp.launch.forms.script.flags import flag_names
from megatron_hcp.launch.forms.script.options import Option
from megatron_hcp.launch.forms.script.pbs import pbs_header
from megatron_hcp.launch.forms.script.ray import GPUS_OF_RAY_SUB, command_of_job, is_of_models, is_ray_sub
from megatron_hcp.launch.forms.script.slurm import differs_by_task, late_directives, sbatch_header, slurm_variable
from megatron_hcp.launch.forms.script.started import ContainerStart, Handed, Launched, StartContext, Started

MAX_LAUNCHES = 200


def follow(text: str, target: str, beside: Beside = ALONE) -> Followed:
    """Follows a script to its end.

    Raises:
        HcpError: the text is too long, or binary.
    """
    if len(text) > MAX_CHARACTERS:
        raise HcpError(
            f"{target} has {len(text):,} characters",
            wanted=f"a launch script of at most {MAX_CHARACTERS:,}",
            do="give the script itself, not a log or a data file",
        )
    if "\0" in text:
        raise HcpError(f"{target} is binary", wanted="a launch script as text", do="name the script")
    data = text.encode("utf-8", "replace").replace(b"\\\r\n", b" \\\n").replace(b"\r\n", b" \n")
    return Followed(ScriptText(data, target), beside)


class Followed:
    """A script followed to its end: the programs that it starts, in order.

    With `start` it is a command in another text that isn't itself a script.
    """

    def __init__(self, text: ScriptText, beside: Beside = ALONE, start: ContainerStart | None = None) -> None:
        self.text = text
        self.script = parse(text if start is None else ScriptText(b"", text.file))
        self.launches: list[Launched] = []
        self.context = StartContext()
        """How programs are started here: the options of the job, and of the commands around a nested script."""
        self.files = Files(beside)
        self.unread: list[HcpError] = []
        """Scripts that are started but not read."""
        self.apart: list[Apart] = []
        self._entered: Value | None = None  # the folder in which the text of `bash -c` begins
        self._before: tuple[Span, tuple[Launched, ...]] | None = None
        """The command before, and what it starts."""
        arguments = None if beside.arguments is None else _words(beside.arguments)
        self.walker = Walker(self.script, STATEMENTS, self._command, self._variable, self._sourced, arguments)
        self.walker.told, self.files.changed = dict(beside.variables), self.walker.changed
        self.walker.submitting, self.walker.prints = ("sbatch",), _printed_by_source
        self.walker.differs_by_task = differs_by_task
        self.walker.is_copied = b"#SBATCH" in text.data  # sbatch runs a copy
        self._read_header(self.script.text)
        if late := late_directives(self.script):
            self.walker.note(f"{late} #SBATCH line(s) come after the first command: sbatch doesn't read them")
        if start is None:
            self.walker.walk()
        else:
            self._walk_from(start)

    def notes(self) -> tuple[str, ...]:
        """What to say about the script; once a launch of it is read, since that may read files too."""
        unused = (f"--source {one} matches no file that the script sources or starts" for one in self.files.unused)
        taken = (
            f"{path} is read as {place} of the same repository, since the script has changed its folder"
            for path, place in self.files.elsewhere.items()
        )
        return (*self.walker.notes, *placeholders_in(self.text), *taken, *unused)

    def _walk_from(self, start: ContainerStart) -> None:
        self.walker.vars |= {name: Var(value, None, True, span) for name, (value, span) in start.variables.items()}
        self.walker.files |= {normpath(path): text for path, text in start.files.items()}
        self.walker.sourced = start.hidden
        self.context = self.context._replace(start=start.start).with_options("pod", start.options, None)
        if start.items:
            self._command(self.walker, start.items, {}, start.items[0].span)

    def acceptances(self) -> tuple[Acceptance, ...]:
        """The comments that accept a finding, in the script and in the files that it sources or starts."""
        texts = [self.text, *(script.text for script in self.files.read.values())]
        return tuple(acceptance for text in texts if b"hcp:" in text.data for acceptance in _accepted(text))

    def _read_header(self, text: ScriptText) -> None:
        """Reads the #SBATCH lines; options on sbatch's own command line take precedence."""
        new = tuple(option for option in sbatch_header(text) if f"sbatch.{option.name}" not in self.context.options)
        self.context = self.context.with_options("sbatch", new, None)
        self.context = self.context.with_options("pbs", tuple(pbs_header(text)), None)

    def _variable(self, name: str, span: Span) -> Value | None:
        return slurm_variable(name, self.context.options, span)

    def _command(self, walker: Walker, items: Items, prefix: Prefix, span: Span) -> Status:
        if applies_input(items):
            self._applied(walker, span)
            return None
        context = self.context.with_environment(prefix) if prefix else self.context
        found = take_apart(items, context, span)
        if isinstance(found, Handed):
            found = found._replace(is_here=is_here(items, found))
            found = self._known_launcher(walker, found, span) or found
        before, count = self._before, len(self.launches)
        self._before = None
        if isinstance(found, Handed):
            status = self._script(walker, found)
            self._before = span, tuple(self.launches[count:])
            return status
        if found is not None and len(self.launches) < MAX_LAUNCHES:
            if self._entered is not None and (folder := _folder(walker)) != self._entered:
                inside = found.context.with_options("shell", (Option("folder", folder, span, "cd"),), None)
                found = found._replace(context=inside)
            doubt = walker.doubts[-1] if walker.doubts else None
            self.launches.append(Launched(found, walker.environment(), doubt, tuple(walker.setup)))
            walker.found += 1
        started = tuple(self.launches[count:])
        if (word := argument_of(items)) is None:
            self._before = span, started
        elif before is not None and is_below(span, before[0]):
            self.apart.append(Apart(word, span, before[0], before[1] + started))
        return None

    def _known_launcher(self, walker: Walker, handed: Handed, span: Span) -> Started | None:
        """What Bridge's public launcher starts, where its own file is not at hand: it hands all arguments on.

        Source: Megatron-Bridge's scripts/training/train.sh, from 0.6 on. A file of that name that is there is read.
        """
        path = normpath(text_of(handed.path) or "") if handed.path is not None else ""
        if handed.path is None or not f"/{path}".endswith("/scripts/training/train.sh"):
            return None
        if not flag_names(handed.arguments) & {"--recipe", "--model"}:
            return None
        if not isinstance(self.files.find(seen_from_folder(walker, handed.path), _folder(walker)), str):
            return None
        walker.note(f"{path} is not here: read as Megatron-Bridge's launcher of that name (0.6 and later)")
        return Started(handed.context, "scripts/training/setup_experiment.py", False, handed.arguments, span)

    def _applied(self, walker: Walker, span: Span) -> None:
        """A manifest that kubectl reads from its input: the containers that it starts count as started here."""
        line = span[0].location(*span[1:]).line
        if walker.stdin is None:
            self._leave_unread(f"the manifest that kubectl applies in line {line}", "its text isn't known")
            return
        from megatron_hcp.launch.forms.kubernetes.start import starts
        from megatron_hcp.launch.forms.kubernetes.texts import Texts

        texts = Texts(script_text(walker.stdin, walker.source.file))
        if not is_kubernetes(texts.text):
            return
        try:
            containers = list(starts(texts))
        except HcpError:
            self._leave_unread(f"the manifest that kubectl applies in line {line}", "what is known of it is no YAML")
            return
        doubt = walker.doubts[-1] if walker.doubts else None
        for _, start in containers:
            inner = Followed(texts.script, self.files.beside._replace(folder=None, sources=()), start)
            self.launches += [one._replace(doubt=one.doubt or doubt) for one in inner.launches]
            self.unread += inner.unread
            walker.found += len(inner.launches)

    def _leave_unread(self, what: str, why: str) -> None:
        self.walker.note(f"{what} is not read: {why}")
        error = HcpError(f"{what} is not read ({why})", wanted="the file that starts the training", do="give that file")
        self.unread.append(error)

    def _leave_unset(self, variable: str, line: int) -> None:
        found = f"what line {line} starts is in {variable}, which the script does not set"
        do = f"state env.{variable} under facts in .hcp.yaml, name the file that sets it, or give the words after `--`"
        self.unread.append(HcpError(found, wanted="a training command", do=do))

    def _script(self, walker: Walker, handed: Handed) -> Status:
        """A script that the words pass to another shell."""
        if walker.shells >= MAX_SHELLS:
            return None
        given = {name: Var(value, None, True, span) for name, (value, span) in handed.context.environment.items()}
        outer, self.context = self.context, handed.context
        shells, entered = walker.other_shells, self._entered
        places = walker.elsewhere, walker.steps_around
        walker.elsewhere += not handed.is_here
        walker.steps_around += handed.context.by_srun or handed.context.doubt is not None
        self._entered = _folder(walker) if handed.text is not None and entered is None else entered
        if handed.is_job:  # its script runs where this one does
            walker.other_shells -= 1
        if "env" in handed.context.hidden:
            place = [part.span for part in handed.path or handed.text or ()]
            walker.takes_in("variables that aren't known", "gives to a shell", place[0] if place else walker.here)
        try:
            value = handed.text if handed.text is not None or handed.path is not None else walker.stdin
            if handed.path is not None and is_ray_sub(handed.path):
                self._read_ray_sub(walker, handed.path)
            if handed.path is not None:
                value = walker.files.get(normpath(text_of(handed.path) or ""), command_of_job(walker, handed, given))
            if value is not None and (outside := _outside(value)) and (walker.is_copied or handed.context.start):
                line = value[0].span[0].location(*value[0].span[1:]).line
                self._leave_unset(outside, line)
                return None
            if value is not None:
                text = script_text(value, walker.source.file)
                if handed.is_job:
                    self._read_header(text)
                return walker.shell(text, handed.arguments, given)
            return None if handed.path is None else self._file(walker, handed, handed.path, given)
        finally:
            self.context, walker.other_shells, self._entered = outer, shells, entered
            walker.elsewhere, walker.steps_around = places

    def _read_ray_sub(self, walker: Walker, path: Value) -> None:
        """What NeMo-RL's `ray.sub` takes as the GPUs of a node unless the variable GPUS_PER_NODE says it."""
        script = self.files.find(seen_from_folder(walker, path), _folder(walker))
        found = None if isinstance(script, str) else re.search(GPUS_OF_RAY_SUB, script.text.data)
        if found is None or isinstance(script, str):
            return
        span = (script.text, *found.span(1))
        default = Option("gpus_per_node", (Lit(found[1].decode(), span, False),), span, "GPUS_PER_NODE")
        self.context = self.context.with_options("ray_sub", (default,), None)

    def _sourced(self, path: Value, here: Value) -> Script | str:
        """A file that the script sources; for `ray.sub`, what that runs."""
        command = self.walker.environment().get("COMMAND") if is_ray_sub(path) else None
        if command is not None and command.value is not None:
            return parse(script_text(command.value, self.walker.source.file))
        return self.files.find(path, here)

    def _file(self, walker: Walker, handed: Handed, path: Value, given: dict[str, Var]) -> Status:
        """A script in its own file."""
        path = seen_from_folder(walker, path)
        shown = text_of(path) or below(path) or text_of(path[-1:]) or "a script"
        script = self.files.find(path, _folder(walker))
        if isinstance(script, str):
            walker.note(f"{shown} is started but not read: {script}")
            reason, _, do = script.partition("; ")
            found = f"{shown.removeprefix('./')}, which it starts, is not read ({reason})"
            do = do or "give that script"
            self.unread.append(HcpError(found, wanted="the script that starts the training", do=do))
            return None
        if handed.is_job:
            self._read_header(script.text)
        name = below(path) or f"./{self.files.elsewhere.get(shown, shown)}"
        return walker.start_file(script, name, handed.arguments, given)


def _accepted(text: ScriptText) -> Iterator[Acceptance]:
    lines = text.data.decode("utf-8", "replace").split("\n")  # bash's lines: no other character ends one
    for number in range(1, len(lines) + 1):
        yield from acceptances_in(lines, text.file, number, "\\")


def _printed_by_source(walker: Walker, items: Items, prefix: Prefix) -> Value | None:
    """What a program prints in `$(…)`, as its source shows; None for one that isn't known."""
    if not any(isinstance(item, Field) and is_of_models(item.parts) for item in items[1:2]):
        return None
    from megatron_hcp.launch.forms.script.model_args import model_args  # few scripts need it

    return model_args(walker, items, prefix)


def _folder(walker: Walker) -> Value:
    """The current folder."""
    return walker.lookup(PWD, walker.here)[0]


def _outside(value: Value) -> str:
    """The variable that is the whole of a text, if only whoever starts the script can set it; else ""."""
    name = value[0].outside if len(value) == 1 and isinstance(value[0], Hole) else ""
    return name if name.isidentifier() else ""


def _words(arguments: tuple[str, ...]) -> Items:
    """The words of `--args`, with locations in their own text."""
    text = ScriptText(" ".join(arguments).encode("utf-8", "replace"), "--args")
    words = []
    start = 0
    for argument in arguments:
        span = (text, start, start + len(argument.encode("utf-8", "replace")))
        words.append(Field((Lit(argument, span, False),), span))
        start = span[2] + 1
    return tuple(words)
