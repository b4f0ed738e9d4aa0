"""Faults that a launch meets on its releases, by conditions that people read from upstream's commits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from megatron_hcp.backports.faults import _ABOUT_OPTIONS, EFFECTS, ReleaseFault, faults_of
from megatron_hcp.backports.lacking import lacking
from megatron_hcp.backports.table import Upstream, fixes_of, upstreams
from megatron_hcp.launch.dialects.known_keys import names_of
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import DIALECTS
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.known.condition import clauses_of

Hcp = Callable[..., "CompletedProcess[str]"]
ROWS = [(upstream, fault) for package, upstream in upstreams().items() for fault in faults_of(package)]
OPTIONS = frozenset[str]().union(*map(names_of, DIALECTS))
RULES = Path(__file__).parents[2] / "src" / "megatron_hcp" / "rules"
MXFP8 = "--fp8-format e4m3 --fp8-recipe mxfp8 --reuse-grad-buf-for-mxfp8-param-ag"
OVERLAP = "--overlap-moe-expert-parallel-comm --recompute-granularity selective --recompute-modules"
SAVE = "--save there --optimizer-cpu-offload"


def met(words: str, *assumes: str) -> dict[str, str]:
    """The effects of the faults that a launch of Megatron-LM meets, by number."""
    options = LoadOptions(dialect="mlm", words=("--num-layers", "4", *words.split()), assumes=assumes)
    return {
        fix.number: fault.effect for item in lacking(load_launch("", options)).lacking for fix, fault in item.faults
    }


@pytest.mark.parametrize(("upstream", "fault"), ROWS, ids=lambda value: getattr(value, "number", ""))
def test_a_row_is_about_a_fix_that_was_read_and_conditions_that_exist(upstream: Upstream, fault: ReleaseFault) -> None:
    assert fault.number in {fix.number for fix in fixes_of(upstream)}
    assert fault.effect in EFFECTS and fault.symptom and not fault.symptom.endswith(".")
    for clause in fault.when.split(" and "):
        match = _ABOUT_OPTIONS.fullmatch(clause)
        if match is not None:
            assert match[2] in OPTIONS
        elif clause != "adapters":
            assert all(part.name in FACTS for part in clauses_of(clause))


def test_what_a_rule_knows_is_no_row() -> None:
    text = "".join(path.read_text("utf-8") for path in RULES.rglob("*.py"))
    known = [
        fault.number for upstream, fault in ROWS if re.search(rf"{re.escape(upstream.repo)}#{fault.number}\b", text)
    ]
    assert known == []


@pytest.mark.parametrize(
    ("number", "effect", "words", "without", "release"),
    [
        ("4800", "silent", MXFP8, f"{MXFP8} --overlap-param-gather", "0.16.1"),  # unset
        ("3917", "silent", f"{OVERLAP} moe", f"{OVERLAP} moe_act", "0.16.1"),  # lists
        ("3754", "silent", "--use-megatron-fsdp --data-parallel-sharding-strategy no_shard", "", "0.15.3"),  # is
        ("2874", "crash", SAVE, "--save there", "0.15.3"),  # sets
        ("3159", "silent", "--mtp-num-layers 1 --calculate-per-token-loss", "--mtp-num-layers 1", "0.16.1"),
        ("5714", "crash", "--use-torch-fsdp2 --save there", "--use-torch-fsdp2", "0.18.2"),  # facts alone
    ],
)
def test_a_launch_meets_a_fault_whose_whole_condition_it_fulfils(
    number: str, effect: str, words: str, without: str, release: str
) -> None:
    assert met(words, f"mcore={release}").get(number) == effect
    assert number not in met(without, f"mcore={release}")


_JOB = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --calculate-per-token-loss"
_REPLAY = "actor_rollout_ref.actor.megatron.router_replay.mode=R2 actor_rollout_ref.model.path=Qwen/"


@pytest.mark.parametrize(
    ("number", "dialect", "reached", "healthy", "release"),
    [
        ("7340", "verl", f"{_REPLAY}Qwen3-VL-30B-A3B-Instruct", f"{_REPLAY}Qwen3-30B-A3B", "verl=0.8"),
        ("365", "slime", f"{_JOB} --custom-generate-function-path a.b", _JOB, "slime=0.1"),
        ("365", "slime", f"{_JOB} --rollout-function-path a.b", _JOB, "slime=0.1"),
        ("8325", "ms-swift", "--mtp_num_layers 2 --padding_free false", "--mtp_num_layers 2", "ms_swift=3.12"),
        (
            "1800",
            "bridge",
            "peft.dim=8 model.moe_shared_expert_overlap=true model.tensor_model_parallel_size=2",
            "peft.dim=8 model.moe_shared_expert_overlap=true model.tensor_model_parallel_size=1",
            "bridge=0.2.2",
        ),
        ("1762", "slime", f"{_JOB} --fp16 --no-check-for-nan-in-loss-and-grad", f"{_JOB} --fp16", "slime=0.2.1"),
        (
            "1762",
            "bridge",
            "peft.dim=8 model.recompute_granularity=full",
            "peft.dim=null model.recompute_granularity=full",
            "bridge=0.2.2",
        ),
        # In no release, or not as was read from the commit's title.
        (None, "slime", "", f"{_JOB} --advantage-estimator ppo", "slime=0.2.1"),
        (
            None,
            "mlm",
            "",
            "--num-layers 4 --pipeline-model-parallel-size 2 --fp16 --apply-query-key-layer-scaling",
            "mcore=0.12.3",
        ),
        (None, "ms-swift", "", "--model deepseek-ai/DeepSeek-V3", "ms_swift=4.0.2"),
    ],
)
def test_a_launch_that_a_fault_cannot_reach_is_not_told_of_it(
    number: str | None, dialect: Any, reached: str, healthy: str, release: str
) -> None:
    def numbers(words: str) -> set[str]:
        options = LoadOptions(dialect=dialect, words=tuple(words.split()), assumes=(release,))
        return {fix.number for item in lacking(load_launch("", options)).lacking for fix, _ in item.faults}

    if number is None:
        assert numbers(healthy) == set()
    else:
        assert number in numbers(reached) and number not in numbers(healthy)


@pytest.mark.parametrize(
    ("arch", "release", "is_met"), [("sm120", "2.16", True), ("sm90", "2.16", False), ("sm120", "2.18", False)]
)
def test_gradients_of_packed_rows_are_wrong_on_sm120(arch: str, release: str, is_met: bool) -> None:
    """NVIDIA/TransformerEngine#3333, fixed by #3186."""
    assert ("3186" in met("--sft --micro-batch-size 1", f"arch={arch}", f"te={release}")) is is_met


def test_a_release_with_the_fix_has_no_fault() -> None:
    assert "2874" in met(SAVE, "mcore=0.15.3") and "2874" not in met(SAVE, "mcore=0.16.0")


def test_what_nobody_sees_comes_first_and_a_fault_with_two_conditions_once() -> None:
    effects = list(met(f"{MXFP8} --overlap-param-gather {SAVE} --use-torch-fsdp2", "mcore=0.15.3").values())
    assert effects == sorted(effects, key=EFFECTS.index) and {"silent", "crash"} <= set(effects)
    graphs = "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 --enable-cuda-graph"
    options = LoadOptions(dialect="mlm", words=("--num-layers", "4", *graphs.split()), assumes=("mcore=0.13.1",))
    (item,) = lacking(load_launch("", options)).lacking
    assert [fix.number for fix, _ in item.faults].count("71395182cd") == 1


def test_a_check_names_the_fault_the_release_that_mends_it_and_where_and_keeps_its_verdict(hcp: Hcp) -> None:
    words = ("--", "--num-layers", "4", *SAVE.split())
    run = hcp("check", "--assume", "mcore=0.15.3", *words)
    (line,) = (line for line in run.stdout.splitlines() if "NVIDIA/Megatron-LM#2874" in line)
    assert line.startswith("note: crash in megatron-core 0.15.3, fixed in 0.16.0: ")
    data = json.loads(hcp("check", "--assume", "mcore=0.15.3", "--format", "json", *words).stdout)
    (fault,) = (one for one in data["faults"] if one["reference"] == "NVIDIA/Megatron-LM#2874")
    assert (fault["package"], fault["release"], fault["fixed_in"], fault["effect"]) == (
        "mcore",
        "0.15.3",
        "0.16.0",
        "crash",
    )
    assert data["verdict"] == json.loads(hcp("check", "--format", "json", *words).stdout)["verdict"]
    assert "faults" not in json.loads(hcp("check", "--assume", "mcore=0.19.0", "--format", "json", *words).stdout)


def test_a_recipe_of_adapters_meets_their_faults() -> None:
    def met_by(recipe: str) -> set[str]:
        options = LoadOptions(recipe=recipe, words=("model.recompute_granularity=full",), assumes=("bridge=0.2.2",))
        return {fix.number for item in lacking(load_launch("", options)).lacking for fix, _ in item.faults}

    assert "1762" in met_by("qwen3_8b_peft_config") and "1762" not in met_by("qwen3_8b_sft_config")
