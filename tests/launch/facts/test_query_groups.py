"""KV heads where --num-query-groups is stated, absent, or hidden; and a dataset's class that is hidden."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.hidden import hidden
from megatron_hcp.launch.readers.target import read_text

HEADS = "python pretrain_gpt.py --num-layers 2 --tensor-model-parallel-size 2 --num-attention-heads 8"


def launch(text: str, name: str = "run.sh") -> Launch:
    return build_launch(read_text(text, name))


@pytest.mark.parametrize(
    ("flags", "kv_heads"),
    [
        ("", 8),
        ("--group-query-attention", 1),  # argparse's default
        ("--group-query-attention --num-query-groups 4", 4),
        ("--num-query-groups 4", 8),  # read only with the flag above
    ],
)
def test_kv_heads_are_those_that_megatron_takes(flags: str, kv_heads: int) -> None:
    assert launch(f"{HEADS} {flags}\n").facts["kv_heads"].value == kv_heads


@pytest.mark.parametrize("flags", ["", "--num-query-groups 4"])
def test_heads_that_are_not_stated_leave_kv_heads_unknown_where_there_are_no_groups(flags: str) -> None:
    assert "kv_heads" not in launch(f"python pretrain_gpt.py --num-layers 2 {flags}\n").facts


@pytest.mark.parametrize("hides", ["--num-query-groups $GROUPS_OF_MODEL", "$MODEL_FLAGS"])
def test_kv_heads_are_unknown_where_the_groups_are_hidden(hides: str) -> None:
    of = launch(f"{HEADS} --group-query-attention {hides}\n")
    assert "kv_heads" not in of.facts
    assert hidden(of, "kv_heads") is not None


def test_whether_a_launch_fine_tunes_is_hidden_with_the_class_of_its_dataset() -> None:
    of = launch(
        "dataset: {_target_: '${oc.env:DATASET}'}\nmodel: {_target_: a.B, context_parallel_size: 2}\n", "r.yaml"
    )
    assert "finetune" not in of.facts
    assert hidden(of, "finetune") is not None
