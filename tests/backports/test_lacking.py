"""Which fixes a launch's releases lack: cases that upstream's own history states."""

from __future__ import annotations

import pytest

from megatron_hcp.backports.lacking import Lacking, lacking
from megatron_hcp.backports.table import fixes_of
from megatron_hcp.launch.load import LoadOptions, load_launch

RECOMPUTE = "--recompute-granularity full --recompute-method uniform"
MTP = f"--num-layers 4 --seq-length 4096 --mtp-num-layers 1 --sft {RECOMPUTE}"
MOE = "--num-layers 4 --num-experts 8 --moe-router-load-balancing-type aux_loss --mtp-num-layers 1"


def found(options: LoadOptions) -> dict[str, Lacking]:
    return {item.upstream.package: item for item in lacking(load_launch("", options)).lacking}


def megatron(words: str, version: str) -> Lacking:
    return found(LoadOptions(dialect="mlm", words=tuple(words.split()), assumes=(f"mcore={version}",)))["mcore"]


def numbers(words: str, version: str) -> set[str]:
    return {fix.number for fix in megatron(words, version).touching}


@pytest.mark.parametrize(
    ("number", "words", "lacks", "has"),
    [
        ("4593", MTP, "0.16.1", "0.18.0"),  # MTP, recomputation and packed sequences
        ("3401", MOE, "0.16.1", "0.17.0"),  # the auxiliary loss's tracker hangs with MTP
        ("5243", "--context-parallel-size 2 --sft", "0.17.1", "0.19.0"),  # RoPE of packed sequences under CP
        ("4593", MTP, "0.16.1", "0.13.0"),  # before the code that it mends
    ],
)
def test_a_release_lacks_a_fix_from_the_faulty_code_up_to_the_release_with_the_fix(
    number: str, words: str, lacks: str, has: str
) -> None:
    assert number in numbers(words, lacks)
    assert number not in numbers(words, has)


@pytest.mark.parametrize("left_out", ["--mtp-num-layers 1", "--sft", RECOMPUTE])
def test_a_fix_touches_a_launch_that_turns_on_all_that_it_is_about(left_out: str) -> None:
    assert "4593" not in numbers(MTP.replace(left_out, ""), "0.16.1")


def test_the_release_with_the_fix_is_named() -> None:
    item = megatron(MTP, "0.16.1")
    (fix,) = (fix for fix in item.touching if fix.number == "4593")
    assert (item.mended(fix), item.upstream.reference(fix)) == ("0.18.0", "NVIDIA/Megatron-LM#4593")


def test_the_fix_that_names_most_of_what_the_launch_does_comes_first() -> None:
    assert megatron(MTP, "0.16.1").touching[0].number == "4593"


def test_a_fix_of_another_model_does_not_touch_the_launch() -> None:
    options = LoadOptions(recipe="llama3_8b_pretrain_config", assumes=("bridge=0.3.1",), dialect="bridge")
    item = found(options)["bridge"]
    touched = {family for fix in item.touching for family in fix.families}
    assert not touched & {"gptoss", "gemma3", "qwen3vl"}
    assert {"gptoss", "gemma3", "qwen3vl"} <= {family for fix in fixes_of(item.upstream) for family in fix.families}


def test_a_release_that_is_not_stated_is_named_and_nothing_is_claimed_of_it() -> None:
    assert lacking(load_launch("", LoadOptions(dialect="mlm", words=tuple(MTP.split())))) == ((), (), ("mcore", "te"))


def test_megatron_core_is_what_the_stated_bridge_pins() -> None:
    """Bridge 0.4.0 has Megatron-LM 0.17.0 as its submodule (docs/releases/software-versions.md: NeMo 26.04)."""
    rows = "dataset.packed_sequence_specs.packed_sequence_size=4096 model.context_parallel_size=2"
    options = LoadOptions(dialect="bridge", words=tuple(rows.split()), assumes=("bridge=0.4.0",))
    core = found(options)["mcore"]
    assert core.release == "0.17.0 (which Bridge 0.4.0 pins)"
    assert "5243" in {fix.number for fix in core.touching}, "packed rows' positions under CP, mended in 0.19"
    stated = found(options._replace(assumes=("bridge=0.4.0", "mcore=0.19.0")))["mcore"]
    assert stated.release == "0.19.0" and "5243" not in {fix.number for fix in stated.touching}


@pytest.mark.parametrize(
    ("assumes", "reason"),
    [
        (("mcore=0.5",), "releases before 0.12 were not read"),
        (("mcore=99.0",), "is the newest release that was read"),
        (("mcore=0.19.0.dev0",), "it is a build between two releases"),
        (("mcore=0.16.1", "mcore_branch=dev"), "the dev branch has its own fixes and bugs"),
    ],
)
def test_of_a_release_that_was_not_read_nothing_is_claimed(assumes: tuple[str, ...], reason: str) -> None:
    launch = load_launch("", LoadOptions(dialect="mlm", words=tuple(MTP.split()), assumes=assumes))
    found, ((package, why),), _ = lacking(launch)
    assert (found, package) == ((), "mcore") and reason in why


def test_a_setting_that_the_launch_hides_leaves_the_fix_open() -> None:
    words = ("model_engine=megatron", "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2")
    item = found(LoadOptions(dialect="verl", words=words, assumes=("mcore=0.16.1",)))["mcore"]
    assert not any("mtp" in fix.topics for fix in item.touching)
    assert any("mtp" in fix.topics for fix in item.open)


@pytest.mark.parametrize(("words", "touches"), [("--fp32-residual-connection", True), ("", False)])
def test_a_fix_of_an_option_touches_a_launch_that_sets_it(words: str, touches: bool) -> None:
    item = megatron(f"--num-layers 4 {words}", "0.16.1")
    assert [item.sets(fix) for fix in item.touching if fix.number == "3504"] == [
        ("fp32_residual_connection",)
    ] * touches


def test_the_closest_fix_may_be_one_of_an_option_that_the_launch_sets() -> None:
    """NVIDIA/Megatron-LM#3693 mends several instances of the distributed optimizer, before 0.17.0."""
    several = "--num-layers 4 --use-distributed-optimizer --num-distributed-optimizer-instances"
    closest = megatron(f"{several} 2", "0.16.1").closest
    assert closest is not None and closest.number == "3693"
    assert megatron(f"{several} 2", "0.17.0").closest is None
    assert megatron("--num-layers 4 --use-distributed-optimizer", "0.16.1").closest is None


def test_a_fix_of_what_most_launches_turn_on_is_kept_apart() -> None:
    item = megatron("--num-layers 4 --num-experts 8", "0.16.1")
    assert item.broad
    assert {topic for fix in item.broad for topic in fix.topics} <= {
        "moe",
        "gradients",
        "attention",
        "save",
        "tp",
        "pp",
    }
    assert not [fix.title for fix in item.touching if set(fix.topics) <= {"moe"} and not item.sets(fix)]


def test_a_presumed_value_hides_no_fix() -> None:
    actor = "actor_rollout_ref.actor.megatron.context_parallel_size=2"
    words = ("model_engine=megatron", "actor_rollout_ref.model.path=someone/their-model", actor)
    item = found(LoadOptions(dialect="verl", words=words, assumes=("verl=0.6.1",)))["verl"]
    assert any("mla" in fix.topics for fix in item.open)
