"""Random verl override lists for its PPO trainer with megatron, and our verdict on them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.process import Upstream, commit_of
from agree.settings_drawn import Space, drawn_settings
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.framework_roots import VERL
from megatron_hcp.validators.reader.checkout import texts_of, units_of

_ACTOR, _REF, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "actor_rollout_ref.rollout"
_MICRO = (None, 1, 1, 2, 4)
_OLD = (None, None, None, None, None, 8)
SPACE: dict[str, Sequence[Any]] = {
    "trainer.nnodes": (1, 2, 3),
    "trainer.n_gpus_per_node": (8, 8, 4),
    "data.train_batch_size": (1024, 256, 128, 96),
    f"{_ROLLOUT}.n": (1, 4, 5),
    f"{_ACTOR}.use_dynamic_bsz": (False, False, True),
    f"{_ACTOR}.ppo_mini_batch_size": (256, 64, 512),
    f"{_ACTOR}.ppo_micro_batch_size": _OLD,
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": _MICRO,
    f"{_ROLLOUT}.log_prob_micro_batch_size": _OLD,
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": _MICRO,
    f"{_REF}.log_prob_micro_batch_size": _OLD,
    f"{_REF}.log_prob_micro_batch_size_per_gpu": _MICRO,
    f"{_ACTOR}.use_kl_loss": (False, True),
    "algorithm.use_kl_in_reward": (False, False, True),
    "algorithm.adv_estimator": ("grpo", "grpo", "gae"),
    "critic.enable": (None, None, False, True),
    "critic.use_dynamic_bsz": (False, True),
    "critic.ppo_mini_batch_size": (64, 256, 512),
    "critic.ppo_micro_batch_size": _OLD,
    "critic.ppo_micro_batch_size_per_gpu": _MICRO,
    f"{_ACTOR}.megatron.tensor_model_parallel_size": (1, 2, 4, 3),
    f"{_ACTOR}.megatron.pipeline_model_parallel_size": (1, 1, 2),
    f"{_ACTOR}.megatron.virtual_pipeline_model_parallel_size": (None, None, 2),
    f"{_ACTOR}.megatron.context_parallel_size": (1, 2, 4, 3),
    f"{_ACTOR}.megatron.dynamic_context_parallel": (False, False, True),
    f"{_ACTOR}.megatron.max_seqlen_per_dp_cp_rank": (None, 4096, 4096, 0),
    f"{_ACTOR}.megatron.sequence_parallel": (True, False),
    f"{_ACTOR}.megatron.router_replay.mode": ("disabled", "disabled", "R2", "R4"),
    f"{_ACTOR}.megatron.pad_to_length": (False, False, True),
    "actor_rollout_ref.model.use_remove_padding": (True, True, False),
}
"""Keys, and the values that are drawn; each is written in two launches of five."""


def overrides(count: int, seed: int, more: Space) -> Iterator[list[str]]:
    """Random override lists. A megatron actor is chosen in each; every second one has some of `more` settings."""
    rng = random.Random(seed)
    for number in range(count):
        # Either most keys are absent, or a sound launch has a few of them changed; what upstream calls mandatory stays.
        settings: dict[str, Any] = {_ENGINE: "vllm"} if rng.random() < 0.3 else dict(_SOUND)
        share = rng.choice((0.1, 0.2, 0.4))
        settings |= {key: rng.choice(values) for key, values in SPACE.items() if rng.random() < share}
        if number % 2:
            settings |= {key: rng.choice(more[key]) for key in rng.sample(sorted(more), rng.randint(1, _MOST))}
        yield [
            "model_engine=megatron",
            *(f"{key}={'null' if value is None else value}" for key, value in settings.items()),
        ]


_MOST = 6
_SECTIONS = ("actor_rollout_ref.", "critic.", "data.", "trainer.", "algorithm.")
_ENGINE = f"{_ROLLOUT}.name"
_SOUND = {
    _ENGINE: "vllm",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": 1,
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": 1,
    f"{_REF}.log_prob_micro_batch_size_per_gpu": 1,
    "critic.ppo_micro_batch_size_per_gpu": 1,
}


def launch_of(words: Sequence[str], versions: Mapping[str, str]) -> Launch:
    """Our reading of an override list."""
    assumed = {name: Fact(value, "assumed") for name, value in versions.items()}
    return build_launch(reading_of_words("verl", [Word(word) for word in words], "-"), assumed=assumed)


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random override lists of verl's PPO trainer; a checkout or an unpacked wheel."""
    upstream = Upstream("verl_upstream.py", str(checkout))
    version = upstream.ready["version"]
    # Dynamic CP asks for megatron-core's dev branch, which no release has.
    versions = {"verl": Version(version).base_version, "mcore": "0.19.0", "mcore_branch": "dev"}
    tally = Tally(TABLES)
    space = drawn_settings(units_of(texts_of(str(checkout), VERL), VERL), _SECTIONS)
    more = {key: values for key, values in space.items() if not key.endswith(".strategy")}  # another one isn't judged
    for words in overrides(commands, seed, more):
        answer = upstream.ask({"overrides": words})["refusal"]
        try:
            report = check_launch(launch_of(words, versions), rules_for, fixes=False)
        except HcpError:  # a value that is no size: hcp stops there
            tally.counts["not read"] += 1
            continue
        tally.add(" ".join(words), Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    return Result("verl", version, commit_of(checkout), {"configurations": commands, "seed": seed}, tally)


_WORKER = "raised by the worker that builds the engine; validate_config does not look"
TABLES = Tables(
    owners=(
        (r"unsupported operand type\(s\) for \*|ppo_micro_batch_size|critic\.micro_batch_size", ("VERL001",)),
        (r"log_prob_micro_batch_size", ("VERL002",)),
        (r"minimal possible batch size", ("VERL003",)),
        (r"ppo_mini_batch_size", ("VERL004",)),
        (r"n_gpus \(\d+\) must be divisible by model_parallel_size", ("TOPO003",)),
        (r"max_seqlen_per_dp_cp_rank must be a positive integer", ("DCP005",)),
    ),
    unrelated=((r"Invalid router_replay mode", "a value, not a relation"),),
    beyond=dict.fromkeys(("TOPO003", "DCP018", "DCP020", "DCP021", "DCP024", "DCP027", "PIPE004"), _WORKER),
)
