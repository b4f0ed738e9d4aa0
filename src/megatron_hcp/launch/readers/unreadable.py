"""What is said of a YAML text that cannot be read: a template, or a file that has more than a launch."""

from __future__ import annotations

import re

from megatron_hcp.ground.errors import HcpError, NotPlainError, UnrecognisedError
from megatron_hcp.launch.dialects.which import may_be_a_launch

_TEMPLATE = re.compile(
    r"\{\{-?[ \t]*(?:[.$(]|if|else|end|range|with|include|template|define|toYaml|tpl|/\*)[^\n]{0,60}"
)


def refused(error: HcpError, text: str, file: str) -> HcpError:
    """The error for a text that is no plain YAML: an `UnrecognisedError` where nothing in it tells of a launch."""
    template = _TEMPLATE.search(text)
    if template is not None:
        line = text.count("\n", 0, template.start()) + 1
        error = NotPlainError(
            f"a template ({template.group().strip()[:40]} …)",
            wanted="the YAML that it is rendered to",
            do="run helm template, and check what it prints",
            at=(file, line),
        )
    is_other = isinstance(error, NotPlainError) and not may_be_a_launch(text)
    if not is_other:
        return error
    return UnrecognisedError(error.found, wanted=error.wanted, do=error.do, at=error.at)
