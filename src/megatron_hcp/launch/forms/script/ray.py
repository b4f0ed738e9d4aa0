"""The environment that `ray job submit` sets for a job, `--runtime-env-json '{"env_vars": {…}}'`; NeMo-RL's `ray.sub`;
and miles' program that prints a model's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import basename, normpath

from megatron_hcp.bash.paths import below
from megatron_hcp.bash.state import Var
from megatron_hcp.bash.value import Field, Hole, Items, Lit, Part, ScriptText, Span, Value, script_text, text_of
from megatron_hcp.bash.walker import Walker
from megatron_hcp.launch.forms.script.started import Handed, StartContext

_OPTION = "--runtime-env-json"
_MOST = 50_000
GPUS_OF_RAY_SUB = rb"(?m)^[ \t]*GPUS_PER_NODE=[\"']?\$\{GPUS_PER_NODE:-(\d{1,3})\}"
"""Source: ray.sub of NeMo-RL 0.3.0 to 0.7.0."""


def with_runtime_env(context: StartContext, items: Items) -> StartContext:
    """The context with the variables of the runtime environment in the words of `ray job submit`."""
    value = _value(items)
    text = script_text(value, "") if value else None
    if text is None or len(text.data) > _MOST:
        return context
    written = text.data.decode("utf-8", "replace")
    import json  # imported late: few scripts submit to Ray

    try:
        data = json.loads(written)
    except (ValueError, RecursionError):
        return context
    variables = data.get("env_vars") if isinstance(data, dict) else None
    if not isinstance(variables, dict):
        return context
    return context.with_environment(
        {
            name: (_parts(word, text, span), span)
            for name, word in variables.items()
            if isinstance(word, str)
            for span in [_place(name, text, written)]
        }
    )


def _value(items: Items) -> Value | None:
    """The value of the option, in the same word or in the next one."""
    for place, item in enumerate(items):
        if not isinstance(item, Field) or not item.prefix.startswith(_OPTION):
            continue
        first, *rest = item.parts
        if isinstance(first, Lit) and first.text.startswith(f"{_OPTION}="):
            return (Lit(first.text[len(_OPTION) + 1 :], first.span, False), *rest)
        after = items[place + 1] if place + 1 < len(items) else None
        return after.parts if isinstance(after, Field) else None
    return None


def _parts(word: str, text: ScriptText, span: Span) -> Value:
    """A variable's value; the marks in it are the unknown parts."""
    marks = "".join(text.marks)
    parts: list[Part] = []
    for piece in re.split(f"([{marks}])", word) if marks else [word]:
        mark = text.marks.get(piece)
        if mark is not None:
            parts.append(Hole(mark.reason, span) if not isinstance(mark, Lit) else mark)
        elif piece:
            parts.append(Lit(piece, span, False))
    return tuple(parts)


def _place(name: str, text: ScriptText, written: str) -> Span:
    start = len(written[: max(0, written.find(f'"{name}"'))].encode("utf-8", "replace"))
    return (text, start, start + len(name) + 2)


def command_of_job(walker: Walker, handed: Handed, given: Mapping[str, Var]) -> Value | None:
    """What NeMo-RL's `ray.sub` runs on the Ray cluster that it starts: the text of its variable COMMAND."""
    if handed.path is None or not is_ray_sub(handed.path):
        return None
    command = {**walker.environment(), **given}.get("COMMAND")
    return None if command is None else command.value


def is_ray_sub(path: Value) -> bool:
    """Whether a file is NeMo-RL's `ray.sub`, or one of the user's after it: `ray_patched.sub`."""
    name = basename(normpath(below(path) or text_of(path[-1:]) or ""))
    return name == "ray.sub" or (name.startswith("ray_") and name.endswith(".sub"))


def is_of_models(path: Value) -> bool:
    """Whether a program is the one of miles 0.1.0 that prints the options of a model."""
    return (
        bool(path)
        and isinstance(path[-1], Lit)
        and path[-1].text.endswith("/miles/utils/external_utils/model_args_utils.py")
    )
