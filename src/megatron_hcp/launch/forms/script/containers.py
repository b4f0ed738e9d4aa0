"""The image with which a command such as `docker run` starts a program."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Items
from megatron_hcp.launch.forms.script.options import Option

_CONTAINERS = ("docker", "podman", "nerdctl", "singularity", "apptainer")
_IMAGE = re.compile(r"([a-z-]+://)?[a-z0-9][\w.-]*([/#][\w.-]+)+:[\w.-]+(@sha256:\w+)?|\S+\.sif")


def image_options(name: str, words: Items) -> tuple[Option, ...]:
    """The image as an option; none if the command starts no container. `words` come before the container's program."""
    if name not in _CONTAINERS:
        return ()
    found = [item for item in words if isinstance(item, Field) and _IMAGE.fullmatch(item.text or "")]
    return tuple(Option("image", item.parts, item.span, item.text or "") for item in found[-1:])
