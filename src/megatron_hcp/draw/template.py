"""Renders pictures and pages from the templates."""

from __future__ import annotations

from typing import Any

from megatron_hcp.ground.visible import visible
from megatron_hcp.resources import pack_dir


def fill_template(name: str, **values: Any) -> str:
    """The template filled with these values; text and control characters are escaped; a missing value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(pack_dir("templates")),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**values)
