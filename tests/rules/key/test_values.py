"""KEY006 to KEY009: words after an option are refused as the parser of the launch's release refuses them."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.edit import apply_sets
from megatron_hcp.rules.registry import BY_ID
from support.patches import Patched
from support.rules import FixRow, Row, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

JOB = "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-batch-size 32 "
GPT = "python pretrain_gpt.py --context-parallel-size 2 "
RECIPE = "python scripts/training/run_recipe.py --recipe llama3_8b_128k_pretrain_config"
CRASH, WARNING = "error crash config", "warning crash config"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("KEY006", "mlm", "--seq-length 64 --sequence-parallel", "", "fine"),
    ("KEY006", "mlm", "--seq-length 64 --sequence-parallel true", "", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --sequence-parallel=true", "mcore=0.12.0", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --no-rope-fusion false", "mcore=0.19.0 mcore_branch=dev", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --bf16 true", "mcore=0.20.0", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --use-distributed-optimizer True", "", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --bf16 true", "mcore=0.21.0", "not concerned"),  # it wasn't read
    ("KEY006", "mlm", "--seq-length 64 --our-own true", "", "fine"),
    ("KEY006", "mlm", f"{GPT}--bf16 true\n", "", CRASH),
    ("KEY006", "mlm", f"{GPT}--bf16 true --our-own 1\n", "", WARNING),  # perhaps a fork's parser
    (
        "KEY006",
        "mlm",
        "python ours/train.py --context-parallel-size 2 --num-layers 2 --bf16 true\n",
        "",
        "not concerned",
    ),
    ("KEY006", "mlm", "MODEL_ARGS:\n  --bf16: true\n", "", "fine"),
    ("KEY006", "mlm", "MODEL_ARGS:\n  --bf16: false\n", "", CRASH),
    ("KEY006", "slime", f"{JOB}--bf16 true", "", WARNING),
    ("KEY006", "slime", f"{JOB}--bf16 false", "", "error silent never"),
    ("KEY006", "slime", f"{JOB}--colocate true", "", WARNING),
    ("KEY006", "ms-swift", "--model x --sequence_parallel true", "", "fine"),
    ("KEY006", "ms-swift", "--model x --no_add_version true", "", CRASH),
    (
        "KEY006",
        "ms-swift",
        "model: x\ndataset: y\ncontext_parallel_size: 2\nno_add_version: true\n",
        "",
        "not concerned",
    ),
    ("KEY006", "bridge", "model.sequence_parallel=true", "", "not concerned"),
    ("KEY006", "ms-swift", "--model x --use_mcore_models true", "", "fine"),  # Megatron-LM's
    ("KEY006", "mlm", "--data-impl mmap --cp-partition-mode contiguous --bf16 true", "", CRASH),  # no release has all
    ("KEY007", "mlm", "--seq-length 64 --log-interval 10", "", "fine"),
    ("KEY007", "mlm", f"{GPT}--log-interval '1 2'\n", "", CRASH),
    ("KEY007", "mlm", 'MODEL_ARGS:\n  --profile-ranks: ["0 1", 2]\n', "", "fine"),
    ("KEY007", "mlm", "--seq-length 64 --log-interval 10 20", "", CRASH),
    ("KEY006", "mlm", "--seq-length 64 --export-kv-cache-quant zigzag", "", "fine"),  # a switch until 0.15: KEY008's
    ("KEY008", "mlm", "--seq-length 64 --export-kv-cache-quant zigzag", "", CRASH),
    ("KEY007", "mlm", "--seq-length 64 --log-interval", "", CRASH),
    ("KEY007", "mlm", "--seq-length 64 --log-interval 1e2", "", CRASH),
    ("KEY007", "mlm", "--seq-length 64 --lr 1e2", "", "fine"),
    ("KEY007", "mlm", "--seq-length 64 --rampup-batch-size 8 8", "mcore=0.20.0", CRASH),
    ("KEY007", "mlm", "--seq-length 64 --moe-layer-freq x y", "", CRASH),
    ("KEY007", "mlm", "--seq-length 64 --moe-layer-freq x", "", "fine"),  # a function of upstream's converts it
    ("KEY007", "mlm", "--seq-length 64 --cuda-graph-scope attn mlp", "mcore=0.16.0", "fine"),
    ("KEY007", "mlm", "--seq-length 64 --cuda-graph-scope attn mlp", "", WARNING),
    ("KEY007", "mlm", "--seq-length 64 --cuda-graph-scope attn mlp", "mcore=0.13.1", CRASH),
    ("KEY007", "mlm", "--kitchen-config-file x --kitchen-recipe-number 1", "mcore=0.15.3", CRASH),
    ("KEY007", "mlm", "--kitchen-config-file x --kitchen-recipe-number 1", "", CRASH),
    ("KEY007", "mlm", "--kitchen-config-file x", "", "fine"),
    ("KEY007", "mlm", "MODEL_ARGS:\n  --profile-ranks: 0 1\n", "", "fine"),  # its script quotes it, or not
    ("KEY007", "mlm", 'MODEL_ARGS:\n  --profile-ranks: "[0 1]"\n', "", "fine"),
    ("KEY007", "slime", f"{JOB}--log-interval 10 20", "", WARNING),
    ("KEY007", "slime", f"{JOB}--log-interval x", "", CRASH),
    ("KEY007", "slime", f"{JOB}--log-interval 10 20 --save-interval x", "", CRASH),
    ("KEY007", "mlm", "python $TRAIN --context-parallel-size 2 --log-interval x\n", "", "not concerned"),
    ("KEY007", "slime", f"{JOB}--rollout-temperature hot", "slime=0.3.1", CRASH),
    ("KEY007", "ms-swift", "--model x --async_save", "", "fine"),
    ("KEY007", "ms-swift", "--model x --async_save Yes", "", "fine"),
    ("KEY007", "ms-swift", "--model x --async_save on", "", CRASH),
    ("KEY007", "ms-swift", "--model x --async_save true false", "", CRASH),
    ("KEY007", "ms-swift", "--model x --async_save true false --ignore_args_error true", "", "fine"),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-modules x", "mcore=0.18.0", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-modules attn moe_router", "mcore=0.18.0", "fine"),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-scope atn", "mcore=0.16.1", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-scope full", "mcore=0.16.1", "fine"),
    ("KEY008", "slime", f"{JOB}--loss-mask-type qwen3_5", "slime=0.3.1", "fine"),
    ("KEY008", "slime", f"{JOB}--loss-mask-type qwen3_5", "slime=0.2.0", CRASH),
    ("KEY008", "slime", f"{JOB}--loss-mask-type qwen3_5", "slime=0.2.9", WARNING),  # some 0.2 has it
    ("KEY008", "slime", f"{JOB}--loss-mask-type qwen3_5", "miles=0.1.0", CRASH),
    ("KEY008", "slime", f"{JOB}--loss-mask-type qwen3_5", "", WARNING),
    ("KEY008", "slime", f"{JOB}--loss-mask-type ours", "slime=9.1", "fine"),  # it wasn't read
    ("KEY008", "ms-swift", "--model x --tuner_type lora_llm", "ms_swift=4.0.4", CRASH),
    ("KEY008", "ms-swift", "--model x --tuner_type lora_llm", "ms_swift=4.6.0", "fine"),
    ("KEY008", "ms-swift", "--model x --tuner_type lora_llm", "", WARNING),
    ("KEY008", "mlm", "--seq-length 64 --attention-backend flashy", "", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --attention-backend flash", "", "fine"),
    ("KEY008", "mlm", "--seq-length 64 --recompute-granularity all", "", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --timing-log-level 3", "", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --timing-log-level 02", "", "fine"),  # a number is compared as one
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-impl=full_iteration", "mcore=0.16.1", CRASH),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-impl=full_iteration", "mcore=0.18.0", "fine"),
    ("KEY008", "mlm", "--seq-length 64 --cuda-graph-impl=full_iteration", "", WARNING),
    ("KEY008", "mlm", "--cuda-graph-impl=full_iteration --attention-backend flashy", "", CRASH),
    # No release before 0.18 has this option, so the launch isn't for one.
    ("KEY008", "mlm", "--cuda-graph-impl=full_iteration --cuda-graph-modules attn", "", "fine"),
    ("KEY008", "mlm", "--cross-entropy-fusion-impl linear", "mcore=0.20.0", WARNING),  # dev has it
    ("KEY008", "mlm", "--cross-entropy-fusion-impl linear", "mcore=0.19.0", CRASH),
    ("KEY008", "slime", f"{JOB}--attention-backend flashy", "", CRASH),
    ("KEY009", "bridge", "model.sequence_parallel=off", "", "error silent never"),
    ("KEY009", "bridge", "++model.sequence_parallel=No", "", "error silent never"),
    ("KEY009", "bridge", "model.sequence_parallel=False model.cp_comm_type=no", "", "fine"),  # the second is a text
    ("KEY009", "bridge", "model.sequence_parallel=on", "", "fine"),  # it counts as true
    ("KEY009", "bridge", "model: {sequence_parallel: off, seq_length: 64}\n", "", "not concerned"),  # YAML's boolean
    ("KEY009", "bridge", f"{RECIPE} \\\n model.sequence_parallel=off\n", "bridge=0.6.0", "error silent never"),
    ("KEY009", "bridge", "model.ours=off model.sequence_parallel=true", "", "fine"),
    ("KEY009", "verl", "actor_rollout_ref.actor.megatron.sequence_parallel=off", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("KEY006", "mlm", "--seq-length 64 --bf16 true --swiglu on", "", "found: --bf16 true, and 1 more"),
    ("KEY006", "slime", f"{JOB}--bf16 true --swiglu off", "", "found: --swiglu off, and 1 more"),
    ("KEY006", "mlm", "--bf16 true", "", "--bf16 true | no value: it is a switch"),
    ("KEY007", "mlm", "--log-interval 1 2", "", "message: argparse rejects the further value as unrecognized"),
    ("KEY007", "mlm", "--log-interval", "", "wanted: one value"),
    (
        "KEY007",
        "mlm",
        "--kitchen-config-file x --kitchen-recipe-number 1",
        "mcore=0.15.3",
        "wanted: it without --kitchen-",
    ),
    ("KEY008", "mlm", "--recompute-granularity all", "", "wanted: full or selective"),
    ("KEY008", "mlm", "--cuda-graph-impl full_iteration", "", "in megatron-core 0.15.0 to 0.17.1"),
    ("KEY008", "ms-swift", "--model x --tuner_type lora_llm", "", "message: of the choices, in ms-swift 4.0.4"),
    (
        "KEY008",
        "slime",
        f"{JOB}--loss-mask-type qwen3_5",
        "",
        "in slime-0.2.0 to slime-0.2.3, miles-0.1.0 to miles-main",
    ),
    ("KEY008", "mlm", f"--fp8-format {'f' * 99} --fp8-recipe g", "", f"--fp8-format {'f' * 40}, and 1 more"),
    (
        "KEY009",
        "bridge",
        "model.sequence_parallel=off",
        "",
        "model.sequence_parallel=off | model.sequence_parallel=false",
    ),
    ("KEY009", "bridge", "model.sequence_parallel=off model.qk_clip=no", "", "=off, and 1 more"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("KEY006", "mlm", "--bf16 true --overlap-grad-reduce 1", "", ("bf16=true overlap_grad_reduce=true",)),
    (
        "KEY006",
        "mlm",
        "--seq-length 64 --tensor-model-parallel-size 2 --sequence-parallel true",
        "",
        ("sequence_parallel=true",),
    ),
    ("KEY006", "mlm", "--seq-length 64 --no-rope-fusion false", "", ("no_rope_fusion=null",)),
    ("KEY006", "mlm", "--seq-length 64 --overlap-grad-reduce false", "", ("overlap_grad_reduce=null",)),
    ("KEY006", "mlm", "--seq-length 64 --no-rope-fusion true", "", ("no_rope_fusion=true",)),
    ("KEY007", "mlm", "--log-interval 1.5", "", ()),
    ("KEY007", "mlm", "--log-interval 1e300", "", ()),
    ("KEY008", "mlm", "--attention-backend flashy", "", ("attention_backend=flash",)),
    ("KEY008", "mlm", "--lr-decay-style zigzag", "", ()),
    (
        "KEY008",
        "mlm",
        "--moe-router-load-balancing-type aux_los none",
        "",
        ("moe_router_load_balancing_type=aux_loss none",),
    ),
    ("KEY009", "bridge", "model.sequence_parallel=off", "", ("model.sequence_parallel=false",)),
]


@pytest.mark.parametrize("value", ["true", "false"])
def test_key006_a_switch_that_an_option_of_hcp_sets_is_no_word_of_the_command_line(value: str) -> None:
    reading = launch("mlm", "--seq-length 64 --tensor-model-parallel-size 2").reading
    edited = build_launch(apply_sets(reading, [f"sequence_parallel={value}"]).reading)
    assert edited.facts["sequence_parallel"].value is (value == "true")
    assert not check_launch(edited, (BY_ID["KEY006"],)).findings


@pytest.mark.parametrize(
    ("rule_id", "name", "text", "wanted"),
    [
        ("KEY006", "run.sh", f"{GPT}--bf16 true --sft\n", f"{GPT}--bf16 --sft\n"),
        ("KEY006", "run.sh", f"{GPT}--bf16=true --sft\n", f"{GPT}--bf16 --sft\n"),
        ("KEY006", "run.sh", f"A=(\n --sft false\n --lr 1\n)\n{GPT}${{A[@]}}\n", f"A=(\n --lr 1\n)\n{GPT}${{A[@]}}\n"),
        ("KEY007", "run.sh", f"{GPT}--log-interval 1e2\n", f"{GPT}--log-interval 100\n"),
        ("KEY008", "run.sh", f"{GPT}--attention-backend=flsh\n", f"{GPT}--attention-backend flash\n"),
        (
            "KEY006",
            "c.yaml",
            "MODEL_ARGS:\n  --bf16: 'on'\n  --sft: true\n",
            "MODEL_ARGS:\n  --bf16: true\n  --sft: true\n",
        ),
        (
            "KEY008",
            "c.yaml",
            "MODEL_ARGS:\n  --attention-backend: flsh\n",
            "MODEL_ARGS:\n  --attention-backend: flash\n",
        ),
    ],
)
def test_key006_a_fix_writes_other_words_after_the_option(
    patched: Patched, rule_id: str, name: str, text: str, wanted: str
) -> None:
    assert patched(text, name, rules=(BY_ID[rule_id],))[0] == wanted
