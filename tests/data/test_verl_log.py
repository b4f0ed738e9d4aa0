"""Lengths out of a verl log: estimated, with the statistics that verl itself computes of them."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from statistics import mean

import pytest

from megatron_hcp.data.lengths import read_lengths
from megatron_hcp.data.verl_log import read_log
from megatron_hcp.ground.errors import HcpError

CAP = 8192


def drawn(seed: int, count: int = 1024, spread: float = 0.9) -> tuple[list[int], list[int]]:
    chance = random.Random(seed)
    prompts = [chance.randint(80, 900) for _ in range(count)]
    return prompts, [min(CAP, max(10, int(chance.lognormvariate(7.5, spread)))) for _ in range(count)]


def metrics(prompts: list[int], responses: list[int]) -> dict[str, float]:
    """As compute_data_metrics and compute_throughout_metrics of verl compute them."""
    found: dict[str, float] = {"training/global_step": 7}
    for name, lengths, most in (("response", responses, CAP), ("prompt", prompts, 1024)):
        found |= {
            f"{name}_length/mean": mean(lengths),
            f"{name}_length/max": float(max(lengths)),
            f"{name}_length/min": float(min(lengths)),
            f"{name}_length/clip_ratio": sum(length == most for length in lengths) / len(lengths),
        }
    return {**found, "perf/total_num_tokens": sum(prompts) + sum(responses)}


def line(values: dict[str, float], step: int = 7) -> str:
    return " - ".join([f"step:{step}", *(f"{name}:{value!r}" for name, value in values.items())])


@pytest.mark.sample(3)
@pytest.mark.parametrize("spread", [0.3, 0.9, 1.6])
def test_the_estimate_has_the_statistics_of_the_step(tmp_path: Path, spread: float) -> None:
    prompts, responses = drawn(1, spread=spread)
    (tmp_path / "run.log").write_text(
        f"ray starts\n\x1b[36m(TaskRunner pid=3)\x1b[0m {line(metrics(prompts, responses))}\n"
    )
    found = read_lengths(str(tmp_path / "run.log"))
    assert len(found.values) == 1024
    assert sum(found.values) == pytest.approx(sum(prompts) + sum(responses), rel=0.01)
    assert max(found.values) <= max(prompts) + CAP
    long = [sum(length >= CAP for length in lengths) for lengths in (found.values, map(sum, zip(prompts, responses)))]
    assert abs(long[0] - long[1]) <= 0.02 * 1024
    middle = [sorted(lengths)[512] for lengths in (found.values, list(map(sum, zip(prompts, responses))))]
    assert middle[0] == pytest.approx(middle[1], rel=0.12)
    assert found.note.startswith("estimated from step 7 of a verl log: 1024 sequences, responses of ")


@pytest.mark.upstream
def test_a_line_that_the_real_logger_writes_is_read(upstream: Path) -> None:
    import numbers
    import pprint

    path = upstream / "verl-0.9.1" / "verl" / "utils" / "logger" / "aggregate_logger.py"
    (body,) = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "concat_dict_to_str"
    ]
    space: dict[str, object] = {"numbers": numbers, "pprint": pprint}
    exec(compile(ast.Module([body], []), str(path), "exec"), space)
    values = metrics(*drawn(2))
    written = space["concat_dict_to_str"](values, step=7)  # type: ignore[operator]
    assert read_log([written]) == read_log([line(values)]) != None  # noqa: E711


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "first",
    [
        "[36m(TaskRunner pid=3)[0m ray starts",  # a color whose escape character a web page dropped
        "[2026-11-22 10:00:00,123][INFO] - ray starts",
        "[4711] ray starts",
        "{'actor_rollout_ref': 1}",
        "  0%|          | 0/435 [00:00<?, ?it/s]",
    ],
)
def test_a_log_may_start_with_anything(tmp_path: Path, first: str) -> None:
    (tmp_path / "run.log").write_text(f"{first}\n{line(metrics(*drawn(1)))}\n")
    assert len(read_lengths(str(tmp_path / "run.log")).values) == 1024


def test_the_last_complete_step_counts() -> None:
    whole = line(metrics(*drawn(3)), 4)
    found = read_log([line(metrics(*drawn(1)), 3), whole, whole.partition(" - perf/")[0].replace("step:4", "step:5")])
    assert found is not None and found.step == 4


def test_numbers_of_numpy_are_read() -> None:
    values = line(metrics(*drawn(3)))
    wrapped = values.replace("clip_ratio:", "clip_ratio:np.float64(").replace("num_tokens:", "num_tokens:np.int64(")
    assert read_log([wrapped]) == read_log([values])


@pytest.mark.parametrize(
    "change",
    [
        ("response_length/mean:", "response_length/mean:-"),
        ("perf/total_num_tokens:", "perf/total_num_tokens:x"),
        ("response_length/max:", "response_length/max:1e30"),
        ("prompt_length/clip_ratio:", "prompt_length/clip_ratio:7"),
        ("step:7", "steps"),
    ],
)
def test_a_line_with_numbers_that_cannot_be_is_left_out(tmp_path: Path, change: tuple[str, str]) -> None:
    text = line(metrics(*drawn(3))).replace(*change)
    assert read_log([text]) is None
    (tmp_path / "run.log").write_text(text)
    with pytest.raises(HcpError, match="or the log of a verl run"):
        read_lengths(str(tmp_path / "run.log"))


@pytest.mark.slow
def test_all_at_the_cap_stays_there() -> None:
    found = read_log([line(metrics([100] * 64, [CAP] * 64))])
    assert found is not None
    from megatron_hcp.data.verl_log import estimated_lengths

    assert estimated_lengths(found) == [CAP + 100] * 64
    assert len(estimated_lengths(found, take=8)) == 8
