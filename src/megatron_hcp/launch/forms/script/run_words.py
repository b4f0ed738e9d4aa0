"""What only the job can know, as text for its shell: the script's own commands and conditions, with what they read."""

from __future__ import annotations

import re

from megatron_hcp.bash.reason import ByVariable, RunTime, WhyUnknown
from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, OneOf, Part, Unseen, Value
from megatron_hcp.ground.secrets import is_secret_name
from megatron_hcp.launch.fact import LAUNCH_CHOICE, LAUNCH_FOLDER, LAUNCH_OUTPUT, OF_THE_JOB, at_launch_time

_PLAIN = r"[\w./:=,@%+-]+"
"""Text that splitting and globbing leave as it is."""
_OF_A_TASK = (
    r"\b(?:SLURM_(?:PROCID|NODEID|LOCALID|STEP\w*)|(?:LOCAL_|NODE_|GROUP_|MACHINE_)?RANK|OMPI_\w+|PMIX?_\w+|"
    r"SLURMD_NODENAME|HOSTNAME|hostname|"
    r"srun|sbatch|salloc|scancel)\b"
)
"""What differs between the tasks of a job or is set in them alone, and what starts another job or step."""
_MAX_TEXT = 10_000


class RunWords:
    """Makes the texts. `outputs`: each command that is run once, before the words: the variable that it sets -> it."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}
        self.untold: dict[str, None] = {}
        self._named: list[tuple[RunTime, str | None]] = []
        self._taken_in: dict[tuple[RunTime, str, bool], str | None] = {}
        self._sources: dict[RunTime, tuple[str, ...]] = {}

    def output(self, part: Hole | Unseen) -> str | None:
        """The variable that holds what a command prints; None if there is none, or not one that the job can run."""
        return None if part.output is None else self._output(part.output)

    def taken_in(self, part: Hole | Unseen, is_demanded: bool) -> str | None:
        """The variable that holds what a file that the script sources, or whoever starts it, sets; None likewise."""
        if part.taken_in is None or not part.outside.isidentifier() or is_secret_name(part.outside):
            return None
        known = (part.taken_in, part.outside, is_demanded)
        if known not in self._taken_in:
            self._taken_in[known] = self._read_back(*known)
        return self._taken_in[known]

    def _read_back(self, run: RunTime, name: str, is_demanded: bool) -> str | None:
        """One of the variables that a file sets, which is taken in once for all: it may name a run by the time."""
        variable, *names = self._sources.get(run, ("",))
        names += [name] if name not in names else []
        command = self._command(run.printing(names))
        if command is None:
            return None
        variable = variable or self._next
        self._sources[run] = (variable, *names)
        self.outputs[variable] = command
        told = "${" + name + ("?neither set outside nor by what the launch sources" if is_demanded else "-") + "}"
        own = self._next
        self.outputs[own] = f'{LAUNCH_CHOICE}eval "${variable}"; printf \'%s\' "{told}")'
        return own

    @property
    def _next(self) -> str:
        return f"{LAUNCH_OUTPUT}{len(self.outputs) + 1}"

    def _command(self, run: RunTime) -> str | None:
        text = run.text
        return self._substitution(run, (text[2:-1] if text.startswith("$(") else text[1:-1]).lstrip())

    def _output(self, run: RunTime) -> str | None:
        for other, name in self._named:
            if run is other:
                return name
        command = self._command(run)
        name = None if command is None else self._next
        if name is not None:
            self.outputs[name] = f"{command} || true"
        self._named.append((run, name))
        return name

    def choice(self, part: OneOf) -> str | None:
        """A choice between two texts as `$(if …)`; None if the job cannot make it."""
        return self._choice(part.reason, [_printed("%s", [self._text(option)]) for option in part.options])

    def words(self, item: Maybe) -> str | None:
        """A choice between two lists of words as `$(if …)`, to be taken unquoted."""
        lists = [[self._word(one, may_split=item.is_split) for one in items] for items in item.options]
        return self._choice(item.reason, [_printed("%s\\n", words) for words in lists])

    def _choice(self, reason: str, printed: list[str | None]) -> str | None:
        test = reason.test if isinstance(reason, WhyUnknown) else None
        if test is None or not isinstance(reason, WhyUnknown) or len(printed) != 2 or None in printed:
            return None
        yes, no = reversed(printed) if reason.is_negated else printed
        return self._substitution(test, f"if {test.text}; then {yes}; else {no}; fi", f"{yes} {no}")

    def _substitution(self, run: RunTime, command: str, printed: str = "") -> str | None:
        """`$(…)` that sets what a command reads, and runs it as the script does: it may fail, or find nothing set.

        `printed`: text in the command that means variables as they are outside; None if the command has others.
        """
        if OF_THE_JOB & (run.reads - run.variables.keys()):
            return None
        known: list[str | None] = []
        set_here: set[str] = set()
        for name, var in run.variables.items():
            value = self._list(var.items) if var.items is not None else self._text(var.value or ())
            if value is None and name not in run.reads:  # only a file that nobody reads might ask for it
                self.untold[name] = None
            else:
                exports = "export " if var.exported and var.items is None else ""
                known.append(None if value is None else f"{exports}{name}={value}")
                if set_here & _from_outside(value or ""):
                    return None
                set_here |= set() if value == f'"${{{name}-}}"' else {name}
        folder = self._text(run.folder) if run.folder is not None else ""
        if run.folder is not None:
            known.append(None if folder is None else f"cd {folder}")
        if set_here & _from_outside(f"{folder}{printed}"):
            return None
        end = "\n" if "\n" in command or "#" in command else ""
        text = f"{LAUNCH_CHOICE}{'; '.join(filter(None, [*known, command]))}{end})"
        is_shown = all(letter.isprintable() or letter in "\n\t" for letter in text)  # the job's script is printed
        return text if None not in known and is_shown and len(text) < _MAX_TEXT and _is_of_job(text) else None

    def _list(self, items: Items) -> str | None:
        words = [self._word(item, splits=False) for item in items]
        return None if None in words else f"({' '.join(filter(None, words))})"

    def _word(self, item: Item, splits: bool = True, may_split: bool = False) -> str | None:
        """A word of a list.

        `splits`: it is printed, and split again, so that it must not have a blank, unless the script splits it too
        (`may_split`).
        """
        if isinstance(item, Field):
            is_one = not splits or may_split or all(map(_has_no_blank, item.parts))
            return self._text(item.parts) if is_one else None
        if isinstance(item, Unseen):
            if name := self.taken_in(item, is_demanded=False):
                return f"${name}"
            if item.outside:
                found = f"${{{item.outside}-}}"
                return None if not _is_as_outside(item) else f'"{found}"' if splits else found
            name = self.output(item)
            return name and f"${name}"
        return self.words(item)

    def _text(self, value: Value) -> str | None:
        """A value as one quoted word."""
        words = [self._part(part) for part in value]
        return None if None in words else "".join(filter(None, words)) or "''"

    def _part(self, part: Part) -> str | None:
        from shlex import quote  # only a job needs it

        if isinstance(part, Lit):
            text, home = (part.text[2:], '"$HOME"/') if part.is_home and part.text[:2] == "~/" else (part.text, "")
            return home + quote(text) if text else home
        if isinstance(part, OneOf):
            chosen = self.choice(part)
            return chosen and f'"{chosen}"'
        if part.is_list:
            return None
        if name := self.taken_in(part, is_demanded=False):
            return f'"${name}"'
        if name := part.variable or part.outside:
            return f'"${{{name}-}}"' if _is_as_outside(part) else None
        if part.date:
            return f'"{at_launch_time(part.date)}"'
        if part.below is not None:
            below = below_folder(part.below)
            return f'"${LAUNCH_FOLDER}"{below and quote(below)}'
        output = self.output(part)
        return output and f'"${output}"'


def _from_outside(text: str) -> set[str]:
    """The variables that a text takes from outside."""
    return {*re.findall(r"\$\{(\w+)-\}", text)}


def below_folder(path: str) -> str:
    """What follows the launch's own folder in a path below it.

    >>> below_folder("."), below_folder("conf/a.yaml")
    ('', '/conf/a.yaml')
    """
    return f"/{path}" if path.strip("./") or ".." in path else ""


def is_carried(part: Hole | Unseen) -> bool:
    """Whether a variable from outside is the same one where the job's script reads it."""
    return part.outside not in OF_THE_JOB


def _is_as_outside(part: Hole | Unseen) -> bool:
    """Likewise if it may be unset: then no file that the job does not take in may set it."""
    return is_carried(part) and not (isinstance(part.reason, ByVariable) and part.reason.giver)


def _has_no_blank(part: Part) -> bool:
    """Whether splitting and globbing leave a part of a word as it is."""
    if isinstance(part, Lit):
        return not part.text or re.fullmatch(_PLAIN, part.text) is not None
    return isinstance(part, Hole) and bool(part.variable or part.date)


def _is_of_job(text: str) -> bool:
    return re.search(_OF_A_TASK, text) is None


def _printed(form: str, words: list[str | None]) -> str | None:
    if None in words:
        return None
    return f"printf '{form}' {' '.join(filter(None, words))}" if words else ":"
