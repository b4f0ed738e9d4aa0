"""What programs print that give a launch its options, where their source is at hand: they are read, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_hcp.bash.value import Field, Items, Lit, text_of
from megatron_hcp.bash.walker import Walker
from megatron_hcp.launch.forms.script.files import Files

_OF_MILES = "miles/utils/external_utils/model_args_utils.py"


def output_of(walker: Walker, files: Files, items: Items, prefix: Mapping[str, Any]) -> str | None:
    """What a command prints; None if it isn't known.

    `python3 <miles>/miles/utils/external_utils/model_args_utils.py NAME` prints a model's options. `prefix`: the
    assignments in front of the command.
    """
    if len(items) != 3 or not all(isinstance(item, Field) for item in items):
        return None
    interpreter, program, name = (item.parts for item in items if isinstance(item, Field))
    end = program[-1] if program else None
    if not isinstance(end, Lit) or not f"/{end.text}".endswith(f"/{_OF_MILES}"):
        return None
    model, python = text_of(name), text_of(interpreter) or ""
    if not model or not python.rpartition("/")[2].startswith("python"):
        return None
    root = end.text.removesuffix(_OF_MILES)

    def read(path: str) -> str | None:
        found = files.find((*program[:-1], end._replace(text=root + path, exact=False)))
        return None if isinstance(found, str) else found.text.data.decode("utf-8", "replace")

    def environ(variable: str) -> str | None:
        if variable in prefix:
            value = prefix[variable][0]
        elif (var := walker.environment().get(variable)) is not None:
            value = var.value
        else:
            return walker.told.get(variable)
        text = None if value is None else text_of(value)
        if text is None:
            raise KeyError(variable)
        return text

    from megatron_hcp.launch.forms.script.miles_models import printed_options

    return printed_options(model, read, environ)
