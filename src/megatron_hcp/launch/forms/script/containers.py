"""How a command such as `docker run` or `uv run` starts a program: its image, or its environment."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Hole, Item, Items, joined
from megatron_hcp.launch.forms.script.options import Option

_CONTAINERS = ("docker", "podman", "nerdctl", "singularity", "apptainer")
_IMAGE = re.compile(r"([a-z-]+://)?[a-z0-9][\w.-]*([/#][\w.-]+)+:[\w.-]+(@sha256:\w+)?|\S+\.sif")

_TAKE_A_VALUE = frozenset(
    "-B --bind -H --home -W --workdir -S --scratch -o --overlay -p --pwd --cwd --mount --env --env-file --network "
    "--dns --security --add-caps --drop-caps --hostname --app --apply-cgroups --fusemount".split()
)
"""Options of `singularity exec` of which the next word is the value."""


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
    if name in ("singularity", "apptainer") and (image := _after_options(words)) is not None:
        parts = image.parts if isinstance(image, Field) else (Hole(image.reason, image.span),)
        return (Option("image", parts, image.span, "image"),)
    found = [item for item in words if isinstance(item, Field) and _IMAGE.fullmatch(item.text or "")]
    return tuple(Option("image", item.parts, item.span, item.text or "") for item in found[-1:])


def _after_options(words: Items) -> Item | None:
    """The first word after `exec` or `run` and its options, which is the image; None if there is none."""
    at = next((at for at, item in enumerate(words) if isinstance(item, Field) and item.text in ("exec", "run")), None)
    rest = iter(words[at + 1 :] if at is not None else ())
    for item in rest:
        if not isinstance(item, Field) or not item.prefix.startswith("-"):
            return item
        if item.text in _TAKE_A_VALUE:
            next(rest, None)
    return None
