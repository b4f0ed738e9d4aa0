"""Prompts for the three usual jobs: what an agent is asked, with the tools that it should use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible

_LONGEST = 400


class Prompt(NamedTuple):
    """A prompt; `takes` are its arguments with what they are, all required."""

    name: str
    description: str
    takes: Mapping[str, str]
    text: str

    def filled(self, given: Mapping[str, str]) -> str:
        """The text with its arguments.

        Raises:
            HcpError: one is missing, unknown, or longer than a path.
        """
        if given.keys() != self.takes.keys() or any(len(value) > _LONGEST for value in given.values()):
            raise HcpError(
                f"{self.name}: found {without_secrets(', '.join(sorted(given)))[:100] or 'nothing'}",
                wanted=f"{', '.join(self.takes)}, each of at most {_LONGEST} characters",
            )
        return self.text.format(**{name: visible(value) for name, value in given.items()})


PROMPTS = (
    Prompt(
        "check_launch",
        "Check a launch before it uses a cluster, and mend what is wrong",
        {"path": "the launch: a script, YAML or override list"},
        "Check the launch `{path}` with the tool `check`. State the releases and the GPUs that the job runs on with "
        "`assume` if you know them. For each error, apply the first fix that keeps the parallel sizes, the sequence "
        "length and the batch, and check again. If the verdict is undecided, find what it asks for, or ask me. Finish "
        "with the verdict, what you changed and why, and what was not checked.",
    ),
    Prompt(
        "plan_layout",
        "Choose a parallel layout for a model and a sequence length",
        {
            "model": "the model's config.json",
            "gpus": "GPUs of the job",
            "gpu": "their type, such as h100",
            "seq_length": "tokens per sequence",
            "global_batch": "sequences per step",
        },
        "Choose a parallel layout for `{model}` on {gpus} {gpu} GPUs with sequences of {seq_length} tokens and a "
        "global batch of {global_batch}. Use the tool `support` for what the model can use, then `plan`. Compare the "
        "best layouts that fit: time with its margin, memory and what limits each. Layouts within the margin of each "
        "other are tied. Give me the overrides of the one you choose, and what you took for granted.",
    ),
    Prompt(
        "explain_failure",
        "Find out why a job died, and what to do",
        {"logs": "its log, or the folder of its logs"},
        "Find out why the job with the logs `{logs}` died, with the tool `triage`. Quote the line that shows the first "
        "failure and name its rank and node. Separate what the log shows from what you infer. If the launch is at "
        "hand, check it with the tool `check`. Finish with one recommendation: run again, exclude a node, or stop and "
        "change what.",
    ),
)
