"""What Transformer Engine's code holds, by count: the memory formulas of the planner say the same.

`python lab te/held --write` makes the record.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.cost.cp_held import AttentionBytes, held, outputs_kept

ROWS = json.loads((Path(__file__).parents[3] / "lab/results/te_held.json").read_text())["rows"]


def test_the_record_has_every_type_of_communication_from_2_to_8_ranks_before_and_after_each_change() -> None:
    for release in ("2.8.0", "2.14.0", "2.15.0", "2.19.0", "2.20.2"):
        sizes = {kind: {inner * outer for inner, outer in _sizes(release, kind)} for kind in ("p2p", "a2a", "a2a+p2p")}
        assert sizes == {"p2p": set(range(2, 9)), "a2a": set(range(2, 9)), "a2a+p2p": {4, 6, 8}}


def _sizes(release: str, kind: str) -> list[tuple[int, int]]:
    return [row["sizes"] for row in ROWS if (row["release"], row["cp_comm_type"]) == (release, kind)]


@pytest.mark.parametrize("release", sorted({row["release"] for row in ROWS}))
def test_the_memory_formulas_say_what_was_counted(release: str) -> None:
    for row in (row for row in ROWS if row["release"] == release):
        each, kind = AttentionBytes(*row["bytes"]), row["cp_comm_type"]
        assert sum(each) + (outputs_kept(kind, release) - 1) * each.out == row["kept"], row
        assert held(each, kind, tuple(row["sizes"]), release) == max(row["forward"], row["backward"]), row


def test_a_rings_forward_pass_grows_with_its_ranks_before_2_20_and_no_more_since() -> None:
    grown = {}
    for release in ("2.19.0", "2.20.2"):
        rows = {
            row["sizes"][1]: row["forward"] / row["bytes"][1]
            for row in ROWS
            if (row["release"], row["cp_comm_type"], row["feature"]) == (release, "p2p", "GQA")
        }
        grown[release] = rows[8] - rows[6]
    assert grown == {"2.19.0": pytest.approx(2 * (1 + 1 + 1 / 8)), "2.20.2": 0}


@pytest.mark.torch
@pytest.mark.upstream
@pytest.mark.slow
def test_the_record_is_what_the_release_holds(upstream: Path) -> None:
    pytest.importorskip("torch")
    from te_counted import held_by

    from megatron_hcp.proofs.te_cpu.case import AttentionCall

    row = next(row for row in ROWS if (row["release"], row["cp_comm_type"]) == ("2.20.2", "a2a+p2p"))
    call = AttentionCall(row["cp_comm_type"], "bshd", "cuDNN", row["feature"])
    (found,) = held_by(upstream / "transformer-engine-2.20.2", [(call, tuple(row["sizes"]))])
    assert found._asdict() == {name: row[name] for name in ("kept", "forward", "backward")}
