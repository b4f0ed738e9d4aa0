"""What Transformer Engine's code sends, by count: the cost formulas and the reference attention send the same.

`python lab te/bytes --write` makes the record.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from te_counted import counted, sent_by  # noqa: E402

from megatron_hcp.cost.cp_cost import CpTraffic, bytes_per_token, link_of  # noqa: E402
from megatron_hcp.proofs.te_cpu.case import AttentionCall, Inputs  # noqa: E402

pytestmark = pytest.mark.torch

RECORD = json.loads((Path(__file__).parents[3] / "lab/results/te_bytes.json").read_text())
ROWS = RECORD["rows"]
BF16 = 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['cp_comm_type']} {row['sizes']}")
def test_the_cost_formulas_say_what_was_counted(row) -> None:
    size = row["sizes"][0] * row["sizes"][1]
    link = link_of(bytes_per_token(row["heads"], row["kv_heads"], row["head_dim"], row["head_dim"]), 1.0)
    traffic = CpTraffic(row["cp_comm_type"], link, link, size, row["sizes"][0])
    sent = sum(row["forward"].values()) + sum(row["backward"].values())
    assert traffic.exposed_s(size, row["tokens"], 0.0, False) == pytest.approx(sent)


def test_a_ring_sends_half_of_its_backward_volume_forward_and_all_to_alls_the_same_twice() -> None:
    for row in ROWS:
        for name, count in row["forward"].items():
            factor = {"p2p": 2, "a2a": 1, "all_gather": 1}[name]
            assert row["backward"][name] == factor * count


def test_the_reference_attention_sends_on_each_level_what_upstream_sends_forward(ranks) -> None:
    rows = [row for row in ROWS if row["sizes"][0] * row["sizes"][1] == 4]
    assert {row["cp_comm_type"] for row in rows} == {"p2p", "a2a", "a2a+p2p", "all_gather"}

    def work(rank):
        import torch.distributed as dist

        from megatron_hcp.proofs.dot_product_attention import DotProductAttention
        from megatron_hcp.runtime.groups import GroupBuilder

        found = []
        with GroupBuilder(30) as builder:
            levels = builder.build_levels([range(4)], (2, 2))
            for row in rows:
                inputs = Inputs(AttentionCall(row["cp_comm_type"], "sbhd", "cuDNN", "GQA"), 4)
                attention = DotProductAttention(inputs.heads, inputs.head_dim, num_gqa_groups=inputs.kv_heads)
                group = levels if row["cp_comm_type"] == "a2a+p2p" else dist.group.WORLD
                attention.set_context_parallel_group(group, range(4), None, row["cp_comm_type"])
                mine = inputs.rows_of(rank)
                with counted() as sent:
                    attention(*(x[mine] for x in (inputs.q, inputs.k, inputs.v)))
                found.append({name: BF16 * count for name, count in sent.items()})
        return found

    assert ranks(work) == [[row["forward"] for row in rows]] * 4


@pytest.mark.upstream
@pytest.mark.slow
def test_the_record_is_what_the_release_sends(upstream: Path) -> None:
    row = next(row for row in ROWS if row["sizes"] == [2, 2])
    call = (AttentionCall("a2a+p2p", "sbhd", "cuDNN", "GQA"), (2, 2))
    (sent,) = sent_by(upstream / f"transformer-engine-{RECORD['release']}", [call])
    assert {name: BF16 * count for name, count in sent.forward.items()} == row["forward"]
    assert {name: BF16 * count for name, count in sent.backward.items()} == row["backward"]
