"""From a job to the text of its sbatch script."""

from __future__ import annotations

import shlex
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import RunText
from megatron_hcp.render.job import Job
from megatron_hcp.resources import pack_dir

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
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    template = f"{job.start.name}.sbatch.j2"

    def shown(value: Any) -> Any:
        assert value is not None and str(value) != "", f"a value of {template} would render as nothing"
        return value

    # No HTML escaping: this is a shell script, whose values go through the filter `sh`.
    environment = Environment(
        loader=FileSystemLoader(pack_dir("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    environment.filters["sh"] = _quoted
    return environment.get_template(template).render(job=job)


def _quoted(value: object) -> str:
    """A shell word. Commas are quoted too: bash does not need that, but shellcheck flags them in an array."""
    if isinstance(value, RunText):
        pairs = zip(value.parts, value.names, strict=True)
        return "".join(f'"${{{part}}}"' if name else _quoted(part) for part, name in pairs if part)
    text = str(value)
    if not all(map(_is_shown, text)):  # printing the script must not send control characters to the terminal
        return f"$'{''.join(map(_escaped, text))}'"
    word = shlex.quote(text)
    return f"'{word}'" if "," in text and word == text else word


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in "\n\t"


def _escaped(letter: str) -> str:
    if _is_shown(letter):
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
