"""`--set`: keys changed before facts are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch


def changed(text: str, *sets: str, assumes: tuple[str, ...] = ()) -> Launch:
    return load_launch("", LoadOptions(words=tuple(text.split()), sets=sets, assumes=assumes))


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
    assert changed(text, *sets).facts[name].value == value


def test_ref_follows_an_actor_that_is_changed() -> None:
    launch = changed(VERL, "actor_rollout_ref.actor.megatron.context_parallel_size=8")
    assert build_launch(launch.reading.others[0]).facts["cp"].value == 8


def test_a_set_overrides_what_the_file_says_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("torchrun pretrain_gpt.py --context-parallel-size $CP --num-attention-heads 8\n")
    assert "cp" not in load_launch(str(path), LoadOptions()).facts
    assert load_launch(str(path), LoadOptions(sets=("context_parallel_size=4",))).facts["cp"].value == 4


def test_a_set_mends_a_value_that_could_not_be_read() -> None:
    with pytest.raises(HcpError, match="wanted a whole number"):
        changed("--context-parallel-size four")
    assert changed("--context-parallel-size four", "context_parallel_size=4").facts["cp"].value == 4


@pytest.mark.parametrize(
    ("text", "set_", "assumed"),
    [
        (MLM, "context_parallel_size=8", "cp=2"),
        (BRIDGE, "model.context_parallel_size=8", "cp=2"),
        (VERL, "actor_rollout_ref.actor.megatron.context_parallel_size=8", "cp=2"),
        (MLM, "nodes=8", "nodes=2"),
    ],
)
def test_a_set_wins_over_an_assumption_about_the_same_fact(text: str, set_: str, assumed: str) -> None:
    launch = changed(text, set_, assumes=(assumed, "tp=2"))
    assert launch.facts[assumed.partition("=")[0]].value == 8 and launch.facts["tp"].value == 2
    assert [name for name, _, _ in launch.conflicts] == []


@pytest.mark.parametrize("text", ["context_parallel_size", "=4", "a b=4", ""])
def test_a_set_that_is_no_key_and_value_is_one_line(text: str) -> None:
    with pytest.raises(HcpError, match="wanted KEY=VALUE"):
        changed(MLM, text)


def test_options_of_slurm_are_set_under_their_own_names() -> None:
    assert changed(MLM, "gpus_per_node=4").facts["gpus_per_node"].value == 4
    assert changed(MLM, "sbatch.signal=TERM@300").facts["sbatch.signal"].value == "TERM@300"
    assert changed(MLM, "srun.kill_on_bad_exit=null").facts["srun.kill_on_bad_exit"].value is None
