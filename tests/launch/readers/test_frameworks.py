"""Commands and files of slime, miles, ms-swift and NeMo-RL are read as their own dialects."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Dialect, Launch
from megatron_hcp.launch.hf import read_model
from megatron_hcp.launch.readers.target import read_target, read_text
from megatron_hcp.rules.registry import rules_for

SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --context-parallel-size 2"


def script(text: str) -> Launch:
    return build_launch(read_text(f"#!/bin/bash\n{text}\n", "x.sh"))


def value(launch: Launch, name: str) -> object:
    return launch.facts[name].value if name in launch.facts else "unknown"


@pytest.mark.parametrize(
    ("command", "dialect"),
    [
        (f"ray job submit -- python3 train.py --actor-num-nodes 1 --rollout-batch-size 8 {SIZES}", "slime"),
        (f"python train_async.py --num-rollout 3 {SIZES}", "slime"),
        (f"torchrun train.py {SIZES}", "mlm"),
        (f"torchrun pretrain_gpt.py {SIZES}", "mlm"),
        ("NPROC_PER_NODE=8 megatron sft --model x --tuner_type lora", "ms-swift"),
        ("megatron rlhf --rlhf_type grpo --model x", "ms-swift"),
        ("torchrun swift/cli/_megatron/pt.py --model x", "ms-swift"),
        ("uv run examples/run_grpo.py --config x.yaml policy.megatron_cfg.context_parallel_size=2", "nemo-rl"),
        ("uv run python examples/run_sft.py --config x.yaml", "nemo-rl"),
    ],
)
def test_a_command_is_in_its_frameworks_dialect(command: str, dialect: Dialect) -> None:
    assert script(command).dialect == dialect


@pytest.mark.parametrize(
    "job",
    [
        'COMMAND="RUN" CONTAINER=x sbatch --nodes=2 ray.sub',  # docs/cluster.md of NeMo-RL
        'export COMMAND="cd /x && RUN\necho done"\nbash "$HOME/RL/ray.sub"',
    ],
)
def test_what_the_job_of_nemo_rl_runs_is_in_its_variable(job: str) -> None:
    run = "uv run examples/run_grpo.py --config x.yaml policy.megatron_cfg.context_parallel_size=4"
    launch = script(job.replace("RUN", run))
    assert launch.dialect == "nemo-rl" and value(launch, "cp") == 4


@pytest.mark.parametrize("job", ['COMMAND="RUN" sbatch other.sub', "COMMAND= sbatch ray.sub", "sbatch ray.sub"])
def test_no_other_job_runs_that_variable(job: str) -> None:
    with pytest.raises(HcpError, match="no training command"):
        script(job.replace("RUN", "uv run examples/run_grpo.py policy.megatron_cfg.context_parallel_size=4"))


@pytest.mark.parametrize(
    ("command", "method"),
    [
        ("megatron rlhf --model x", "dpo"),
        ("torchrun swift/cli/_megatron/rlhf.py --model x", "dpo"),
        ("megatron rlhf --model x --rlhf_type grpo", "grpo"),
        ("megatron sft --model x", None),
        ("megatron rlhf $MORE --model x", "unknown"),
        ("megatron rlhf --rlhf_type $TYPE --model x", "unknown"),
    ],
)
def test_ms_swifts_rlhf_is_dpo_unless_it_says_another_method(command: str, method: str | None) -> None:
    assert value(script(command), "rlhf_type") == method


@pytest.mark.parametrize(
    "command",
    ["megatron rlhf --use_ray true --config x.yaml", 'megatron sft --config "$HERE/x.yaml"', "megatron sft x.yaml"],
)
def test_a_file_of_arguments_leaves_ms_swifts_defaults_open(command: str) -> None:
    launch = script(command)
    assert value(launch, "cp") == "unknown" and value(launch, "rlhf_type") == "unknown"
    assert launch.reading.unseen is not None and "holds further arguments" in launch.reading.unseen


@pytest.mark.parametrize("gpus", ["many", "[1, 2]", "-1", "true"])
def test_a_number_of_gpus_in_rays_file_that_is_none_is_refused_in_a_line(gpus: str, tmp_path: Path) -> None:
    (tmp_path / "ray.yaml").write_text(f"context_parallel_size: 2\ntrain: {{gpus: {gpus}}}\n")
    job = tmp_path / "job.sh"
    job.write_text("megatron rlhf --use_ray true --config ray.yaml\n")
    with pytest.raises(HcpError, match=r"ray.yaml:2:15: train.gpus is .*; wanted"):
        build_launch(read_target(str(job)))


def test_slime_has_as_many_positions_as_tokens_unless_they_are_stated() -> None:
    slime = f"python train.py --actor-num-nodes 1 {SIZES}"
    assert value(script(slime), "max_position_embeddings") == 4096  # slime's own default of seq_length
    assert value(script(f"{slime} --seq-length 8192"), "max_position_embeddings") == 8192
    assert value(script(f"{slime} --max-position-embeddings 512"), "max_position_embeddings") == 512
    assert value(script(f"{slime} --max-position-embeddings $N"), "max_position_embeddings") == "unknown"


@pytest.mark.parametrize(
    ("words", "dialect"),
    [
        (["--num-layers", "4", "--actor-num-nodes", "2"], "slime"),
        (["policy.megatron_cfg.context_parallel_size=2"], "nemo-rl"),
    ],
)
def test_words_alone_tell_the_framework(words: list[str], dialect: Dialect) -> None:
    assert read_target("", words=words).dialect == dialect


def test_slimes_ranks_are_those_of_its_actors() -> None:
    launch = script(f"python train.py --actor-num-nodes 4 --actor-num-gpus-per-node 4 {SIZES}")
    assert value(launch, "world_size") == 16 and value(launch, "packing") == "online"
    assert value(script(f"python train.py --actor-num-nodes 4 {SIZES}"), "world_size") == 32  # 8 by default


@pytest.mark.parametrize(
    ("environment", "ranks", "start"),
    [
        # swift/cli/main.py get_torchrun_args: torchrun where one of the two is set.
        ("NPROC_PER_NODE=8 NNODES=2 ", 16, "torchrun"),
        ("NPROC_PER_NODE=8 ", 8, "torchrun"),
        ("NNODES=2 ", 2, "torchrun"),
        ("NPROC_PER_NODE=$GPUS ", "unknown", "torchrun"),
    ],
)
def test_ms_swifts_ranks_are_those_of_its_variables(environment: str, ranks: object, start: str) -> None:
    launch = script(f"{environment}megatron sft --model x")
    assert (value(launch, "world_size"), value(launch, "start")) == (ranks, start)


def test_ms_swifts_switches_have_values() -> None:
    launch = script("megatron sft --model x --sequence_parallel true --padding_free false --cp_comm_type a2a p2p")
    assert value(launch, "sequence_parallel") is True and value(launch, "packing") == "none"
    assert value(launch, "cp_comm_type") == ("a2a", "p2p")
    assert value(script("megatron sft --model x"), "packing") == "online"  # padding_free is its default


def test_an_unknown_value_hides_its_own_argument_alone() -> None:
    launch = script("megatron sft --model x --sequence_parallel $SP --context_parallel_size 2")
    assert value(launch, "sequence_parallel") == "unknown" and value(launch, "cp") == 2
    assert launch.reading.unseen is None


@pytest.mark.parametrize(
    ("extra", "layers"),
    [
        ("'{\"mtp_num_layers\": 2}'", 2),
        ("'{not json'", None),
        ("'[1]'", None),
    ],
)
def test_ms_swifts_further_fields_count_as_arguments(extra: str, layers: int | None) -> None:
    assert value(script(f"megatron sft --model x --megatron_extra_kwargs {extra}"), "mtp_layers") == layers


def test_a_yaml_of_ms_swift_is_read_with_its_variables() -> None:
    text = "model: m\ndataset: [a, b]\ncontext_parallel_size: 2\nENV: {NPROC_PER_NODE: 8}\n"
    launch = build_launch(read_text(text, "x.yaml"))
    assert (launch.dialect, value(launch, "cp"), value(launch, "world_size")) == ("ms-swift", 2, 8)


def test_a_yaml_that_a_command_names_hides_the_other_arguments() -> None:
    assert "x.yaml" in str(script("megatron sft x.yaml").reading.unseen)


def test_a_configuration_beside_the_script_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("policy: {megatron_cfg: {enabled: true, context_parallel_size: 4}}\n")
    job = tmp_path / "job.sh"
    job.write_text("uv run run_grpo.py --config c.yaml cluster.num_nodes=2 cluster.gpus_per_node=8\n")
    launch = build_launch(read_target(str(job)))
    assert (value(launch, "cp"), value(launch, "world_size"), launch.reading.unseen) == (4, 16, None)
    job.write_text("uv run run_grpo.py --config ../c.yaml cluster.num_nodes=2\n")
    launch = build_launch(read_target(str(job)))
    assert value(launch, "cluster_nodes") == 2 and "../c.yaml, the configuration, is not read" in str(
        launch.reading.unseen
    )


@pytest.mark.parametrize("forced", ["mlm", "bridge", "verl", "nemo-rl", "slime"])
def test_another_dialect_cannot_be_forced_on_a_framework(forced: Dialect) -> None:
    with pytest.raises(HcpError):
        read_text("#!/bin/bash\nmegatron sft --model x --context_parallel_size 2\n", "x.sh", dialect=forced)
    if forced != "nemo-rl":
        with pytest.raises(HcpError):
            read_text("policy: {megatron_cfg: {context_parallel_size: 2}}\n", "x.yaml", dialect=forced)


@pytest.mark.parametrize(
    "text", ["megatron", "megatron $X", "megatron sft", "megatron sft '' -- \"$@\"", "megatron ''"]
)
def test_a_command_without_arguments_is_no_fault_of_hcp(text: str) -> None:
    try:
        script(text)
    except HcpError as error:
        assert "\n" not in str(error)


PRINTED = 'LINE="$(python3 "$D/model_args_utils.py" "qwen3-8B")" || exit 1\nread -ra MODEL_ARGS <<< "$LINE"'
"""examples/lora/*.sh of miles, with its own variable's name shortened."""
MODEL_ARGS = [
    PRINTED,
    'MODEL_ARGS=($(python3 "$D/model_args_utils.py" "qwen3-8B"))',
    "mapfile -t MODEL_ARGS < <(python3 $D/model_args_utils.py qwen3-8B)",
    'source "../../scripts/models/qwen3-8B.sh"',
]
MILES = """
PERF_ARGS=(--tensor-model-parallel-size 2 --context-parallel-size 4 --max-tokens-per-gpu 9216 --use-dynamic-batch-size)
ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 ${MODEL_ARGS[@]} ${PERF_ARGS[@]}
"""


@pytest.mark.parametrize("set_as", MODEL_ARGS)
def test_options_out_of_a_program_that_prints_the_models_are_the_models(tmp_path: Path, set_as: str) -> None:
    """Whatever else the launch states or leaves at its default is known; the model's config.json settles the model."""
    launch = script(set_as + MILES)
    assert launch.reading.unseen is None
    assert (value(launch, "cp"), value(launch, "max_tokens_per_gpu"), value(launch, "pp")) == (4, 9216, 1)
    assert {"heads", "num_experts", "attention_variant", "allgather_cp"} <= launch.unknown.keys()
    (tmp_path / "config.json").write_text('{"num_attention_heads": 32, "hidden_size": 4096, "num_hidden_layers": 36}')
    told = build_launch(launch.reading, model=read_model(str(tmp_path)))
    assert (value(told, "heads"), value(told, "num_experts")) == (32, None)
    assert "heads" not in told.unknown and "allgather_cp" in told.unknown


def test_the_models_config_decides_a_launch_whose_models_options_are_not_read(tmp_path: Path) -> None:
    """--seq-length is in one file of scripts/models, glm4-32B: 32768. Either value goes with any size of CP in use."""
    (tmp_path / "config.json").write_text(
        '{"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 36}'
    )
    reading = script(PRINTED + MILES).reading
    open_ = check_launch(build_launch(reading), rules_for, fixes=False)
    assert open_.verdict == "undecided"
    assert open_.undecided[0].do == "give the model's config.json with --model"
    told = build_launch(reading, model=read_model(str(tmp_path)))
    assert check_launch(told, rules_for, fixes=False).undecided == ()
    odd = script(PRINTED + MILES.replace("parallel-size 4", "parallel-size 6")).reading
    assert check_launch(build_launch(odd, model=read_model(str(tmp_path))), rules_for, fixes=False).undecided


def test_a_size_that_the_launch_states_beside_the_models_options_is_known() -> None:
    launch = script(PRINTED + MILES.replace("--max-tokens", "--num-layers 4 --max-tokens"))
    assert value(launch, "num_layers") == 4


@pytest.mark.parametrize("other", ["${EXTRA_ARGS}", "$(cat more.txt)"])
def test_other_words_that_cannot_be_read_leave_everything_open(other: str) -> None:
    """Before the model's options or after them: the one reason doesn't hide the other."""
    for words in (f"${{MODEL_ARGS[@]}} {other}", f"{other} ${{MODEL_ARGS[@]}}"):
        launch = script(PRINTED + MILES.replace("${MODEL_ARGS[@]}", words))
        assert launch.reading.unseen is not None and "pp" not in launch.facts


def test_an_array_that_a_script_with_arrays_does_not_set_is_empty() -> None:
    """bash exports no arrays: slime's SFT scripts leave EVAL_ARGS out, whose place in the command stays."""
    words = "pretrain_gpt.py ${TRAIN_ARGS[@]} ${EVAL_ARGS[@]}"
    launch = script(f"TRAIN_ARGS=(--tensor-model-parallel-size 2)\ntorchrun {words}")
    assert launch.reading.unseen is None and value(launch, "tp") == 2
    alone = script(f"torchrun {words} --tensor-model-parallel-size 2")
    assert alone.reading.unseen == "EVAL_ARGS is not set in this script"
    maybe = script(f"source more.sh\nTRAIN_ARGS=(--tensor-model-parallel-size 2)\ntorchrun {words}")
    assert maybe.reading.unseen == "EVAL_ARGS may be set by more.sh, which line 2 sources"


def test_options_of_that_name_are_no_models_in_megatron_lms_own_scripts() -> None:
    """They hold whatever their author put there: examples/post_training/modelopt/conf of Megatron-LM."""
    launch = script('MODEL_ARGS=($(cat model.txt))\ntorchrun pretrain_gpt.py "${MODEL_ARGS[@]}" --sft')
    assert launch.reading.unseen is not None


@pytest.mark.parametrize(
    ("words", "cp"),
    [
        ("--context_parallel 4", 4),  # argparse takes the beginning of an argument's name
        ("--context 4", 1),  # which is that of its spelling with dashes too, so that argparse can't choose
        ("--context_parallel_size 4", 4),
    ],
)
def test_the_beginning_of_an_argument_of_ms_swift_stands_for_it(words: str, cp: int) -> None:
    assert value(script(f"NPROC_PER_NODE=8 megatron sft --model x {words}"), "cp") == cp


def test_a_started_file_that_runs_another_kind_of_ms_swift_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("swift rlhf --rlhf_type grpo --model x\n")
    (tmp_path / "job.sh").write_text("#!/bin/bash\nbash train.sh\n")
    with pytest.raises(HcpError, match="looks like an ms-swift launch of a kind that is not supported"):
        read_target(str(tmp_path / "job.sh"))
