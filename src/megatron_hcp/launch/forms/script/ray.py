"""The environment that `ray job submit` sets for a job: `--runtime-env-json '{"env_vars": {…}}'`."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Hole, Items, Lit, Part, ScriptText, Span, Value, script_text
from megatron_hcp.launch.forms.script.started import StartContext

_OPTION = "--runtime-env-json"
_MOST = 50_000


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
