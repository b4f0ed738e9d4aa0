"""--set, --assume and --facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hcp.core.errors import HcpError
from hcp.launch.build import build_launch
from hcp.launch.fact import Launch
from hcp.launch.facts.table import FACTS
from hcp.launch.options import apply_sets, parse_assumptions, read_facts_file
from hcp.launch.read import read_target, read_text
from hcp.launch.this_machine import machine_facts


def launch(text: str, name: str = "x") -> Launch:
    return build_launch(read_text(text, name))


MLM = "--context-parallel-size 4 --num-attention-heads 8 --position-embedding-type rope --no-rope-fusion"
BRIDGE = "model.context_parallel_size=4"
VERL = (
    "actor_rollout_ref.actor.megatron.context_parallel_size=4\nactor_rollout_ref.actor.use_kl_loss=true\n"
    "algorithm.adv_estimator=grpo\n"
)


@pytest.mark.parametrize(
    ("text", "sets", "name", "value"),
    [
        (MLM, ["--context-parallel-size=8"], "cp", 8),
        (MLM, ["context_parallel_size=8"], "cp", 8),
        (MLM, ["context-parallel-size=8"], "cp", 8),
        (MLM, ["cp-comm-type=a2a p2p"], "cp_comm_type", ("a2a", "p2p")),
        (MLM, ["hierarchical-context-parallel-sizes=2 2"], "hcp_sizes", (2, 2)),
        (MLM, ["hierarchical_context_parallel_sizes=2,2"], "hcp_sizes", (2, 2)),
        (MLM, ["sft=true"], "sft", True),
        (MLM, ["sft=false"], "sft", False),
        (MLM, ["no_rope_fusion=false"], "rope_fusion", True),
        (MLM, ["context_parallel_size=null"], "cp", 1),
        (MLM, ["context_parallel_size=8", "context_parallel_size=2"], "cp", 2),
        (MLM, ["env.NVTE_FUSED_ATTN=0"], "env.NVTE_FUSED_ATTN", "0"),
        (MLM, ["env.NVTE_FUSED_ATTN=null"], "env.NVTE_FUSED_ATTN", None),
        (MLM, ["placement=block"], "placement", "block"),
        (MLM, ["nodes=4"], "nodes", 4),
        (BRIDGE, ["model.context_parallel_size=8"], "cp", 8),
        (BRIDGE, ["++model.cp_comm_type=[a2a,p2p]"], "cp_comm_type", ("a2a", "p2p")),
        (BRIDGE, ["model.hierarchical_context_parallel_sizes=[2,2]"], "hcp_sizes", (2, 2)),
        (BRIDGE, ["model.hierarchical_context_parallel_sizes=null"], "hcp_sizes", None),
        (BRIDGE, ["model={context_parallel_size:16}"], "cp", 16),
        (VERL, ["trainer.nnodes=2"], "nodes", 2),
        (VERL, ["actor_rollout_ref.actor.strategy=fsdp"], "cp", 1),
    ],
)
def test_a_set_key_changes_its_fact(text: str, sets: list[str], name: str, value: object) -> None:
    assert apply_sets(launch(text), sets).facts[name].value == value


def test_ref_follows_an_actor_that_is_changed() -> None:
    changed = apply_sets(launch(VERL), ["actor_rollout_ref.actor.megatron.context_parallel_size=8"])
    assert build_launch(changed.reading.others[0]).facts["cp"].value == 8


def test_a_set_overrides_what_the_file_says_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("torchrun pretrain_gpt.py --context-parallel-size $CP --num-attention-heads 8\n")
    read = build_launch(read_target(str(path)))
    assert "cp" not in read.facts
    assert apply_sets(read, ["context_parallel_size=4"]).facts["cp"].value == 4


@pytest.mark.parametrize("text", ["context_parallel_size", "=4", "a b=4", ""])
def test_a_set_that_is_no_key_and_value_is_one_line(text: str) -> None:
    with pytest.raises(HcpError, match="wanted KEY=VALUE"):
        apply_sets(launch(MLM), [text])


def test_assumptions_have_the_types_of_their_facts() -> None:
    read = parse_assumptions(["te=2.14 nodes=2", "hcp_sizes=8,2", "einops=true", "env.NVTE_FUSED_ATTN=0", "vpp=null"])
    values = {name: fact.value for name, fact in read.items()}
    assert values == {
        "te": "2.14",
        "nodes": 2,
        "hcp_sizes": (8, 2),
        "einops": True,
        "env.NVTE_FUSED_ATTN": "0",
        "vpp": None,
    }
    assert {fact.origin for fact in read.values()} == {"assumed"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodez=2", "did you mean nodes?"),
        ("xyzzy=2", "there is no fact 'xyzzy'"),
        ("nodes", "wanted NAME=VALUE"),
        ("te=new", "wanted a version such as 2.14"),
        ("arch=h100", "such as sm90"),
        ("placement=blok", "block or cyclic"),
        ("nodes=two", "wanted a whole number"),
        ("nodes=0", "at least 1"),
        ("=1", "wanted NAME=VALUE"),
    ],
)
def test_an_assumption_that_cannot_be_used_is_one_line(text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        parse_assumptions([text])
    assert said in str(error.value)


def facts_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "facts.json"
    path.write_text(text)
    return path


def test_what_hcp_facts_writes_comes_back(tmp_path: Path) -> None:
    known = machine_facts()
    data = {"schema": "hcp.facts/1", "facts": {n: {"value": v, "origin": "installed"} for n, v in known.items()}}
    read = read_facts_file(str(facts_file(tmp_path, json.dumps(data))))
    assert {name: fact.value for name, fact in read.items()} == known and set(known) <= set(FACTS)
    assert {fact.origin for fact in read.values()} <= {"installed"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "wanted hcp.facts/1"),
        ('{"schema": "hcp.check/1", "facts": {}}', "hcp.check/1"),
        ('{"schema": "hcp.facts/1"}', "wanted hcp.facts/1"),
        ("[" * 100_000, "is no JSON"),
        ('{"schema": "hcp.facts/1", "facts": {"tee": {"value": "2"}}}', "there is no fact 'tee'"),
        ('{"schema": "hcp.facts/1", "facts": {"nodes": {"value": "x"}}}', "wanted a whole number"),
    ],
)
def test_a_facts_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        read_facts_file(str(facts_file(tmp_path, text)))
    assert said in str(error.value) and "\n" not in str(error.value)
