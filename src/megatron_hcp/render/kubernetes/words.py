"""Words of a job as Kubernetes takes them: names, values in a container's command, and amounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import LAUNCH_FOLDER, Argument, RunText, is_date, is_of_script
from megatron_hcp.render.program import GIVE_ARGUMENTS, OF_SCRIPT

_REFERENCE = re.compile(r"\$(?=[$(])")
_LONGEST_NAME = 40
"""A pod's name, which adds the job's and the pod's number and five letters, has at most 63."""


def object_name(job_name: str) -> str:
    """A job's name in the letters that Kubernetes takes (RFC 1123).

    >>> object_name("Llama3_8B.pretrain")
    'llama3-8b-pretrain'
    """
    name = re.sub("[^a-z0-9]+", "-", job_name.lower()).strip("-")[:_LONGEST_NAME].rstrip("-")
    return name if name[:1].isalpha() else f"job-{name}".rstrip("-")


def literal(text: str) -> str:
    """A word of a container's command that Kubernetes hands on as it is: it reads $(NAME) as a variable, $$ as $.

    >>> literal("a$b $(c) $$")
    'a$b $$(c) $$$'
    """
    return _REFERENCE.sub("$$", text)


def pod_word(word: Argument, known: Mapping[str, str]) -> str:
    """A word of the launch in a container's command; `known`: values of the variables in it.

    Raises:
        HcpError: it has a variable that nothing sets in a pod.
    """
    if not isinstance(word, RunText):
        return literal(word)
    pairs = zip(word.parts, word.names, strict=True)
    return "".join(_variable(part, known) if is_name else literal(part) for part, is_name in pairs)


def _variable(name: str, known: Mapping[str, str]) -> str:
    if name in known:
        return known[name]
    if name == LAUNCH_FOLDER:
        raise HcpError(
            "a word of the launch holds the folder of its script",
            wanted="a path in the container's image or on a volume",
            do="write it out",
        )
    if is_of_script(name):
        raise HcpError(
            OF_SCRIPT,
            wanted="a word that is known: a pod does not run the script",
            do="write it out",
        )
    if name.isdecimal():
        raise HcpError(
            f"a word of the launch is its script's argument ${name}, which a pod does not have",
            wanted="a value that is known",
            do=GIVE_ARGUMENTS,
        )
    if is_date(name):
        raise HcpError(
            f"a word of the launch holds the date, {name}, which no shell takes in a pod",
            wanted="a name that is known",
            do="write it out",
        )
    raise HcpError(
        f"a word of the launch holds ${{{name}}}, which nothing sets in a pod",
        wanted="a value that is known",
        do=f"state it with --env {name}=VALUE",
    )


def image_name(image: str) -> str:
    """An image as Kubernetes names it; pyxis writes HOST#NAME.

    Raises:
        HcpError: it is a file.
    """
    if image.startswith(("/", ".", "~")) or image.endswith((".sqsh", ".sif", ".simg")):
        raise HcpError(
            f"container_image: found the file {image[:200]}",
            wanted="the name of an image in a registry, which every node can pull",
            do="state it with --container-image",
        )
    return image.removeprefix("docker://").replace("#", "/", 1)


def amount(memory: str) -> str | None:
    """Slurm's amount of memory as Kubernetes writes it: a number without a unit is MiB; None for 0, all of it.

    >>> amount("100G"), amount("5000"), amount("0")
    ('100Gi', '5000Mi', None)
    """
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", memory.upper())
    if match is None or not int(match[1]):
        return None
    return f"{match[1]}{match[2] or 'M'}i"


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An object's fields without those that have no value."""
    return {name: value for name, value in fields.items() if value not in (None, [], {}, "")}
