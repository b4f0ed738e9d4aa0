"""Layouts: their text form, the layers of each stage, and what a job makes of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.cost.model_sizes import ModelSizes
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.layout import Layout, PlanJob, parse_layout, pipeline_string, stage_layers
from megatron_hcp.plan.model import PlanModel
from megatron_hcp.rules.pipe.view import layout_of
from support.rules import launch


def model_of(layers: int, mtp: int = 0) -> PlanModel:
    return PlanModel(ModelSizes(layers, 64, 4, 4, 16, 16, 256, layers, True, 1000), (False,) * layers, mtp=mtp)


def test_a_layout_is_read_back_from_its_text() -> None:
    chance = random.Random(3)
    for _ in range(200):
        sizes = {name: chance.choice((1, 2, 8, 72)) for name in ("tp", "cp", "pp", "vp", "ep", "etp", "mbs")}
        layout = replace(Layout(**sizes), cp_comm_type="a2a+p2p", hcp_sizes=chance.choice((None, (8, 2))))  # type: ignore[arg-type]
        expected = layout if layout.cp > 1 else replace(layout, cp_comm_type="p2p", hcp_sizes=None)
        assert parse_layout(str(layout)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tp", "found 'tp'"),
        ("dp=2", "found 'dp=2'"),
        ("tp=0", "found tp=0"),
        ("tp=two", "found tp=two"),
        ("tp=2 tp=4", "found tp twice"),
        ("vp=2 vpp=2", "found vp twice"),
        ("cp=4 hcp_sizes=2", "wanted two sizes"),
        ("cp=4 hcp_sizes=2,2", "without cp_comm_type"),
        ("cp=4 cp_comm_type=ring", "found cp_comm_type=ring"),
        ("recompute=all", "found recompute=all"),
        ("tp=" + "9" * 5000, "found tp=999"),
    ],
)
def test_another_text_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(HcpError) as refused:
        parse_layout(text)
    assert says in str(refused.value) and len(str(refused.value)) < 200
    assert refused.value.wanted and refused.value.do


def test_stages_hold_every_layer_once_and_as_evenly_as_can_be() -> None:
    for layers, mtp, pp, vp in product((1, 5, 16, 61, 126), (0, 1, 2), (1, 2, 3, 4, 8, 16), (1, 2, 3, 8)):
        stages = stage_layers(model_of(layers, mtp), Layout(pp=pp, vp=vp))
        parts = [stages[stage][chunk] for chunk in range(vp) for stage in range(pp)]
        assert sum(parts) == layers and min(parts) >= 0 and len(stages) == pp
        if layers % (pp * vp) == 0:
            assert len(set(parts)) == 1
        elif (layers + 2 + mtp) // (
            pp * vp
        ) > mtp + 1:  # the embedding, the loss and each prediction layer count as one
            work = [parts[0] + 1, *parts[1:-1], parts[-1] + 1 + mtp]
            assert max(work) - min(work) <= 1


def test_the_text_of_the_stages_says_what_they_hold() -> None:
    """Read by the rules' own reader; tests/plan/test_megatron.py has Megatron's."""
    for layers, mtp, pp, vp in product((5, 61, 126), (0, 1), (2, 3, 8), (1, 2, 5)):
        model, layout = model_of(layers, mtp), Layout(pp=pp, vp=vp)
        text = pipeline_string(model, layout)
        if layers % (pp * vp) == 0:
            assert text is None
            continue
        v = launch("mlm", f"--num-layers {layers} --pipeline-model-parallel-layout {text!r}")
        from megatron_hcp.rules.view import View

        stages = stage_layers(model, layout)
        parts = layout_of(View(v)).stages
        assert [part.count("t") for part in parts] == [stages[s][c] for c in range(vp) for s in range(pp)]
        assert parts[0].startswith("E") and parts[-1].endswith("m" * mtp + "L")


def test_a_job_divides_its_ranks_and_its_batch() -> None:
    job = PlanJob(64, 8, gpu_named("h100"), 8, 4096, 256)
    layout = parse_layout("tp=2 cp=4 pp=2 ep=8 etp=1 mbs=2")
    assert (job.dp(layout), job.edp(layout), job.micro_batches(layout)) == (4, 4, 32)
