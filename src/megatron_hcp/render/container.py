"""How a job's commands run in its container: through srun options (pyxis) or a command (apptainer)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_BINDS = re.compile(r"\s(?:--bind|-B)[ =]((?:\"[^\"\n]*\"|[^\s\"\\])+)")
_PLAIN_BIND = re.compile(r"[\w./:,@+-]+")
_CHANGES_FOLDER = re.compile(r"(?m)^[ \t]*(?:cd|pushd)\b")


class Container(NamedTuple):
    """What starts a command in the container; `runtime` is None without a container."""

    runtime: str | None = None
    image: str = ""
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


def container_of(site: Mapping[str, Any]) -> Container:
    """The container stated by a site. A comma separates mounts, as it does for pyxis and apptainer."""
    runtime, image, workdir = site["container_runtime"], site["container_image"], site["container_workdir"]
    if runtime is None:
        return Container()
    stated = [mount for text in site["mounts"] or () for mount in text.split(",") if mount]
    mounts = tuple(mount if ":" in mount else f"{mount}:{mount}" for mount in stated)
    options: tuple[str, ...]
    if runtime == "pyxis":
        options = (f"--container-image={image}",)
        options += () if site["container_home"] else ("--no-container-mount-home",)
        options += (f"--container-workdir={workdir}",) if workdir else ()
    else:
        options = (*(() if site["container_home"] else ("--no-home",)), *(("--pwd", workdir) if workdir else ()))
    return Container(runtime, image, options, mounts)


def binds_in(text: str) -> Iterator[tuple[int, str, str | None]]:
    """(line, bind as written, folders if they are plain) of a script's `-B`; without that of the submit folder.

    Each job mounts that folder itself; it is another one where the script changes to another.
    """
    own = () if _CHANGES_FOLDER.search(text) else ("$PWD", "$PWD:$PWD")
    for number, line in enumerate(text.splitlines(), 1):
        for written in _BINDS.findall("" if line.lstrip().startswith("#") else line):
            bind = written.replace('"', "")
            if bind not in own:
                yield number, written, bind if _PLAIN_BIND.fullmatch(bind) else None
