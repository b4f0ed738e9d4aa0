"""Which written settings lead to a refusal that reads none of them: found by leaving each out.

A name stands for much that its launch doesn't write: `mixed_precision=fp16_mixed` sets fields of the model and of the
optimizer, which a guard reads under their own names.
"""

from __future__ import annotations

from collections.abc import Iterator

from megatron_hcp.judge.start.judged import judged_again
from megatron_hcp.judge.start.keys import Spot, spot_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.validators.outcome import Judgement, Refusal

_MOST_SETTINGS, _MOST_STEPS = 24, 40_000


def leading_to(launch: Launch, judged: Judgement, refusal: Refusal) -> Iterator[Spot]:
    """The settings without each of which the guard does not refuse.

    Only what a recipe decides is unknown: elsewhere upstream's defaults may refuse what is no whole launch.
    """
    if launch.dialect != "bridge" or launch.reading.recipe is None:
        return
    reading = launch.reading
    own = [one for one in reading.settings if one.sign is not None or one.location is not None]  # no recipe's
    for left_out in own[:_MOST_SETTINGS]:
        rest = tuple(one for one in reading.settings if one is not left_out)
        again = judged_again(launch._replace(reading=reading._replace(settings=rest)), judged, _MOST_STEPS)
        if again is not None and all(one.guard != refusal.guard for one in again.refusals):
            yield spot_of(launch, left_out.key)
