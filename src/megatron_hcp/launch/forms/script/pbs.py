"""What a PBS job's header says about its nodes and GPUs: `#PBS -l select=8:ngpus=8`."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Lit, ScriptText
from megatron_hcp.launch.forms.script.options import Option

_LINE = rb"(?m)^#PBS[ \t]+-l[ \t]*(?:select|nodes)=(\d{1,6})((?::\w+(?:=\w+)?)*)(?=[\s,]|$)"
_GPUS = rb":n?gpus=(\d{1,4})(?!\w)"


def pbs_header(text: ScriptText) -> list[Option]:
    """`nodes` and `gpus_per_node`, if all chunks of the job are equal."""
    found: list[Option] = []
    for match in re.finditer(_LINE, text.data) if b"#PBS" in text.data else ():
        gpus = re.search(_GPUS, match[2])
        for name, start, end in (
            ("nodes", *match.span(1)),
            *([("gpus_per_node", match.start(2) + gpus.start(1), match.start(2) + gpus.end(1))] if gpus else []),
        ):
            span = (text, start, end)
            found.append(Option(name, (Lit(text.data[start:end].decode(), span),), span, "#PBS -l"))
    return found
