"""From a job to the text of its sbatch script."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.job.own import ENTRY
from megatron_hcp.launch.fact import LAUNCH_TIME
from megatron_hcp.render.job import Job
from megatron_hcp.render.shell_words import quoted
from megatron_hcp.resources import pack_dir

if TYPE_CHECKING:
    from jinja2 import Environment

_MAX_BYTES = 4_000_000
"""Slurm's default limit for a job script (max_script_size)."""


def render_job(job: Job) -> str:
    """The text of the script.

    Raises:
        HcpError: it is longer than Slurm accepts.
    """
    text = _fill(job)
    size = len(text.encode())
    if size > _MAX_BYTES:
        raise HcpError(
            f"the script has {size:,} bytes",
            wanted=f"at most {_MAX_BYTES:,}, Slurm's limit",
            do="move long values into files",
        )
    return text


def _fill(job: Job) -> str:
    template = _templates(pack_dir("templates")).get_template(f"{job.start.name}.sbatch.j2")
    return template.render(job=job, launch_time=LAUNCH_TIME, entry=ENTRY)


@cache
def _templates(folder: Path) -> Environment:
    """The templates of a folder, once a process: they take longer to compile than to fill."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def shown(value: Any) -> Any:
        assert value is not None and str(value) != "", "a value of the script would render as nothing"
        return value

    # No HTML escaping: this is a shell script, whose values go through the filter `sh`.
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    environment.filters["sh"] = quoted
    return environment
