"""How a command such as `docker run` or `uv run` starts a program: its image, or its environment."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Hole, Item, Items, joined
from megatron_hcp.launch.forms.script.options import Option
from megatron_hcp.launch.forms.script.started import StartContext

_CONTAINERS = ("docker", "podman", "nerdctl", "singularity", "apptainer")
_IMAGE = re.compile(r"([a-z-]+://)?[a-z0-9][\w.-]*([/#][\w.-]+)+:[\w.-]+(@sha256:\w+)?|\S+\.sif")

_TAKE_A_VALUE = frozenset(
    "-B --bind -H --home -W --workdir -S --scratch -o --overlay -p --pwd --cwd --mount --env --env-file --network "
    "--dns --security --add-caps --drop-caps --hostname --app --apply-cgroups --fusemount --no-mount --network-args "
    "--pem-path --cpus --memory --shm-size".split()
)
"""Options of `singularity exec` of which the next word is the value."""


def in_wrapper(context: StartContext, name: str, words: Items) -> StartContext:
    """The context in a command that starts another one: the image of a container and its file of variables, or how uv
    runs it.

    `words` come before what it starts.
    """
    files = (item.prefix for item in words if isinstance(item, Field) and item.prefix.startswith("--env-file"))
    if name in (*_CONTAINERS, "uv") and any(files):
        context = context.with_options("env", (), "the file that --env-file names is not read")
    if name == "uv" and words:
        return context.with_options("uv", (Option("run", joined(words), words[0].span, "uv"),), None)
    return context.with_options("docker", _image(name, words), None)


def _image(name: str, words: Items) -> tuple[Option, ...]:
    """The image as an option; none if the command starts no container."""
    if name not in _CONTAINERS:
        return ()
    named = _after_options(words) if name in ("singularity", "apptainer") else []
    image = next(filter(_is_image, named or reversed(words)), named[0] if named else None)
    if image is None:
        return ()
    parts = image.parts if isinstance(image, Field) else (Hole(image.reason, image.span),)
    return (Option("image", parts, image.span, getattr(image, "text", None) or "image"),)


def _is_image(item: Item) -> bool:
    return isinstance(item, Field) and _IMAGE.fullmatch(item.text or "") is not None


def _after_options(words: Items) -> list[Item]:
    """The words after `exec` or `run` that are no options and no values of them.

    The first is the image, unless a later one looks like it: then the first is the value of an option that isn't known.
    """
    at = next((at for at, item in enumerate(words) if isinstance(item, Field) and item.text in ("exec", "run")), None)
    rest = iter(words[at + 1 :] if at is not None else ())
    found: list[Item] = []
    for item in rest:
        if not isinstance(item, Field) or not item.prefix.startswith("-"):
            found.append(item)
        elif item.text in _TAKE_A_VALUE:
            next(rest, None)
    return found
