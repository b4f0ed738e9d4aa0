"""Whether a text whose name doesn't tell is a shell script, and whether one ends where it should."""

from __future__ import annotations

import re

from megatron_hcp.bash.syntax import Script
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.foreign import WANTED
from megatron_hcp.launch.dialects.which import may_be_a_launch

_HEAD = 60_000
_CERTAIN = r"(?m)\A\s*#!\s*\S*(?:/|env )(?:ba|z|da|k)?sh\b|^#SBATCH "
_SIGNS = (
    (r"(?m)^[ \t]*(?:export[ \t]+)?[A-Za-z_]\w*\+?=(?!=|\s)", 2),
    (r"(?m)^[ \t]*(?:exec[ \t]+)?(?:srun|torchrun|ft_launcher|sbatch|python3?|uv run|mpirun)\s", 4),
    (r"(?m)\\$", 1),
    (r"\$\{?[A-Za-z_@]|\$\(\(", 1),
    (r"(?m)^[ \t]*(?:fi|done|esac)[ \t]*$|;[ \t]*(?:then|do)[ \t]*$|^[ \t]*set -[a-z]+", 3),
    (r"\s--[a-z][\w-]+", 1),
    (r"<<-?\s*[\x27\"\\]?[A-Z_]+", 4),
    (r"(?m)^[ \t]*(?:import \w|from \S+ import |def \w+\(|class \w+)", -4),
    (r"(?m)^[ \t]*(?:- )?[\w.\"'-]+:(?:\s|$)", -2),
    (r"\A\s*[\[{<]", -6),
    (r"\A(?:[ \t]*(?:#.*)?\n)*(?:---|[\w\"'.-]+:(?:\s|$))", -30),
)
_MOST_PER_SIGN = 5


def looks_like_shell(text: str) -> bool:
    """Whether a text is a shell script rather than YAML, JSON, Python or a list of overrides.

    >>> looks_like_shell("torchrun pretrain_gpt.py --num-layers 2"), looks_like_shell("model:\\n  seq_length: 8")
    (True, False)
    """
    head = text[:_HEAD]
    if re.search(_CERTAIN, head):
        return True
    return sum(weight * min(_MOST_PER_SIGN, sum(1 for _ in re.finditer(sign, head))) for sign, weight in _SIGNS) > 3


def lost_end(script: Script, target: str) -> HcpError | None:
    """The error for a script without a training command, if what follows a statement without an end may be a launch."""
    if script.lost_from is None:
        return None
    data = script.text.data
    if not may_be_a_launch(data[script.lost_from :].decode("utf-8", "replace")):
        return None
    line = data.count(b"\n", 0, script.lost_from) + 1
    return HcpError(
        "what starts here can't be read to its end, and no training command precedes it",
        wanted=WANTED,
        do="give the script that starts the training; if it is this one, see what `bash -n` says",
        at=(target, line),
    )
