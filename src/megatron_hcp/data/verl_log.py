"""Estimates lengths from the log of a verl run, which has only statistics of each step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import exp, log
from statistics import NormalDist
from typing import NamedTuple

from megatron_hcp.data.sampling import taken

_METRIC = re.compile(
    r"\b(?P<part>prompt|response)_length/(?P<name>mean|max|min|clip_ratio):(?:[a-z.]{0,8}float[0-9]{2}\()?"
    r"(?P<value>[0-9][0-9.e+-]{0,24})"
)
_TOKENS = re.compile(r"\bperf/total_num_tokens:(?:[a-z.]{0,8}int[0-9]{2}\()?(?P<value>[0-9]{1,18})")
_STEP = re.compile(r"\bstep:(?P<value>[0-9]{1,9})\b")
_MOST_TOKENS = 2**40
_GRID = 2048


class Spread(NamedTuple):
    """A step's statistics of the prompts or the responses: tokens, and the share at the maximum length."""

    mean: float
    max: float
    min: float
    clip_ratio: float


class LoggedStep(NamedTuple):
    """The last complete step of a log."""

    step: int
    total_tokens: int
    prompt: Spread
    response: Spread

    @property
    def num_sequences(self) -> int:
        return max(1, round(self.total_tokens / (self.prompt.mean + self.response.mean)))

    @property
    def note(self) -> str:
        """The estimate in words."""
        return (
            f"estimated from step {self.step} of a verl log: {self.num_sequences} sequences, responses of "
            f"{self.response.min:g} to {self.response.max:g} tokens, {self.response.mean:.0f} on average, "
            f"{self.response.clip_ratio:.1%} at the cap"
        )


def read_log(lines: Iterable[str]) -> LoggedStep | None:
    """The last step whose line has everything an estimate needs; None if there is none.

    Source: verl, verl/trainer/ppo/metric_utils.py, compute_data_metrics and compute_throughout_metrics; printed by
    verl/utils/logger/aggregate_logger.py, concat_dict_to_str, as `step:1 - response_length/mean:236.1 - …`.
    """
    last = None
    for line in lines:
        if "response_length/mean:" in line:
            last = _step_of(line) or last
    return last


def _step_of(line: str) -> LoggedStep | None:
    found = {(match["part"], match["name"]): _number(match["value"]) for match in _METRIC.finditer(line)}
    total, step = _TOKENS.search(line), _STEP.search(line)
    parts = [
        Spread(**{name: found.get((part, name), -1.0) for name in Spread._fields}) for part in ("prompt", "response")
    ]
    if total is None or step is None or not all(map(_is_sound, parts)) or parts[0].mean + parts[1].mean < 1:
        return None
    return LoggedStep(int(step["value"]), int(total["value"]), *parts)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # ranks overwrite each other's output
        return -1.0


def _is_sound(part: Spread) -> bool:
    return 0 <= part.min <= part.mean <= part.max <= _MOST_TOKENS and 0 <= part.clip_ratio <= 1


def estimated_lengths(step: LoggedStep, take: int | None = None) -> list[int]:
    """Lengths that match the step's statistics: the number of sequences, and mean and range of prompts and responses.

    Prompts and responses are assumed to be lognormal within their range, with a share `clip_ratio` at the maximum,
    and independent of each other, because the log does not say whether long prompts get long responses.
    """
    count = min(step.num_sequences, take or step.num_sequences)
    taken(count, None, "the verl log")
    prompts, responses = _quantiles(step.prompt, count), _quantiles(step.response, count)
    stride = _coprime(count)
    return [max(1, round(prompts[i] + responses[i * stride % count])) for i in range(count)]


def _quantiles(part: Spread, count: int) -> list[float]:
    """Ascending values of a lognormal with this mean, clipped to its range; a share `clip_ratio` is at the maximum."""
    least, most = max(1.0, part.min), max(1.0, part.max)
    at_most = min(1 - 1e-6, max(part.clip_ratio, 0.5 / count, 1e-6))
    top = NormalDist().inv_cdf(1 - at_most)

    def value(sigma: float, quantile: float) -> float:
        return min(most, max(least, most * exp(min(0.0, sigma * (NormalDist().inv_cdf(quantile) - top)))))

    low, high = 0.0, 2 * log(most) + 1
    for _ in range(40):  # the wider the distribution, the smaller its mean
        sigma = (low + high) / 2
        mean = sum(value(sigma, (i + 0.5) / _GRID) for i in range(_GRID)) / _GRID
        low, high = (sigma, high) if mean > part.mean else (low, sigma)
    return [value(high, (i + 0.5) / count) for i in range(count)]


def _coprime(count: int) -> int:
    """A stride that visits all of `count` places with distant neighbours: near the golden ratio, coprime to `count`."""
    from math import gcd

    return next(step for step in range(int(0.618 * count) + 1, 2 * count + 2) if gcd(step, count) == 1)
