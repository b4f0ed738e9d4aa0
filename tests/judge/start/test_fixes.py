"""Fixes from a guard's condition: it holds afterwards, and as little of the launch's intent is given up as can be."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.fixes import apply_fix, written
from megatron_hcp.judge.start.fixes import fixes_for
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.rules.rule import Fix
from megatron_hcp.validators.outcome import Guard, Refusal


def launch_of(text: str) -> Launch:
    return load_launch("", LoadOptions(words=tuple(text.split())))


def offered(text: str, condition: str, **values: Any) -> list[dict[str, Any]]:
    return [dict(fix.edits) for fix in fixes(launch_of(text), condition, values)]


def fixes(launch: Launch, condition: str, values: dict[str, Any]) -> tuple[Fix, ...]:
    guard = Guard("megatron-lm", "megatron/training/arguments.py", "validate_args", "x", condition, "")
    return fixes_for(launch, Refusal(guard, tuple((f"args.{name}", value) for name, value in values.items())))


def test_a_switch_is_taken_back_or_what_it_needs_is_added() -> None:
    found = offered(
        "--overlap-param-gather --bf16",
        "args.use_distributed_optimizer or not args.overlap_param_gather",
        use_distributed_optimizer=False,
        overlap_param_gather=True,
    )
    assert found == [{"overlap_param_gather": None}, {"distributed_optimizer": True}]


def test_a_number_that_is_missing_is_not_made_true() -> None:
    assert {"micro_batch_size": True} not in offered(
        "--num-layers 2", "args.micro_batch_size is not None", micro_batch_size=None
    )


@pytest.mark.parametrize("condition", ["args.save is not None", "args.lr is not None or args.save", "args.save > 0.5"])
def test_true_is_offered_only_for_a_setting_whose_truth_alone_is_asked(condition: str) -> None:
    found = offered("--num-layers 2", condition, save=None, lr=None)
    assert ({"checkpoint_save": True} in found) == (condition == "args.lr is not None or args.save")
    assert {"lr": True} not in found


def test_a_number_that_fits_comes_before_none() -> None:
    found = offered(
        "--max-position-embeddings 512 --seq-length 4096",
        "args.max_position_embeddings >= args.seq_length",
        max_position_embeddings=512,
        seq_length=4096,
    )
    assert found[0] == {"max_position_embeddings": 4096}


def test_heads_that_do_not_divide_the_hidden_size_become_the_nearest_that_do() -> None:
    found = offered(
        "--hidden-size 4096 --num-attention-heads 160",
        "args.hidden_size % args.num_attention_heads == 0",
        hidden_size=4096,
        num_attention_heads=160,
    )
    assert found[0] == {"heads": 128}


def test_a_parallel_size_stays_if_anything_else_can_change() -> None:
    found = offered(
        "--tensor-model-parallel-size 4 --qk-clip-alpha 3",
        "args.tensor_model_parallel_size == 1 or args.qk_clip_alpha == 4",
        tensor_model_parallel_size=4,
        qk_clip_alpha=3,
    )
    assert found[0] == {"qk_clip_alpha": 4}
    assert {"tp": 1} in found


def test_a_size_moves_to_the_nearest_that_fits() -> None:
    found = offered("--qk-clip-alpha 30", "args.qk_clip_alpha % args.other == 0", qk_clip_alpha=30, other=8)
    assert found[0] == {"qk_clip_alpha": 32}


def test_two_settings_change_where_one_is_not_enough() -> None:
    found = offered("--a1 --b1", "not args.a1 and not args.b1", a1=True, b1=True)
    assert found == [{"a1": None, "b1": None}]


def test_a_condition_that_calls_upstream_is_left_alone() -> None:
    assert offered("--a1", "helper(args.a1)", a1=True) == []


def test_a_setting_is_left_out_where_no_value_of_the_condition_does() -> None:
    assert offered("--min-lr 0.5", "args.min_lr <= args.lr", min_lr=0.5, lr=0.1)[-1] == {"min_lr": None}
    size = offered(
        "--tensor-model-parallel-size 3", "helper(args.tensor_model_parallel_size)", tensor_model_parallel_size=3
    )
    assert size == []


@pytest.mark.parametrize(
    ("text", "condition", "values", "words", "without"),
    [
        ("--seq-length 8", "args.log_progress", {"log_progress": False}, ("--log-progress",), ()),
        ("--log-progress", "not args.log_progress", {"log_progress": True}, (), ("--log-progress",)),
        ("--log-interval 3", "args.log_interval == 5", {"log_interval": 3}, ("--log-interval", "5"), ()),
    ],
)
def test_an_option_that_is_no_fact_is_written_as_the_command_line_has_it(
    text: str, condition: str, values: dict[str, Any], words: tuple[str, ...], without: tuple[str, ...]
) -> None:
    launch = launch_of(text)
    fix = fixes(launch, condition, values)[0]
    on_line = written(launch, fix)
    assert (on_line.cli, on_line.without) == (words, without)
    fixed = apply_fix(launch, fix)
    assert fixed is not None and fixed.reading.settings != launch.reading.settings


def test_a_field_of_bridge_is_changed_under_its_own_key() -> None:
    launch = launch_of("train.manual_gc_interval=3")
    guard = Guard("megatron-bridge", "x.py", "TrainingConfig.finalize", "x", "self.manual_gc_interval == 0", "")
    (fix, *_) = fixes_for(launch, Refusal(guard, (("self.manual_gc_interval", 3),)))
    assert written(launch, fix).overrides == ("train.manual_gc_interval=0",)


def test_a_fix_is_offered_although_the_same_function_refuses_more() -> None:
    words = (
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
        "--micro-batch-size 1 --fp16 --bf16 --lr 1e-5 --min-lr 1e-3 --save x"
    )
    launch = load_launch("", LoadOptions(words=tuple(words.split()), assumes=("mcore=0.19.0", "world_size=1")))
    report = check_launch(launch, rules_for)
    assert [outcome.masked != () for outcome in report.judged_by] == [True]
    assert all(item.fixes for item in report.findings if item.severity == "error")


def test_a_variable_of_upstreams_counts_and_is_not_changed() -> None:
    # validate_args: num_generated_samples_per_inference_iteration % args.global_batch_size == 0
    guard = Guard("megatron-lm", "a.py", "validate_args", "x", "samples % args.global_batch_size == 0", "")
    launch = launch_of("--global-batch-size 100 --micro-batch-size 1")
    found = fixes_for(launch, Refusal(guard, (("samples", 4), ("args.global_batch_size", 100))))
    assert {"global_batch_size": 4} in [dict(fix.edits) for fix in found]
    assert {name for fix in found for name in fix.edits} == {"global_batch_size"}


@pytest.mark.parametrize("written", ["", "model.attention_backend=fused"])
def test_a_member_of_an_enumeration_is_written_as_its_name(written: str) -> None:
    words = tuple(f"model.batch_invariant_mode=true {written}".split())
    launch = load_launch("", LoadOptions(recipe="llama3_8b_pretrain_config", words=words, assumes=("bridge=0.6.0",)))
    report = check_launch(launch, rules_for)
    (item,) = (item for item in report.findings if "attention_backend-flash" in item.id)
    assert [fix.overrides for fix in item.fixes] == [("model.attention_backend=flash",)]


def test_an_argument_of_upstreams_function_that_the_launch_writes_is_changed() -> None:
    # initialize_model_parallel: data_parallel_size % num_distributed_optimizer_instances == 0
    condition = "data_parallel_size % num_distributed_optimizer_instances == 0"
    guard = Guard("megatron-core", "a.py", "initialize_model_parallel", "x", condition, "")
    launch = launch_of("ddp.num_distributed_optimizer_instances=3")
    values = (("data_parallel_size", 8), ("num_distributed_optimizer_instances", 3))
    found = [dict(fix.edits) for fix in fixes_for(launch, Refusal(guard, values))]
    assert {"num_distributed_optimizer_instances": 2} in found and all("dp" not in edits for edits in found)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("--batch-size 4", ("--micro-batch-size", "4")),
        ("--model-parallel-size 2", ("--tensor-model-parallel-size", "2")),
        ("--warmup 5", ()),  # percent, where the fraction counts from 0 to 1: it is left out
        ("--batch-size 4 --micro-batch-size 1", ()),
    ],
)
def test_an_option_that_upstream_gave_another_name_is_renamed(text: str, first: tuple[str, ...]) -> None:
    """Megatron-LM's validate_args: "--batch-size argument is no longer valid, use --micro-batch-size instead"."""
    launch = launch_of(f"--num-layers 4 --hidden-size 64 --num-attention-heads 4 {text}")
    report = check_launch(launch, rules_for(launch), verdict=False)
    (refused,) = (item for item in report.findings if "no longer valid" in item.problem.message)
    assert refused.fixes[0].cli == first
    assert refused.fixes[0].without == (text.split()[0],)
