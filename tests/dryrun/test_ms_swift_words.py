"""What hcp's program for ms-swift gets: the command and the launch's own arguments, without data, hubs and loggers."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.dryrun.ask import HowToRun, request_of
from megatron_hcp.dryrun.ms_swift_words import ms_swift_words
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch, UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch
from support.rows import rows

MODEL = "--model Qwen/Qwen3-8B"


def launch(tmp_path: Path, command: str) -> Launch:
    path = tmp_path / "run.sh"
    path.write_text(f"NPROC_PER_NODE=8 {command}\n", encoding="utf-8")
    return load_launch(str(path), LoadOptions())


@rows("command", ["sft", "pt", "rlhf"])
def test_the_commands_name_comes_first_and_then_the_launchs_own_arguments(tmp_path: Path, command: str) -> None:
    own = f"{MODEL} --tensor_model_parallel_size 2 --target_modules q_proj k_proj --sequence_parallel true"
    words = ms_swift_words(launch(tmp_path, f"megatron {command} {own}")).words
    assert words[0] == command
    assert words[1 : 1 + len(own.split())] == tuple(own.split())


@rows("word, what", [
    ("--dataset /data/a.jsonl#500", "data"),
    ("--val_dataset /data/a.jsonl", "data"),
    ("--system /prompts/a.txt", "template"),
    ("--output_dir /out", "folders"),
    ("--mcore_model /checkpoints/a", "checkpoint"),
    ("--report_to wandb", "logs"),
    ("--external_plugins /code/plugin.py", "code of others"),
    ("--hub_token secret/token", "hub"),
])  # fmt: skip
def test_an_argument_that_names_a_file_a_hub_or_code_is_replaced_and_listed(
    tmp_path: Path, word: str, what: str
) -> None:
    told = ms_swift_words(launch(tmp_path, f"megatron sft {MODEL} {word}"))
    (row,) = [row for row in told.replaced if row.was]
    assert (row.what, row.was) == (what, tuple(word.split()))
    assert [word for word in told.words if "/" in word] == ["Qwen/Qwen3-8B"]


@rows("plugin, is_known", [
    ("", True),
    ("--external_plugins /code/plugin.py", False),
    ("--custom_register_path /code/plugin.py", False),
])  # fmt: skip
def test_what_a_plugin_may_register_decides_nothing_where_it_is_left_out(
    tmp_path: Path, plugin: str, is_known: bool
) -> None:
    own = "--model_type my_model --template my_template --reward_funcs one two --tensor_model_parallel_size 2"
    told = ms_swift_words(launch(tmp_path, f"megatron sft {MODEL} {own} {plugin}"))
    names = {"model_type", "my_model", "my_template", "one", "two"}
    assert set(told.not_known) == (set() if is_known else names)
    assert {"my_model", "my_template"} <= set(told.words)


def test_what_a_reading_takes_from_the_extra_arguments_is_said_once(tmp_path: Path) -> None:
    extra = """--megatron_extra_kwargs '{"moe_shared_expert_overlap": true}'"""
    words = ms_swift_words(launch(tmp_path, f"megatron sft {MODEL} {extra}")).words
    assert "--megatron_extra_kwargs" in words and "--moe_shared_expert_overlap" not in words


@rows("text", ["{", "[1]", '["model"]'])
def test_extra_arguments_that_are_no_mapping_are_upstreams_to_refuse(tmp_path: Path, text: str) -> None:
    words = ms_swift_words(launch(tmp_path, f"megatron sft {MODEL} --megatron_extra_kwargs '{text}'")).words
    assert words[words.index("--megatron_extra_kwargs") + 1] == text


@rows("command, found", [
    ("megatron sft --dataset a --tensor_model_parallel_size 2", "--model"),
    (f"megatron sft {MODEL} --adapters /a", "--adapters"),
    (f"megatron sft {MODEL} --new_special_tokens '<a>' '<b>'", "--new_special_tokens"),
    (f"megatron sft {MODEL} --local_repo_path /code", "--local_repo_path"),
    (f'megatron sft {MODEL} --max_length "$(cat a)"', "--max_length"),
])  # fmt: skip
def test_a_launch_that_does_not_say_what_is_trained_is_refused(tmp_path: Path, command: str, found: str) -> None:
    with pytest.raises(HcpError, match=found):
        ms_swift_words(launch(tmp_path, command))


@rows("start", [
    "torchrun --nproc_per_node $(nproc) --nnodes $NODES --master_port $PORT",
    "srun --ntasks-per-node $TASKS --nodes $NODES python",
])  # fmt: skip
def test_what_is_not_known_of_the_launchers_own_options_is_no_argument(tmp_path: Path, start: str) -> None:
    known = launch(tmp_path, f"{start} swift/cli/_megatron/sft.py {MODEL} --tensor_model_parallel_size 2")
    assert ms_swift_words(known).words[:3] == ("sft", *MODEL.split())


@rows("asked, until", [("", "optimizer"), ("model", "model"), ("backward", "backward")])
def test_the_last_stage_is_the_optimizer_unless_another_one_is_asked_for(
    tmp_path: Path, asked: str, until: str
) -> None:
    for part in ("swift/megatron", "megatron/core"):
        (tmp_path / part).mkdir(parents=True, exist_ok=True)
    trees = tuple(UpstreamTree(repo, str(tmp_path), None) for repo in ("ms-swift", "megatron-lm"))
    (tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=8 megatron sft {MODEL} --tensor_model_parallel_size 2\n")
    known = load_launch(str(tmp_path / "run.sh"), LoadOptions(upstream=trees))
    assert request_of(known, HowToRun(until=asked))["until"] == until


def test_words_without_a_command_are_refused() -> None:
    words = ("--model", "Qwen/Qwen3-8B", "--tensor_model_parallel_size", "2")
    with pytest.raises(HcpError, match="no command"):
        ms_swift_words(load_launch("", LoadOptions(dialect="ms-swift", words=words)))


ARGUMENTS = """
ENV: {PYTORCH_CUDA_ALLOC_CONF: "expandable_segments:True", NPROC_PER_NODE: 2}
model: Qwen/Qwen3-8B
tensor_model_parallel_size: 2
moe_aux_loss_coeff: 1e-6
target_modules: [q_proj, k_proj]
model_kwargs: {FPS: 2}
"""
RAY = """
model: Qwen/Qwen3-8B
max_length: 8192
colocate_groups: [[train, rollout]]
seed: null
train:
  gpus: 4
  tensor_model_parallel_size: 2
rollout:
  gpus: 4
  vllm_tensor_parallel_size: 2
"""


@rows("command, text, wanted, ranks", [
    ("megatron sft args.yaml --tensor_model_parallel_size 4", ARGUMENTS,
     "sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 2 --moe_aux_loss_coeff 1e-6 "
     "--target_modules q_proj k_proj "
     '--model_kwargs {"FPS": 2} --tensor_model_parallel_size 4', 8),
    ("megatron rlhf --use_ray true --config $(dirname $0)/args.yaml --max_length 1", RAY,
     "rlhf --model Qwen/Qwen3-8B --max_length 8192 --tensor_model_parallel_size 2", 4),
    ("megatron rlhf --use_ray --config args.yaml", RAY,
     "rlhf --model Qwen/Qwen3-8B --max_length 8192 --tensor_model_parallel_size 2", 4),
])  # fmt: skip
def test_a_file_of_arguments_is_read_as_ms_swift_does(
    tmp_path: Path, command: str, text: str, wanted: str, ranks: int
) -> None:
    (tmp_path / "args.yaml").write_text(text, encoding="utf-8")
    read = launch(tmp_path, command)  # with a variable that wins over the file's
    assert " ".join(ms_swift_words(read).words).startswith(f"{wanted} --")
    assert read.facts["world_size"].value == ranks and not read.reading.unseen
    assert ("env.PYTORCH_CUDA_ALLOC_CONF" in read.facts) == (text is ARGUMENTS)


@rows(
    "command",
    [
        "megatron sft missing.yaml",
        "megatron sft --config args.yaml",
        "megatron rlhf --use_ray false --config args.yaml",
        "megatron rlhf --use_ray --config $WHICH",
    ],
)
def test_a_file_that_is_not_read_leaves_arguments_open(tmp_path: Path, command: str) -> None:
    (tmp_path / "args.yaml").write_text(RAY, encoding="utf-8")
    with pytest.raises(HcpError, match="holds further arguments and is not read"):
        ms_swift_words(launch(tmp_path, f"{command} {MODEL}"))
