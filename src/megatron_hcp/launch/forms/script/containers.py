"""How a command such as `docker run` or `uv run` starts a program: its image, or its environment."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Items, joined
from megatron_hcp.launch.forms.script.options import Option

_CONTAINERS = ("docker", "podman", "nerdctl", "singularity", "apptainer")
_IMAGE = re.compile(r"([a-z-]+://)?[a-z0-9][\w.-]*([/#][\w.-]+)+:[\w.-]+(@sha256:\w+)?|\S+\.sif")


def wrapper_options(name: str, words: Items) -> tuple[str, tuple[Option, ...]]:
    """(program, options) of a command that starts another one: the image of a container, or how uv runs it.

    `words` come before what it starts.
    """
    if name == "uv" and words:
        return "uv", (Option("run", joined(words), words[0].span, "uv"),)
    return "docker", _image(name, words)


def _image(name: str, words: Items) -> tuple[Option, ...]:
    """The image as an option; none if the command starts no container."""
    if name not in _CONTAINERS:
        return ()
    found = [item for item in words if isinstance(item, Field) and _IMAGE.fullmatch(item.text or "")]
    return tuple(Option("image", item.parts, item.span, item.text or "") for item in found[-1:])
