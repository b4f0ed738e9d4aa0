"""What the arguments of `hcp check` and `hcp show` name: launches, and facts that follow an `--assume`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.load import LoadOptions

_OURS = ("--upstream", "--assume", "--select", "--ignore", "--allow-undecided", "--skip-unrecognised")
"""Options of hcp's own that no launcher has."""


def split_targets(words: Sequence[str], options: LoadOptions) -> tuple[list[str], LoadOptions]:
    """The targets ("" is the launch made only of the words after `--`), and the options with the stated facts added.

    Raises:
        HcpError: neither a target nor words after `--`, or such words with several targets.
    """
    names, more = without_assumptions(words)
    ours = next((word for word in options.words if word.partition("=")[0] in _OURS), None)
    if ours is not None:
        raise HcpError(f"found {ours[:200]} after --", wanted="the launch's own words there", do="write it before --")
    options = options._replace(assumes=(*options.assumes, *more))
    if len(names) > 1 and options.words:
        raise HcpError(
            f"found overrides after -- with {len(names)} targets", wanted="one target", do="check them one by one"
        )
    if not names and not options.words and options.recipe is None:
        raise HcpError("found no target", wanted="a launch file, - for stdin, or overrides after --", do="see --help")
    return names or [""], options


def without_assumptions(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Targets, and facts that follow another fact's --assume: `--assume te=2.14 mcore=0.16.1`."""
    if not any("=" in word for word in words):
        return list(words), []
    from megatron_hcp.launch.dialects.table import FACTS
    from megatron_hcp.launch.options import is_job_option

    def is_fact(name: str) -> bool:
        return name in FACTS or name.startswith("env.") or is_job_option(name)

    facts = [word for word in words if "=" in word and not os.path.exists(word) and is_fact(word.partition("=")[0])]
    return [word for word in words if word not in facts], facts
