"""Each topic of `hcp backports` is turned on by a launch that asks for it, and by no plain one."""

from __future__ import annotations

import pytest
from upstream_fixes.places import PLACES, UNSEEN, families_at, topics_at
from upstream_fixes.words import TOPIC_WORDS, is_elsewhere, is_unseen, topics_of

from megatron_hcp.backports.lacking import OPTIONS
from megatron_hcp.backports.table import fixes_of, upstreams
from megatron_hcp.backports.topics import TOPICS, is_on
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.view import View
from support.rows import rows

PLAIN = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1"
ALWAYS = {"gradients", "attention", "policy"}
MOE = "--num-experts 8"
HYBRID = "--hybrid-layer-pattern M*M*"
TURNED_ON = {
    "cp": "--context-parallel-size 2",
    "a2a_cp": "--context-parallel-size 2 --cp-comm-type a2a",
    "p2p_cp": "--context-parallel-size 2 --cp-comm-type p2p",
    "gather_cp": "--context-parallel-size 2 --cp-comm-type all_gather",
    "dynamic_cp": "--context-parallel-size 2 --hybrid-context-parallel",
    "thd": "--sft",
    "mtp": "--mtp-num-layers 1",
    "moe": MOE,
    "ep": f"{MOE} --expert-model-parallel-size 2",
    "etp": f"{MOE} --expert-tensor-parallel-size 2",
    "aux_loss": f"{MOE} --moe-router-load-balancing-type aux_loss",
    "flex": f"{MOE} --moe-token-dispatcher-type flex",
    "alltoall": f"{MOE} --moe-token-dispatcher-type alltoall",
    "shared_experts": f"{MOE} --moe-shared-expert-intermediate-size 64",
    "mla": "--multi-latent-attention",
    "dsa": "--multi-latent-attention --experimental-attention-variant dsa",
    "gdn": "--experimental-attention-variant gated_delta_net",
    "mamba": HYBRID,
    "pp": "--pipeline-model-parallel-size 2",
    "vpp": "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
    "stages": "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1",
    "tp": "--tensor-model-parallel-size 2",
    "sp": "--tensor-model-parallel-size 2 --sequence-parallel",
    "fp8": "--fp8-format e4m3",
    "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    "blockwise": "--fp8-format e4m3 --fp8-recipe blockwise",
    "fsdp": "--use-megatron-fsdp",
    "torch_fsdp2": "--use-torch-fsdp2",
    "dist_opt": "--use-distributed-optimizer",
    "graphs": "--cuda-graph-impl local",
    "recompute": "--recompute-granularity selective",
    "ep_overlap": f"{MOE} --overlap-moe-expert-parallel-comm",
    "tp_overlap": "--tp-comm-overlap",
    "swa": "--window-size 128,0",
    "sinks": "--softmax-type learnable",
    "mrope": "--position-embedding-type mrope",
    "yarn": "--position-embedding-type yarn",
    "rope_fusion": "--position-embedding-type rope",
    "fused_loss": "--cross-entropy-loss-fusion",
    "max_logit": "--log-max-attention-logit",
    "qk_clip": "--qk-clip",
    "token_loss": "--calculate-per-token-loss",
    "tied": "",
    "deterministic": "--deterministic-mode",
    "save": "--save ckpt",
    "ramp": "--rampup-batch-size 8 8 100",
    "restart": "--inprocess-restart",
}
"""Topic -> options of Megatron-LM that turn it on."""
ELSEWHERE = {"distillation", "rlhf", "router_replay", "vision", "dynamic_bsz", "rope_scaling", "energon"}
"""Topics that Megatron-LM's command line cannot turn on."""


def view(words: str) -> View:
    return View(load_launch("", LoadOptions(dialect="mlm", words=tuple(f"{PLAIN} {words}".split()))))


@rows("topic", TOPICS)
def test_a_launch_that_asks_for_a_topic_turns_it_on(topic: str) -> None:
    if topic in ELSEWHERE:
        assert topic not in TURNED_ON
        return
    assert is_on(view(TURNED_ON.get(topic, "")), topic) is True
    if topic not in {*ALWAYS, "tied", "rope_fusion"}:
        assert is_on(view(""), topic) is not True


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ("actor_rollout_ref.actor.megatron.router_replay.mode=R3", "router_replay"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True", "dynamic_bsz"),
    ],
)
def test_verls_topics(words: str, topic: str) -> None:
    options = LoadOptions(dialect="verl", words=("model_engine=megatron", words))
    assert is_on(View(load_launch("", options)), topic) is True


def test_what_a_launch_does_not_show_leaves_a_topic_open() -> None:
    options = LoadOptions(dialect="verl", words=("model_engine=megatron",))
    assert is_on(View(load_launch("", options)), "moe") is None


def test_the_words_of_the_titles_and_the_conditions_are_about_the_same_topics() -> None:
    assert set(TOPIC_WORDS) == set(TOPICS)
    used = {topic for upstream in upstreams().values() for fix in fixes_of(upstream) for topic in fix.topics}
    assert used <= {*TOPICS, OPTIONS}


@pytest.mark.parametrize(
    ("title", "topics"),
    [
        ("Fix packed THD RoPE under CP", {"cp", "thd"}),
        ("Fix MTP recompute crash with packed sequences", {"mtp", "recompute", "thd"}),
        ("Fix gradient-norm undercounting when using EP and TP", {"ep", "tp", "gradients"}),
        ("Fix activation checkpointing with shared experts", {"recompute", "shared_experts"}),
        ("Fix dynamic CP scheduler", {"dynamic_cp"}),
        ("Fix a bug", set()),
    ],
)
def test_a_title_is_about_the_topics_that_it_names(title: str, topics: set[str]) -> None:
    assert set(topics_of(title)) == topics


@pytest.mark.parametrize(
    ("title", "elsewhere", "unseen"),
    [
        ("Fix MoE inference with CUDA graphs", True, False),
        ("Fix typo in the docs of context parallelism", True, False),
        ("Fix LoRA merge with EP", False, True),
        ("Fix documents of context parallelism", True, False),
        ("Fix inter-document masking with TP", False, False),
        ("Fix packed THD RoPE under CP", False, False),
    ],
)
def test_a_title_about_what_no_training_runs_or_no_launch_shows_is_told(
    title: str, elsewhere: bool, unseen: bool
) -> None:
    assert (is_elsewhere(title), is_unseen(title)) == (elsewhere, unseen)


def test_quantization_is_training_in_a_project_that_quantizes() -> None:
    title = "Fix FP8 weight quantization cache under CUDA graphs"
    assert is_elsewhere(title) and not is_elsewhere(title, quantizes=True)


@pytest.mark.parametrize(
    ("paths", "topics", "families"),
    [
        (["megatron/core/distributed/fsdp/src/a.py", "megatron/core/distributed/fsdp/src/b.py"], ("fsdp",), ()),
        (["megatron/core/distributed/fsdp/src/a.py", "megatron/core/optimizer/clip_grads.py"], (), ()),
        (["megatron/core/transformer/moe/moe_utils.py"], ("moe",), ()),
        (["megatron/core/optimizer/cpu_offloading/optimizer.py"], (UNSEEN,), ()),
        (["src/megatron/bridge/models/gpt_oss/provider.py"], (), ("gptoss",)),
        (["src/megatron/bridge/models/qwen_vl/model.py"], ("vision",), ("qwen",)),
        (["src/megatron/bridge/models/qwen/a.py", "src/megatron/bridge/models/glm/a.py"], (), ()),
        (["src/megatron/bridge/models/common/a.py"], (), ()),
        (["verl/utils/megatron_utils.py"], (), ()),
    ],
)
def test_what_all_paths_of_a_change_share_is_what_it_is_about(
    paths: list[str], topics: tuple[str, ...], families: tuple[str, ...]
) -> None:
    assert (topics_at(paths), families_at(paths)) == (topics, families)


def test_the_topics_of_places_are_topics() -> None:
    assert {topic for topics in PLACES.values() for topic in topics} <= {*TOPICS, UNSEEN}
