"""Whether a launch packs: by its options where the program is known, never guessed where it is not."""

from __future__ import annotations

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.launch.readers.words import read_words

MODEL = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --context-parallel-size 2"


def launch(command: str) -> Launch:
    return build_launch(read_text(f"#!/bin/bash\n{command}\n", "x.sh"))


@pytest.mark.parametrize(
    ("command", "packing"),
    [
        (f"torchrun pretrain_gpt.py {MODEL}", "none"),
        (f"torchrun /opt/Megatron-LM/pretrain_mamba.py {MODEL}", "none"),
        (f"torchrun pretrain_gpt.py {MODEL} --sft", "sft"),
        # slime/backends/megatron_utils/data.py: PackedSeqParams(qkv_format="thd"), whatever the options.
        (f"python train.py --actor-num-nodes 2 {MODEL}", "online"),
        (f"ray job submit -- python3 train_async.py --rollout-batch-size 8 {MODEL}", "online"),
        # miles/utils/arguments.py: --qkv-format thd (the default) or bshd.
        (f"python train.py --actor-num-nodes 2 --qkv-format bshd {MODEL}", "none"),
        (f"python train.py --actor-num-nodes 2 --qkv-format thd {MODEL}", "online"),
        # Megatron-LM, megatron/training/arguments.py: --rl-use-sequence-packing, off by default.
        (f"torchrun train_rl.py --rl-use-sequence-packing {MODEL}", "online"),
        (f"torchrun train_rl.py {MODEL}", "none"),
        # A program of one's own may pack as it likes.
        (f"torchrun train.py {MODEL}", None),
        (f"torchrun my_training.py {MODEL}", None),
        (f"torchrun my_training.py --sft {MODEL}", "sft"),
    ],
)
def test_packing_follows_from_the_program_and_its_options(command: str, packing: str | None) -> None:
    facts = launch(command).facts
    assert (facts["packing"].value if "packing" in facts else None) == packing
    assert (facts["thd"].value if "thd" in facts else None) == (None if packing is None else packing != "none")


def test_a_program_that_is_not_known_is_why_packing_is_unknown() -> None:
    assert launch(f"torchrun train.py {MODEL}").unknown["packing"] == "train.py is a custom program, which may pack"
    assert "packing" not in launch(f"torchrun pretrain_gpt.py {MODEL}").unknown


@pytest.mark.parametrize(
    ("command", "experts"),
    [
        # Megatron-LM, megatron/training/arguments.py: --num-experts, None by default.
        ("torchrun pretrain_gpt.py --tensor-model-parallel-size 2", "None"),
        ("torchrun train.py --tensor-model-parallel-size 2 --num-layers 4", "None"),
        ("torchrun train.py --tensor-model-parallel-size 2 --num-layers $LAYERS", "None"),
        ("torchrun train.py --tensor-model-parallel-size 2 --num-experts 8", "8"),
        ("torchrun train.py --tensor-model-parallel-size 2", "train.py makes the model"),
        ("torchrun -m mine.train --tensor-model-parallel-size 2", "mine.train makes the model"),
    ],
)
def test_a_program_of_its_own_that_gets_no_sizes_makes_the_model(command: str, experts: str) -> None:
    found = launch(command)
    assert found.unknown.get("num_experts", str(found.facts.get("num_experts", [""])[0])) == experts


def test_a_bare_command_line_packs_as_its_flags_say() -> None:
    assert build_launch(read_text(MODEL, "x")).facts["packing"].value == "none"


def test_experts_without_weight_shards_have_one_share_whatever_their_tensor_parallel_size() -> None:
    """expert_weight_shards left alone is egtp 1; only a number of shards makes etp matter."""
    bridge = build_launch(read_text("model.context_parallel_size=2\n", "x.txt"))
    assert "etp" not in bridge.facts and bridge.facts["egtp"].value == 1
    sharded = build_launch(read_text("model.expert_tensor_parallel_num_weight_shards=4\n", "x.txt"))
    assert "egtp" not in sharded.facts


@pytest.mark.parametrize(
    ("options", "granularity", "key"),
    [
        ("", None, None),
        ("--recompute-granularity full", "full", "recompute_granularity"),
        ("--recompute-activations", "selective", "recompute_activations"),
        ("--recompute-activations --recompute-granularity full", "selective", "recompute_activations"),
        ("--recompute-granularity full --recompute-activations", "selective", "recompute_activations"),
    ],
)
def test_recompute_activations_stands_for_selective_and_wins(
    options: str, granularity: str | None, key: str | None
) -> None:
    """validate_args, megatron/training/arguments.py: `if args.recompute_activations: … = 'selective'`."""
    fact = launch(f"torchrun pretrain_gpt.py {MODEL} {options}").facts["recompute_granularity"]
    assert (fact.value, fact.key) == (granularity, key)


@pytest.mark.parametrize(
    ("words", "recomputed"),
    [
        ("activation_checkpointing=false", (None, None, None)),
        ("activation_checkpointing=false policy.megatron_cfg.recompute_granularity=full", (None, None, None)),
        ("activation_checkpointing=true", ("full", "uniform", 1)),
        (
            "activation_checkpointing=true policy.megatron_cfg.recompute_granularity=selective",
            ("selective", None, None),
        ),
    ],
)
def test_nemo_rl_recomputes_by_its_switch_and_sets_the_method_itself(
    words: str, recomputed: tuple[str | None, str | None, int | None]
) -> None:
    """`_apply_performance_config`, nemo_rl/models/megatron/setup.py."""
    cfg = "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false policy.megatron_cfg."
    reading = read_words([*f"{cfg}{words}".split()], "nemo-rl")._replace(unseen=None)
    facts = build_launch(reading).facts
    found = tuple(facts[name].value for name in ("recompute_granularity", "recompute_method", "recompute_num_layers"))
    assert found == recomputed


def test_without_nemo_rls_switch_nothing_is_known_of_recomputation() -> None:
    words = "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"
    facts = build_launch(read_words(words.split(), "nemo-rl")._replace(unseen=None)).facts
    assert not facts.keys() & {"recompute_granularity", "recompute_method", "recompute_num_layers"}


@pytest.mark.parametrize(
    ("spec", "variant"), [("", "gated_delta_net"), ("--spec slime_plugins.models.qwen3_5 f", None)]
)
def test_a_layer_spec_builds_its_own_linear_attention(spec: str, variant: str | None) -> None:
    reading = read_text(f"#!/bin/bash\npython train.py --actor-num-nodes 2 {MODEL} {spec}\n", "x.sh")
    config = {"attention_variant": Fact("gated_delta_net", "model"), "heads": Fact(4, "model")}
    assert build_launch(reading, model=config).facts["attention_variant"].value == variant
