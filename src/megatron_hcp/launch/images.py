"""The versions that a launch's container image holds, from images.txt.

They are less than what the launch or an option states. A package that the launch mounts, installs or imports from
somewhere else isn't the image's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.fact import Fact, Reading

_FILE = os.path.join(os.path.dirname(__file__), "images.txt")
IMAGE_FACTS = ("image", "srun.container_image", "docker.image", "pod.image", "sbatch.container_image")
"""Where an image is named: by an option (--assume, a site file), then nearest to the training command first."""
_SAVED = (".sqsh", ".squashfs", ".sif")
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "megatron": ("mcore", "mcore_branch", "bridge"),
    "bridge": ("bridge",),
    "verl": ("verl",),
    "transformer.?engine": ("te",),
    "flash.?attn": ("flash_attn",),
    "torch": ("torch",),
    "nemo.?rl": ("nemo_rl",),
    "cudnn": ("cudnn",),
}
"""Names in a mounted folder or an installed package, and the facts that the image then no longer settles."""
_BROUGHT = r"pip3? install[^\n;&|]*|(?:--volume|--bind|-v|-B)[ =]\S+|mountPath: *\S+"
"""What a script installs or mounts."""
_ITS_FOLDERS = (["opt"], ["root"])
"""Folders at the top of images in which they keep upstream's code."""
_OF_A_CHECKOUT = ("mcore", "mcore_branch")
"""What a program of Megatron-LM's own checkout imports from beside itself."""


class Image(NamedTuple):
    """A listed image. `source` says where its versions are stated."""

    name: str
    tag: str
    facts: Mapping[str, str]
    source: str

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}"


@cache
def images() -> Mapping[str, Image]:
    """Every listed image, by `NAME:TAG`."""
    with open(_FILE, encoding="utf-8") as file:
        rows = [line.strip().split(" < ") for line in file if not line.startswith("#")]
    found: dict[str, Image] = {}
    for row, source in rows:
        name, tags, *facts = row.split()
        held = dict(fact.split("=", 1) for fact in facts)
        found |= {f"{name}:{tag}": Image(name, tag, held, source) for tag in tags.split(",")}
    return found


def image_named(text: str) -> Image | None:
    """The listed image that a reference or a saved image's file name means; None if it isn't listed.

    >>> str(image_named("docker://nvcr.io#nvidia/nemo:26.04")), str(image_named("/images/nvidia+nemo+26.04.sqsh"))
    ('nvcr.io/nvidia/nemo:26.04', 'nvcr.io/nvidia/nemo:26.04')
    """
    if text.endswith(_SAVED):
        return _saved().get(_words(os.path.splitext(os.path.basename(text))[0]))
    reference = text.partition("://")[2] or text
    reference = reference.partition("@sha256")[0].replace("#", "/").removeprefix("docker.io/")
    return images().get(reference)


@cache
def _saved() -> Mapping[tuple[str, ...], Image]:
    """By the words of a file's name: enroot writes `nvidia+nemo+26.04`, people leave out what comes first."""
    names: dict[tuple[str, ...], Image] = {}
    for image in images().values():
        parts = image.name.split("/")
        for first in range(len(parts)):
            names[_words(" ".join((*parts[first:], image.tag)))] = image
    return names


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"[^a-z0-9.]+", text.lower()))


def image_of(facts: Mapping[str, Fact]) -> tuple[str, Fact] | None:
    """The text with which a launch or an option names the image, and the fact that holds it."""
    stated = (facts[name] for name in IMAGE_FACTS if name in facts)
    return next(((fact.value, fact) for fact in stated if isinstance(fact.value, str) and fact.value), None)


def facts_of_image(reading: Reading, assumed: Mapping[str, Fact]) -> dict[str, Fact]:
    """The versions that the launch's image settles: origin `image`, with the image as key."""
    named = image_of({**reading.facts, **assumed})
    image = image_named(named[0]) if named is not None else None
    if named is None or image is None:
        return {}
    not_its_own = _replaced(reading)
    return {
        name: Fact(value, "image", named[1].location, str(image))
        for name, value in image.facts.items()
        if name not in not_its_own
    }


def unlisted_image(reading: Reading, assumed: Mapping[str, Fact]) -> str | None:
    """The image that the launch names, as far as it isn't listed."""
    named = image_of({**reading.facts, **assumed})
    return named[0] if named is not None and image_named(named[0]) is None else None


def _replaced(reading: Reading) -> set[str]:
    """The facts that the launch takes from elsewhere: a mount, a path for imports, an installation, a checkout."""
    texts = [str(fact.value) for name, fact in reading.facts.items() if name.endswith(("container_mounts", ".mounts"))]
    path = reading.facts.get("env.PYTHONPATH")
    texts += [part for part in str(path.value).split(":") if part.split("/")[1:2] not in _ITS_FOLDERS] if path else []
    texts += re.findall(_BROUGHT, reading.text or "")
    found = {
        fact for pattern, facts in _ELSEWHERE.items() for fact in facts if re.search(pattern, " ".join(texts), re.I)
    }
    script = reading.facts.get("script")
    if reading.dialect == "mlm" and not str(script and script.value).startswith("/opt/"):
        found.update(_OF_A_CHECKOUT)
    return found


def unlisted(facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """A note if the image that is named settles nothing."""
    named = image_of(facts)
    if named is None or image_named(named[0]) is not None:
        return ()
    return (f"the container image {named[0]} is not listed, so its versions aren't known: state them with --assume",)
