"""Hide and see: how settings are hidden, which values count, and that no hidden fault is `ok` in a dozen launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import complete_launches
import hidden_launches
import hide
import legal_values
import pytest

from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.readers.target import read_text

SCRIPT = """#!/bin/bash
#SBATCH --nodes=1
srun python pretrain_gpt.py --num-layers 2 --seq-length 64 \\
    --context-parallel-size "2" --sequence-parallel
"""
CONTAINER = """
_target_: megatron.bridge.training.config.ConfigContainer
model: {context_parallel_size: 4, seq_length: 64}
dataset: {seq_length: 64}
"""
VERL = "python3 -m verl.trainer.main_ppo '+actor_rollout_ref.actor.megatron.context_parallel_size=2'\n"


class Bench:
    """The modules of lab/hide.py."""

    launches: Any = complete_launches
    hidden: Any = hidden_launches
    hide: Any = hide
    values: Any = legal_values

    def of(self, text: str, name: str) -> Any:
        kind = self.hidden.Yaml if name.endswith(".yaml") else self.hidden.Script
        return kind(name, text, read_text(text, name), "te=2.14")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def hidings(launch: Any, fact: str) -> dict[str, str]:
    return {hidden.way: hidden.text or " ".join(hidden.words) for hidden in launch.hidings(fact)}


def test_a_value_of_a_script_is_hidden_in_five_ways(bench: Bench) -> None:
    texts = hidings(bench.of(SCRIPT, "run.sh"), "cp")
    assert texts["unset"] == SCRIPT.replace('"2"', "$HIDDEN_VALUE")
    assert texts["command"] == SCRIPT.replace('"2"', "$(cat value.txt)")
    assert texts["flags"] == SCRIPT.replace('--context-parallel-size "2"', "$HIDDEN_FLAGS")
    assert texts["sourced"] == texts["unset"].replace("srun", 'source "models/hidden.sh"\nsrun')
    assert texts["sourced flags"] == texts["flags"].replace("srun", 'source "models/hidden.sh"\nsrun')


def test_a_flag_without_a_value_is_hidden_as_a_whole(bench: Bench) -> None:
    texts = hidings(bench.of(SCRIPT, "run.sh"), "sequence_parallel")
    assert texts["unset"] == SCRIPT.replace("--sequence-parallel", "$HIDDEN_VALUE")


def test_an_override_in_a_script_keeps_its_key_and_its_sign(bench: Bench) -> None:
    texts = hidings(bench.of(VERL, "run.sh"), "cp")
    key = "actor_rollout_ref.actor.megatron.context_parallel_size"
    assert texts["unset"] == f"python3 -m verl.trainer.main_ppo +{key}=$HIDDEN_VALUE\n"


def test_a_container_leaves_a_key_to_the_environment_or_to_a_recipe_that_nobody_names(bench: Bench) -> None:
    texts = hidings(bench.of(CONTAINER, "run.yaml"), "cp")
    assert "context_parallel_size: ${oc.env:HIDDEN_VALUE}" in texts["oc.env"] and "_target_" in texts["oc.env"]
    assert "context_parallel_size" not in texts["recipe"] and "_target_" not in texts["recipe"]
    assert texts["overrides"] == "model.seq_length=64 dataset.seq_length=64"
    both = hidings(bench.of(CONTAINER, "run.yaml"), "seq_length")
    assert both["overrides"] == "model.context_parallel_size=4"  # Bridge wants the two lengths equal


def test_a_launch_with_a_setting_that_cannot_be_read_is_not_complete(bench: Bench) -> None:
    whole = read_text(SCRIPT, "run.sh")
    hidden = read_text(SCRIPT.replace('"2"', "$CP"), "run.sh")
    kept = [next(bench.launches._complete("run.sh", reading, ""), None) for reading in (whole, hidden)]
    assert kept[0] is not None and kept[1] is None


@pytest.mark.parametrize(
    ("fact", "value", "some"),
    [
        ("cp", 6, [6, 5, 7, 12, 3, 1_000_003]),
        ("sequence_parallel", True, [True, False]),
        ("cp_comm_type", "p2p", ["p2p", "a2a", "all_gather", "a2a+p2p"]),
        ("hcp_sizes", (4, 2), [[4, 2], [2, 4]]),
        ("softmax_type", "vanilla", ["vanilla", "learnable"]),
    ],
)
def test_the_values_of_a_setting_are_its_own_and_others_of_its_kind(
    bench: Bench, fact: str, value: Any, some: list[Any]
) -> None:
    values = bench.values.legal_values(FACTS[fact], value)
    assert values[0] == some[0] and values[-1] is bench.values.ABSENT
    assert all(item in values for item in some)


@pytest.mark.slow
def test_a_value_with_which_the_launch_fails_is_found(bench: Bench, tmp_path: Path) -> None:
    play = bench.hide.Play(bench.hide.Checker(tmp_path))
    launch = bench.of(SCRIPT, "run.sh")
    value, rules = play._fault(launch, "cp", False)
    assert "CP001" in rules and 64 % (2 * value)
    assert play._fault(launch, "num_layers", False) is None
    play.launch(launch)
    assert play.bases == {("mlm", "ok"): 1}


@pytest.mark.slow
def test_no_launch_is_ok_while_a_value_of_what_it_hides_fails(bench: Bench, root: Path) -> None:
    wanted = {"CP001", "CP007", "HCP001", "HCP007", "LOSS001", "PACK002", "CP009", "DCP013"}
    launches = [
        launch
        for launch in bench.launches.complete_launches([], bench.hide.VERSIONS)
        if launch.name.startswith("examples/") or launch.name.partition(".")[0] in wanted
    ]
    assert len(launches) >= 10
    done = bench.hide.play(launches)
    assert list(map(str, [*done.violations, *done.alarms])) == []
    assert not done.undecided
    assert sum(done.answers.values()) > 100


@pytest.mark.slow
def test_a_script_with_a_refused_value_is_no_launch_to_hide_settings_of(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sound.sh").write_text(SCRIPT)
    (tmp_path / "unquoted.sh").write_text(SCRIPT.replace("--seq-length 64", "--seq-length 64 128"))
    names = {launch.name for launch in bench.launches.complete_launches([tmp_path], "te=2.14")}
    assert f"{tmp_path.name}/sound.sh" in names
    assert f"{tmp_path.name}/unquoted.sh" not in names
