"""A command's words taken apart: wrappers (srun, env, uv run), launcher (torchrun, python), script, arguments."""

from __future__ import annotations

import re
from itertools import pairwise

from megatron_hcp.bash.value import Field, Hole, Item, Items, Lit, Maybe, Span, Unseen, Value
from megatron_hcp.launch.fact import ELASTIC_STARTS
from megatron_hcp.launch.forms.script.containers import in_wrapper
from megatron_hcp.launch.forms.script.options import mpi_options, srun_options, torchrun_options
from megatron_hcp.launch.forms.script.ray import with_runtime_env
from megatron_hcp.launch.forms.script.slurm import sbatch
from megatron_hcp.launch.forms.script.started import Handed, StartContext, Started, from_outside

_WRAPPERS_NAMES = (
    "nohup time exec timeout numactl nsys ncu uv docker podman singularity apptainer enroot mpirun mpiexec horovodrun "
    "conda mamba micromamba sudo stdbuf taskset nice ionice ssh pdsh setsid command script strace perf poetry pixi "
    "pipenv unbuffer catchsegv cgexec dlprof rocprof rocprofv3 kubectl xvfb-run accelerate hydra flock caffeinate "
    "chrt prlimit torchpippy bsub qsub"
)
WRAPPERS = frozenset(_WRAPPERS_NAMES.split())
"""Programs that start another program, named later among their arguments."""
_PYTHON = re.compile(r"(?:python[\d.]*|pypy3?)$")
_STARTS_ITS_FIRST_ARGUMENT = {"hcp.integrations.megatron", "megatron_hcp.integrations.megatron"}
"""Our module that puts dynamic CP into a training script; the shorter name is that of 0.1.0."""
SHELLS = {"bash", "sh", "zsh", "dash", "ksh"}
_TORCHRUN_MODULES = {f"torch.distributed.{name}" for name in ("run", "launch", "launcher", "elastic.run")}
_FT_MODULES = {"fault_tolerance.launcher", "nvidia_resiliency_ext.fault_tolerance.launcher"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")


def take_apart(items: Items, context: StartContext, span: Span) -> Started | Handed | None:
    """What the words start; None if it is neither a Python program nor a shell."""
    place = 0
    if items and isinstance(items[0], Field) and items[0].prefix.startswith("--"):
        return Started(context, None, False, items, span)  # a bare command line in its own file
    while place < len(items):
        item = items[place]
        name = name_of(item)
        if not isinstance(item, Field) or not name:
            later = _next_program(items, place + 1)
            parts = item.parts if isinstance(item, Field) else (item,)
            reason = next((part.reason for part in parts if not isinstance(part, Lit)), "unknown")
            unsure = context._replace(start=None, doubt=reason)
            if later is None:
                flags = [at for at in range(place, len(items)) if _is_flag(items[at])]
                unknown = Started(unsure, None, False, items[flags[0] :], span) if len(flags) > 1 else None
                return unknown or from_outside(unsure, item)
            if _is_bare_script(items[later]) or _text(items[later]) == "-m":
                return _python(items, later, unsure, span)
            place = later
            continue
        if name == "srun":
            options, items = srun_options(items, place + 1)
            context = context.with_options("srun", options.found, options.unseen).with_start("srun")
            context = context._replace(by_srun=True)
            place = options.rest
        elif name == "sbatch":
            return sbatch(items, place + 1, context)
        elif name == "env":
            place, context = _env(items, place + 1, context)
        elif name in ELASTIC_STARTS:
            return _torchrun(items, place + 1, context.with_start(name), span)
        elif _PYTHON.match(name):
            return _python(items, place + 1, context, span)
        elif name in SHELLS:
            return _shell(items, place + 1, context)
        elif name == "megatron" and place + 1 < len(items) and _text(items[place + 1]):
            # ms-swift's own command, which starts torchrun itself
            return Started(context, f"megatron {_text(items[place + 1])}", False, items[place + 2 :], span)
        elif name == "ray":
            following = _ray(items, place)
            if following is None:
                return None
            context = with_runtime_env(context, items[place:following])
            place, context = following, context.with_start("ray")
        elif name.endswith(".py"):
            return _python(items, place, context, span)
        elif name in WRAPPERS or name.endswith(".sh"):
            is_remote = name in ("ssh", "pdsh")
            later = _next_program(items, place + 1, scripts=not is_remote)
            if later is None and name.endswith(".sh"):
                return Handed(context, path=item.parts, arguments=items[place + 1 :])
            if later is None:
                last = items[-1]
                return Handed(context, last.parts) if is_remote and isinstance(last, Field) and len(items) > 2 else None
            context = in_wrapper(context, name, items[place + 1 : later])
            if name in ("mpirun", "mpiexec"):
                options = mpi_options(items, place + 1, later)
                context = context.with_options("mpirun", options.found, options.unseen)
                given = (word for before, word in pairwise(items[place:later]) if _text(before) == "-x")
                context = _env(tuple(given), 0, context)[1]
            if name in ("mpirun", "mpiexec", "horovodrun", "accelerate", "bsub", "qsub"):
                context = context._replace(start=None, doubt=f"started by {name}")
            place = later
        else:
            return None
    return None


def _text(item: Item) -> str:
    return (item.text or "") if isinstance(item, Field) else ""


def name_of(item: Item) -> str:
    """A program's name without its folder, even if the folder is unknown; else ""."""
    if not isinstance(item, Field):
        return ""
    text = item.text
    if text is not None:
        return text.rsplit("/", 1)[-1]
    _, slash, name = _tail(item).rpartition("/")
    return name if slash else ""


def _is_bare_script(item: Item) -> bool:
    return name_of(item).endswith(".py")


def _is_flag(item: Item) -> bool:
    return isinstance(item, Field) and item.prefix.startswith("--")


def _next_program(items: Items, start: int, scripts: bool = True) -> int | None:
    for place in range(start, len(items)):
        name = name_of(items[place])
        if name in ("srun", "env", "torchrun", "ft_launcher", "ray", "uv") or _PYTHON.match(name):
            return place
        if name in SHELLS and any(_is_command_option(item) for item in items[place + 1 : place + 4]):
            return place
        if scripts and name in SHELLS and place + 1 < len(items) and name_of(items[place + 1]).endswith(".sh"):
            return place
        if scripts and name.endswith(".py"):
            return place
        if (
            scripts
            and name == "-m"
            and _text(items[place - 1]) != "nsys"
            and place + 1 < len(items)
            and re.match(r"[A-Za-z_]\w*(\.\w+)+$", _text(items[place + 1]))
        ):
            return place
    return None


def _env(items: Items, place: int, context: StartContext) -> tuple[int, StartContext]:
    environment = dict(context.environment)
    while place < len(items):
        item = items[place]
        if not isinstance(item, Field):
            context = context.with_options("env", (), item.reason)
            place += 1
            continue
        prefix = item.prefix
        match = _ASSIGNMENT.match(prefix)
        if match:
            environment[match[1]] = (_after_equals(item), item.span)
            place += 1
        elif prefix in ("-u", "--unset"):
            if place + 1 < len(items):
                environment[_text(items[place + 1])] = (None, item.span)
            place += 2
        elif prefix in ("-C", "--chdir", "-S"):
            place += 1 if prefix == "-S" else 2
        elif prefix[:1] == "-":
            place += 1
        else:
            break
    return place, context._replace(environment=environment)


def _after_equals(word: Field) -> Value:
    parts = list(word.parts)
    while parts:
        part = parts.pop(0)
        if isinstance(part, Lit) and "=" in part.text:
            return (Lit(part.text.partition("=")[2], part.span, False), *parts)
    return ()


def _torchrun(items: Items, place: int, context: StartContext, span: Span) -> Started | Handed | None:
    options = torchrun_options(items, place)
    context = context.with_options("torchrun", options.found, options.unseen)
    names = {option.name for option in options.found}
    place = options.rest
    if place >= len(items):
        return None
    is_module = bool(names & {"m", "module"})
    script, rest = items[place], place + 1
    if not is_module and "no_python" in names and name_of(script) in SHELLS:
        return _shell(items, rest, context)
    if not isinstance(script, Field):
        # An unknown word in the script's position: perhaps options, perhaps the script itself.
        later = next((at for at in range(place, min(len(items), place + 8)) if _is_bare_script(items[at])), None)
        if later is not None:
            context = context.with_options("torchrun", (), script.reason)
            script, rest = items[later], later + 1
    handed = None if any(map(_is_flag, items[rest:])) else from_outside(context, script)
    return handed or _started(context, script, is_module, items[rest:], span)


def _started(context: StartContext, script: Item, is_module: bool, arguments: Items, span: Span) -> Started:
    name = (script.text if isinstance(script, Field) else None) or name_of(script) or None
    return _module(context, name, arguments, span) if is_module else Started(context, name, False, arguments, span)


def _module(context: StartContext, name: str | None, arguments: Items, span: Span) -> Started:
    if name in _STARTS_ITS_FIRST_ARGUMENT and arguments:
        return _started(context, arguments[0], False, arguments[1:], span)
    return Started(context, name or None, True, arguments, span)


def _tail(word: Field) -> str:
    return word.parts[-1].text if word.parts and isinstance(word.parts[-1], Lit) else ""


def _python(items: Items, place: int, context: StartContext, span: Span) -> Started | Handed | None:
    if context.start is None and context.doubt is None:
        context = context.with_start("python")
    while place < len(items):
        item = items[place]
        if not isinstance(item, Field):
            later = next((at for at in range(place, min(len(items), place + 4)) if _is_bare_script(items[at])), None)
            if later is None:
                return _started(context, item, False, items[place + 1 :], span)
            place = later
            continue
        prefix = item.prefix
        if prefix == "-m" or (prefix[:2] == "-m" and len(prefix) > 2):
            if prefix == "-m":
                place += 1
            module = items[place] if place < len(items) else item
            name = _text(module).removeprefix("-m") if prefix != "-m" else _text(module)
            if name in _TORCHRUN_MODULES or name in _FT_MODULES:
                start = "torchrun" if name in _TORCHRUN_MODULES else "ft_launcher"
                return _torchrun(items, place + 1, context.with_start(start), span)
            return _module(context, name, items[place + 1 :], span)
        if prefix in ("-c", "-"):
            return _supervised(items, place, context, span) if prefix == "-c" else None
        if prefix in ("-W", "-X"):
            place += 2
        elif prefix[:1] == "-":
            place += 1
        else:
            return _started(context, item, False, items[place + 1 :], span)
    return None


def _is_command_option(item: Item) -> bool:
    return re.fullmatch(r"-[a-z]*c", _text(item)) is not None


def _supervised(items: Items, place: int, context: StartContext, span: Span) -> Started | Handed | None:
    """What a job of `hcp render` starts on each node: the words after `--` of `python -c … job run SPEC … --`."""
    words = [_text(item) for item in items[place + 2 : place + 4]]
    if words != ["job", "run"]:
        return None
    cut = next((at for at in range(place + 4, len(items)) if _text(items[at]) == "--"), None)
    if cut is None:
        return None
    rank = {"PET_NODE_RANK": ((Hole("hcp job run sets it on each node", span),), span)}
    return take_apart(items[cut + 1 :], context.with_environment(rank), span)


def _shell(items: Items, place: int, context: StartContext) -> Handed | None:
    while place < len(items):
        item = items[place]
        if not isinstance(item, Field):
            return None
        if _is_command_option(item):
            if place + 1 >= len(items):
                return None
            text = items[place + 1]
            script = text.parts if isinstance(text, Field) else _as_value(text)
            return Handed(context, script, arguments=items[place + 3 :])
        prefix = item.prefix
        if prefix in ("-o", "-O", "+O", "--rcfile", "--init-file"):
            place += 2
        elif prefix[:1] in ("-", "+"):
            place += 1
        else:
            return Handed(context, path=item.parts, arguments=items[place + 1 :])
    return Handed(context)


def _as_value(item: Unseen | Maybe) -> Value:
    return (Hole(item.reason, item.span),)


def _ray(items: Items, place: int) -> int | None:
    """Where the command of `ray job submit … -- COMMAND` starts."""
    if place + 1 >= len(items) or _text(items[place + 1]) != "job":
        return None
    for at in range(place + 2, len(items)):
        if _text(items[at]) == "--":
            return at + 1
    return _next_program(items, place + 2)
