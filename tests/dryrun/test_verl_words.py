"""What hcp's program for verl gets: the launch's own overrides, without data, rewards and the rollout engine's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.dryrun.verl_words import verl_words
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from support.rows import rows

MEGATRON = "actor_rollout_ref.actor.strategy=megatron"
USUAL = ("verl/trainer/config", "ppo_trainer")
RATE = "actor_rollout_ref.actor.optim.lr"


def launch(*words: str) -> Launch:
    return load_launch("", LoadOptions(dialect="verl", words=(MEGATRON, *words)))


@rows("word, what", [
    ("data.train_files=/data/a.parquet", "data"),
    ("trainer.default_local_dir=/out", "the trainer, rewards and other models"),
    ("actor_rollout_ref.actor.megatron.dist_checkpointing_path=/a", "checkpoint"),
    ("actor_rollout_ref.model.trust_remote_code=true", "code of others"),
    ("actor_rollout_ref.actor.profiler.enable=true", "profiles"),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=8", "rollout engine"),
    ("actor_rollout_ref.rollout.nnodes=2", "rollout engine"),
])  # fmt: skip
def test_a_word_that_the_actor_does_not_read_is_left_out_and_listed(word: str, what: str) -> None:
    told = verl_words(launch(word))
    assert [(row.what, row.was, row.now) for row in told.replaced] == [(what, (word,), ())]
    assert told.words == (*USUAL, MEGATRON)


@rows("word", [
    "actor_rollout_ref.rollout.n=5",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    "+actor_rollout_ref.actor.megatron.override_transformer_config.moe_grouped_gemm=true",
])  # fmt: skip
def test_a_word_that_the_actor_reads_stays_as_it_is(word: str) -> None:
    assert verl_words(launch(word)).words == (*USUAL, MEGATRON, word)


FLASH = "+actor_rollout_ref.actor.megatron.override_transformer_config.use_flash_attn=true"


@rows("asks, is_ascends", [
    ({"words": ("trainer.device=npu",)}, True),
    ({"assumes": ("env.HCCL_CONNECT_TIMEOUT=1500",)}, True),
    ({"words": ("trainer.device=cuda",)}, False),
    ({}, False),
])  # fmt: skip
def test_mindspeeds_options_are_left_out_of_a_launch_for_ascends_devices_alone(
    asks: dict[str, Any], is_ascends: bool
) -> None:
    words = (MEGATRON, *asks.get("words", ()), FLASH)
    told = verl_words(load_launch("", LoadOptions(dialect="verl", words=words, assumes=asks.get("assumes", ()))))
    assert (FLASH in told.words) is not is_ascends
    assert [row.was for row in told.replaced if row.what == "MindSpeed"] == ([(FLASH,)] if is_ascends else [])


def test_which_of_two_workers_is_run_is_the_launchs_word() -> None:
    word = "trainer.use_legacy_worker_impl=disable"
    assert word in verl_words(launch(word)).words


@rows("value, written", [
    ("/models/a", "/models/a"),
    ("a b", "'a b'"),
    ("it's", "'it\\'s'"),
    ("'1'", "'1'"),
    ("'true'", "'true'"),
    ("'a b\\c'", "'a b\\c'"),
    ("'a b\\\\'", "'a b\\\\'"),
    ("'it\\\\\\'s'", "'it\\\\\\'s'"),
])  # fmt: skip
def test_a_text_that_hydra_would_read_otherwise_is_quoted(value: str, written: str) -> None:
    key = "actor_rollout_ref.model.path"
    assert verl_words(launch(f"{key}={value}")).words[-1] == f"{key}={written}"


@rows("own, after", [(["~KEY"], []), (["KEY=1", "~KEY=1"], []), (["KEY=1"], ["~KEY"]), (None, ["~KEY"])])
def test_a_word_that_removes_a_key_is_refused_wherever_it_stands(
    tmp_path: Path, own: list[str] | None, after: list[str]
) -> None:
    target, words = "", [MEGATRON, *after]
    if own is not None:
        target, words = str(tmp_path / "run.sh"), after
        Path(target).write_text(f"python3 -m verl.trainer.main_ppo {MEGATRON} {' '.join(own)}\n".replace("KEY", RATE))
    named = tuple(word.replace("KEY", RATE) for word in words)
    with pytest.raises(HcpError, match=re.escape(f"found ~{RATE};")):
        verl_words(load_launch(target, LoadOptions(dialect="verl", words=named)))


def test_a_word_that_removes_what_the_actor_does_not_read_is_left_out() -> None:
    assert verl_words(launch("~trainer.logger")).words == (*USUAL, MEGATRON)


def started(tmp_path: Path, program: str, *words: str) -> Launch:
    path = tmp_path / "run.sh"
    path.write_text(f"{program} {' '.join(words)}\n", encoding="utf-8")
    return load_launch(str(path), LoadOptions())


ASYNC = "verl.experimental.fully_async_policy.fully_async_main"


@rows("program, words, first", [
    ("python3 -m verl.trainer.main_ppo", "", USUAL),
    ("python3 -m verl.trainer.main_ppo", "--config-path=config --config-name=ppo_megatron_trainer.yaml",
     ("verl/trainer/config", "ppo_megatron_trainer.yaml")),
    ("python3 verl/trainer/main_ppo.py", "", USUAL),
    ("python3 /workspace/verl/verl/trainer/main_ppo.py", "", USUAL),
    ("python3 verl/../../elsewhere/main_ppo.py", "", USUAL),
    (f"python3 -m {ASYNC}", "--config-name=fully_async_ppo_megatron_trainer",
     ("verl/experimental/fully_async_policy/config", "fully_async_ppo_megatron_trainer")),
])  # fmt: skip
def test_the_configurations_folder_and_name_come_first(
    tmp_path: Path, program: str, words: str, first: tuple[str, ...]
) -> None:
    told = verl_words(started(tmp_path, program, MEGATRON, words))
    assert told.words[:2] == first and not [word for word in told.words if word.startswith("--")]


@rows("path, name", [
    ("$HOME/models/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
    ("/nowhere/Qwen3-30B-A3B-Base", "Qwen/Qwen3-30B-A3B-Base"),
    ("~/nowhere/Qwen2.5-Math-7B/", "Qwen/Qwen2.5-Math-7B"),
    ("Qwen3-8B", "Qwen/Qwen3-8B"),
    ("hdfs://nowhere/Qwen3-8B", "Qwen/Qwen3-8B"),
])  # fmt: skip
def test_a_public_model_stands_for_one_in_a_folder_of_its_name_that_is_not_here(
    tmp_path: Path, path: str, name: str
) -> None:
    key = "actor_rollout_ref.model.path"
    told = verl_words(started(tmp_path, "python3 -m verl.trainer.main_ppo", MEGATRON, f"{key}={path}"))
    assert told.words[-1] == f"{key}={name}" and not told.is_model_stated
    assert [row.was for row in told.replaced] == [(f"{key}={path.replace('$HOME', '${HOME}')}",)]


def test_a_models_folder_that_is_here_and_a_name_of_the_hub_stay(tmp_path: Path) -> None:
    (folder := tmp_path / "Qwen3-8B").mkdir()
    for path in (str(folder), "Qwen/Qwen3-8B", "/models/mine"):
        told = verl_words(launch(f"actor_rollout_ref.model.path={path}"))
        assert told.words[-1].endswith(f"={path}") and told.is_model_stated


def test_a_folder_of_no_public_models_name_is_asked_for(tmp_path: Path) -> None:
    path = "actor_rollout_ref.model.path=$HOME/models/mine"
    with pytest.raises(HcpError, match="not known"):
        verl_words(started(tmp_path, "python3 -m verl.trainer.main_ppo", MEGATRON, path))


def test_the_model_of_the_sft_trainer_keeps_its_own_words(tmp_path: Path) -> None:
    own = ("engine=megatron", "optim=megatron", "data.max_length=1024", "engine.tensor_model_parallel_size=2")
    left = (
        "data.train_files=/a",
        "model.trust_remote_code=true",
        "trainer.total_epochs=1",
        "checkpoint.save_contents=[]",
    )
    told = verl_words(
        started(tmp_path, "torchrun -m verl.trainer.sft_trainer", *own, "model.path=Qwen/Qwen3-8B", *left)
    )
    assert told.words == ("verl/trainer/config", "sft_trainer_engine", *own, "model.path=Qwen/Qwen3-8B")


def test_a_launch_without_an_actor_of_megatrons_is_refused() -> None:
    with pytest.raises(HcpError, match="verl's"):
        verl_words(load_launch("", LoadOptions(dialect="verl", words=("actor_rollout_ref.actor.strategy=fsdp",))))


def test_an_actors_word_that_is_not_known_is_asked_for_and_a_rollout_engines_is_not(tmp_path: object) -> None:
    def read(key: str) -> Launch:
        path = f"{tmp_path}/run.sh"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"python3 -m verl.trainer.main_ppo {MEGATRON} {key}=$HIDDEN\n")
        return load_launch(path, LoadOptions())

    verl_words(read("actor_rollout_ref.rollout.gpu_memory_utilization"))
    with pytest.raises(HcpError, match="not known"):
        verl_words(read("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"))
