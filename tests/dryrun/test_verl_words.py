"""What hcp's program for verl gets: the launch's own overrides, without data, rewards and the rollout engine's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megatron_hcp.dryrun.verl_words import verl_words
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from support.rows import rows

MEGATRON = "actor_rollout_ref.actor.strategy=megatron"
RATE = "actor_rollout_ref.actor.optim.lr"


def launch(*words: str) -> Launch:
    return load_launch("", LoadOptions(dialect="verl", words=(MEGATRON, *words)))


@rows("word, what", [
    ("data.train_files=/data/a.parquet", "data"),
    ("trainer.default_local_dir=/out", "the trainer, rewards and other models"),
    ("actor_rollout_ref.actor.megatron.dist_checkpointing_path=/a", "checkpoint"),
    ("actor_rollout_ref.model.trust_remote_code=true", "code of others"),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=8", "rollout engine"),
    ("actor_rollout_ref.rollout.nnodes=2", "rollout engine"),
])  # fmt: skip
def test_a_word_that_the_actor_does_not_read_is_left_out_and_listed(word: str, what: str) -> None:
    told = verl_words(launch(word))
    assert [(row.what, row.was, row.now) for row in told.replaced] == [(what, (word,), ())]
    assert told.words == ("ppo_trainer", MEGATRON)


@rows("word", [
    "actor_rollout_ref.rollout.n=5",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
    "+actor_rollout_ref.actor.megatron.override_transformer_config.moe_grouped_gemm=true",
])  # fmt: skip
def test_a_word_that_the_actor_reads_stays_as_it_is(word: str) -> None:
    assert verl_words(launch(word)).words == ("ppo_trainer", MEGATRON, word)


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
    assert verl_words(launch("~trainer.logger")).words == ("ppo_trainer", MEGATRON)


def test_the_configurations_name_comes_first() -> None:
    assert verl_words(launch("--config-name=ppo_megatron_trainer")).words[0] == "ppo_megatron_trainer"


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
