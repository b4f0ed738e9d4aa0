"""How a job's commands run in its container: through srun options (pyxis) or a command (apptainer)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hcp.core.errors import HcpError


class Container(NamedTuple):
    """What starts a command in the container; `runtime` is None without a container."""

    runtime: str | None = None
    image: str = ""
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


def container_of(site: Mapping[str, Any]) -> Container:
    """The container stated by a site.

    Raises:
        HcpError: a mount's path contains a comma, which separates mounts.
    """
    runtime, image, workdir = site["container_runtime"], site["container_image"], site["container_workdir"]
    if runtime is None:
        return Container()
    mounts = tuple(mount if ":" in mount else f"{mount}:{mount}" for mount in site["mounts"] or ())
    if any("," in mount for mount in mounts):
        raise HcpError(
            "mounts: found a comma in a path; wanted none, because commas separate mounts; rename the folder"
        )
    options: tuple[str, ...]
    if runtime == "pyxis":
        options = (f"--container-image={image}",)
        options += () if site["container_home"] else ("--no-container-mount-home",)
        options += (f"--container-workdir={workdir}",) if workdir else ()
    else:
        options = (*(() if site["container_home"] else ("--no-home",)), *(("--pwd", workdir) if workdir else ()))
    return Container(runtime, image, options, mounts)
