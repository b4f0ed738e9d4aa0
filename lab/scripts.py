"""What hcp reads in launch scripts, compared with what bash does with them: `python lab scripts --corpus DIR...`.

Each DIR holds checkouts, one folder each (`owner+name`, or `name`). Every shell script of them is run by bash itself in
a sandbox: a root of its own that holds bash, a few programs that print, and the checkout, which cannot be written; no
network, no other process, no variable set but a key of W&B. In place of torchrun, python, srun, ray and whatever else
starts programs stand programs that write their words and variables down. Words (options with their values, overrides)
and exported variables of every training command are then compared with what hcp says without running anything. Counted
are equal, different, and unknown to hcp. A different one is a fault; the exit status is 1 if there is any, or where
fewer than --launches launches or --projects projects were compared.

A command that bash reaches is compared with the command of hcp, by program and order, that it differs from least:
hcp follows both branches of a condition that it cannot decide. Needs Linux and `unshare` (util-linux).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from program import at_least_one, parser_of

from megatron_hcp.bash.value import Field, text_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.table import types_of
from megatron_hcp.launch.fact import Beside
from megatron_hcp.launch.forms.script.flags import flags_of, overrides_of
from megatron_hcp.launch.forms.script.follow import follow
from megatron_hcp.launch.forms.script.started import Launched
from megatron_hcp.launch.forms.words.settings import Word, settings_of_flags

_ENDINGS = frozenset((".sh", ".bash", ".sbatch", ".slurm", ".sub"))
_TRAINS = re.compile(r"(^|[/.])(pretrain|train|finetune|sft|main_|run_|posttrain|grpo)")
_HOME = "/home-of-bash"
_FEWEST = 5
"""Options and overrides that make a command one to compare."""
_PRINTERS = (
    "basename cat cut date dirname echo env expr false grep head id mkdir mktemp printf readlink realpath sed seq sort "
    "tail timeout touch tr true uname uniq wc xargs"
)
_RECORDED = "torchrun python python3 python3.10 python3.11 python3.12 ft_launcher megatron"
_WRAPPERS = "srun mpirun mpiexec uv ray numactl nohup sbatch accelerate stdbuf nsys docker singularity sudo setsid"
_BASH_ENV = "command_not_found_handle() { return 0; }\n"
_RECORD = """#!/bin/bash
{ printf '%s\\0' COMMAND "${0##*/}" "$@" VARIABLES; env -0; printf '%s\\0' END; } > "/out/$EPOCHREALTIME.$BASHPID"
"""
_WRAP = """#!/bin/bash
while (( $# )); do
  case $1 in torchrun|python|python3*|ft_launcher|megatron|bash|sh|env) exec "$@";; *.py) exec python "$@";; esac
  shift
done
"""
_RUN = """
mount --bind "$1" "$2/repo" && mount -o remount,bind,ro "$2/repo" || exit 125
cd / && exec chroot "$2" /bin/env -i PATH=/bin HOME=@HOME WANDB_KEY=none BASH_ENV=/env.sh \
  /bin/timeout 10 /bin/bash -c 'ulimit -f 2000 -v 4000000; cd "$1" && exec /bin/bash "./$2"' - "/repo/$3" "$4"
""".replace("@HOME", _HOME)


class Command(NamedTuple):
    """A command that bash reached: its words, and the variables that it got."""

    words: list[str]
    variables: dict[str, str]


class Sandbox:
    """A root for bash: a folder with the programs, and without anything else of the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "out", "repo", "tmp", _HOME[1:], "dev"):
            (folder / name).mkdir()
        for name in ("bash", *_PRINTERS.split()):
            self._install(name)
        (folder / "bin" / "sh").symlink_to("bash")
        (folder / "env.sh").write_text(_BASH_ENV, encoding="utf-8")
        for names, text in ((_RECORDED, _RECORD), (_WRAPPERS, _WRAP)):
            for name in names.split():
                (folder / "bin" / name).write_text(text, encoding="utf-8")
                (folder / "bin" / name).chmod(0o755)

    def _install(self, name: str) -> None:
        program = shutil.which(name)
        if program is None:
            return
        shutil.copy(program, self.folder / "bin" / name)
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+)", linked):
            copy = self.folder / library.lstrip("/")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, copy)

    def commands(self, project: Path, script: Path) -> list[Command] | None:
        """The commands that bash reaches in a script; None if it could not be run."""
        out = self.folder / "out"
        for record in out.iterdir():
            record.unlink()
        place = script.relative_to(project)
        apart = "--user --map-root-user --mount --net --pid --fork --kill-child".split()
        words = [
            "unshare",
            *apart,
            "sh",
            "-c",
            _RUN,
            "-",
            str(project),
            str(self.folder),
            str(place.parent),
            place.name,
        ]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == 125:
            sys.exit(f"the sandbox could not be made: {done.stderr.decode(errors='replace')[-500:]}")
        # A file for each command: some run beside others. Names sort by time.
        records = sorted(out.iterdir())
        return [command for record in records for command in _commands(record.read_bytes())] or None


def _commands(record: bytes) -> Iterator[Command]:
    """The home folder is written `~`, as hcp writes it."""
    words: list[str] = []
    variables: dict[str, str] = {}
    part = ""
    for entry in record.decode("utf-8", "replace").replace(f"{_HOME}/", "~/").split("\0"):
        if entry == "COMMAND":
            words, variables, part = [], {}, "words"
        elif entry == "VARIABLES":
            part = "variables"
        elif entry == "END":
            yield Command(words, variables)
            part = ""
        elif part == "words":
            words.append(entry)
        elif part == "variables":
            name, _, value = entry.partition("=")
            variables[name] = value


def said(words: list[str]) -> dict[str, list[str]]:
    """Options with their values and overrides, as the last of each name counts."""
    return {setting.key: list(setting.value) for setting in settings_of_flags([Word(word) for word in words])}


def compared(launched: Launched, command: Command) -> tuple[Counter[str], list[str]]:
    """How many words and variables are equal, different, unknown; and the different ones."""
    truth = _arguments(command, launched)
    count: Counter[str] = Counter()
    differing: list[str] = []
    overrides = overrides_of(launched.started.arguments)
    if any("=" in word and not word.startswith("-") for word in truth):
        theirs = Counter(truth)
        for word in overrides.words:
            count["equal" if theirs[word.text] else "different"] += 1
            differing += [word.text] if not theirs[word.text] else []
        count["unknown"] += len(overrides.unknown) + bool(overrides.unseen)
        if not overrides.unknown and not overrides.unseen and len(overrides.words) != len(truth):
            count["different"] += abs(len(overrides.words) - len(truth))
    else:
        gathered, real = flags_of(launched.started.arguments, types_of("mlm")), said(truth)
        ours = {setting.key: list(setting.value) for setting in gathered.settings}
        unseen = gathered.unseen or gathered.model
        for key in {*ours, *real} - gathered.unknown.keys():
            if key in ours:
                is_equal = ours[key] == real.get(key)
                count["equal" if is_equal else "different"] += 1
                differing += [] if is_equal else [f"{key}: {ours[key]} but {real.get(key)}"]
            else:
                count["unknown" if unseen else "different"] += 1
                differing += [] if unseen else [f"{key}: absent but {real[key]}"]
        count["unknown"] += len(gathered.unknown)
    for name, var in launched.environment.items():
        text = text_of(var.value) if var.value is not None and var.exported else None
        if text is None:
            count["unknown"] += var.value is not None
        elif name not in launched.started.context.environment:
            is_equal = command.variables.get(name) == text
            count["equal" if is_equal else "different"] += 1
            differing += [] if is_equal else [f"${name}: {text!r} but {command.variables.get(name)!r}"]
    return count, differing


def compare_script(sandbox: Sandbox, project: Path, script: Path) -> list[tuple[Counter[str], list[str]]]:
    """What `compared` gives of every training command that bash comes to and hcp knows."""
    try:
        text = script.read_text(encoding="utf-8")
        followed = follow(text, str(script), Beside(str(script.parent)))
    except (HcpError, OSError, UnicodeDecodeError):
        return []
    ours = [one for one in followed.launches if one.started.script and _is_compared(one)]
    real = sandbox.commands(project, script) if ours else None
    found = []
    for command in real or ():
        fitting = [one for one in ours if _has_many(_arguments(command, one))]
        counts = [compared(one, command) for one in fitting]
        if counts:
            found.append(min(counts, key=lambda one: (one[0]["different"], one[0]["unknown"])))
    return found


def _is_compared(launched: Launched) -> bool:
    words = [item.prefix for item in launched.started.arguments if isinstance(item, Field)]
    return _has_many(words) and _TRAINS.search(launched.started.script or "") is not None


def _arguments(command: Command, launched: Launched) -> list[str]:
    """What follows the program's name among the words of a command; nothing where it has another program.

    hcp leaves out the folder of a program where the job alone knows it.
    """
    script = launched.started.script or "/"
    places = (place for place, word in enumerate(command.words, 1) if word == script or word.endswith(f"/{script}"))
    return command.words[next(places, len(command.words)) :]


def _has_many(words: list[str]) -> bool:
    return sum(word.startswith("--") or "=" in word for word in words) >= _FEWEST


def scripts(corpora: list[Path]) -> Iterator[tuple[Path, Path]]:
    """(checkout, script) of everything that ends like a shell script."""
    for corpus in corpora:
        for project in sorted(path for path in corpus.iterdir() if path.is_dir()):
            for script in sorted(project.rglob("*")):
                if script.suffix in _ENDINGS and script.is_file() and not script.is_symlink():
                    yield project, script


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", nargs="+", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", metavar="NAME", help="only checkouts with this in their name")
    parser.add_argument(
        "--each", type=at_least_one, default=10_000, metavar="N", help="at most N launches of a checkout"
    )
    parser.add_argument("--launches", type=at_least_one, default=200, metavar="N", help="minimum number (200)")
    parser.add_argument("--projects", type=at_least_one, default=8, metavar="N", help="of as many at least (8)")
    options = parser.parse_args()
    total: dict[str, Counter[str]] = {}
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder))
        for project, script in scripts(options.corpus):
            if options.only and options.only not in project.name:
                continue
            if total.get(project.name, Counter())["launches"] >= options.each:
                continue
            for count, differing in compare_script(sandbox, project.resolve(), script.resolve()):
                row = total.setdefault(project.name, Counter())
                row.update(count)
                row["launches"] += 1
                if count["different"]:
                    faults += 1
                    print(f"{script.relative_to(project.parent)}: {'; '.join(differing)[:500]}", flush=True)
    print(f"{'launches':>8} {'equal':>8} {'different':>9} {'unknown':>8}")
    for name, row in sorted(total.items()):
        print(f"{row['launches']:>8} {row['equal']:>8} {row['different']:>9} {row['unknown']:>8}  {name}")
    whole = sum(total.values(), Counter())
    print(f"{whole['launches']:>8} {whole['equal']:>8} {whole['different']:>9} {whole['unknown']:>8}  all")
    enough = whole["launches"] >= options.launches and len(total) >= options.projects
    return 0 if enough and not faults else 1


if __name__ == "__main__":
    sys.exit(main())
