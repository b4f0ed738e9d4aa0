"""Profiles as files: what is read back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.cost.cp_cost import CpTraffic, Link
from megatron_hcp.cost.profile import Profile, fitted_line, fitted_square, profile_of, read_profile
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.resources import pack_dir

PROFILE = Profile("a GPU", 1e-6, 1e-10, CpTraffic("a2a+p2p", Link(1e-9, 2e-9, 1e-5), Link(8e-9, 9e-9), 8, 4), 1e-3)


def test_a_profile_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(PROFILE.as_json()))
    assert read_profile(str(path)) == PROFILE


def test_without_links_across_nodes_all_are_like_those_inside() -> None:
    data = PROFILE.as_json()
    del data["across"]
    assert profile_of(data, "p").traffic.across == PROFILE.traffic.inside


def test_a_latency_that_is_not_known_counts_as_none() -> None:
    data = PROFILE.as_json()
    assert profile_of({**data, "inside": {**data["inside"], "step_s": None}}, "p").traffic.inside.step_s == 0


@pytest.mark.parametrize(
    "change, words",
    [
        ({"linear_s": -1}, "linear_s: found -1; wanted seconds"), ({"linear_s": "1"}, "wanted seconds"),
        ({"linear_s": 1e200}, "to 1e"), ({"quadratic_s": 1e-300}, "from 1e-30"),
        ({"linear_s": 10**400}, "wanted seconds"),
        ({"inside": {"kv_s": 1}}, "inside.a2a_s: found nothing"), ({"comm_type": "ring"}, "wanted one of p2p"),
        ({"schema": "hcp.profile/2"}, "wanted one of hcp.profile/1"), ({"nodes": 3}, "unknown key"),
        ({"linear_s": 0, "quadratic_s": 0}, "measure again"), ({"ranks_per_node": 0}, "whole number from 1"),
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_with_its_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(HcpError, match=words):
        profile_of({**PROFILE.as_json(), **change}, "profile.json")


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "NaN"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(HcpError):
        read_profile(str(path))


def test_the_schema_and_the_reader_agree_on_the_keys() -> None:
    schema = json.loads((pack_dir("schemas") / "hcp.profile.1.json").read_text())
    assert set(schema["properties"]) == set(PROFILE.as_json())
    assert set(schema["$defs"]["link"]["properties"]) == set(Link._fields)


def test_measured_points_give_the_line_and_the_parabola_that_they_lie_on() -> None:
    start, slope = fitted_line([(n, 0.25 + 0.5 * n) for n in (1, 2, 8)])
    assert (start, slope) == pytest.approx((0.25, 0.5))
    assert fitted_line([(1, 0.0), (2, 4.0)])[0] == 0.0  # a line below zero at no tokens is one through zero
    assert fitted_square([(n, 3.0 * n * n) for n in (1, 5, 9)]) == pytest.approx(3.0)
