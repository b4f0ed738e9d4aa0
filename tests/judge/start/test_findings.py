"""Guards of upstream as findings: in the launch's own words, once for each truth, and by release."""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding
from megatron_hcp.judge.start.findings import findings_of
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import BY_ID, rules_for
from megatron_hcp.rules.start.citations import cites
from megatron_hcp.rules.start.functions import RULES
from megatron_hcp.rules.upstream import ARGUMENTS
from megatron_hcp.validators.outcome import Guard, Judgement, Refusal

ARGUMENTS_PY = "megatron/training/arguments.py"
BOTH = Guard("megatron-lm", ARGUMENTS_PY, "validate_args", "not-fp16-and-bf16", "not (fp16 and bf16)", "one of the two")
IMPL = Guard("megatron-lm", ARGUMENTS_PY, "validate_args", "impl", "transformer_impl != 'local'", "")
VALUES = (("args.fp16", True), ("args.bf16", True))


def launch_of(*words: str) -> Launch:
    return load_launch("", LoadOptions(words=words))


def judged(release: str, *refusals: tuple[Guard, tuple[tuple[str, Any], ...]]) -> Judgement:
    return Judgement(tuple(Refusal(*each) for each in refusals), (), 10, 0, "table", release)


def found(launch: Launch, *by_release: Judgement, **changes: Any) -> list[Finding]:
    return findings_of(launch, by_release, [RULES["START001"]._replace(**changes)], changes.pop("fired", []))


LAUNCH = launch_of("--fp16", "--bf16", "--context-parallel-size", "2")


def test_a_refusal_is_a_finding_with_upstreams_condition_and_the_launchs_values() -> None:
    (one,) = found(LAUNCH, judged("0.16.1", (BOTH, VALUES)))
    assert (one.id, one.severity) == (f"START001/{BOTH.slug}", "error")
    assert one.keys == ("fp16", "bf16")
    for part in ("validate_args", "0.16.1", '"one of the two"'):
        assert part in one.problem.message
    assert (one.problem.found, one.problem.wanted) == ("fp16=true, bf16=true", "not (fp16 and bf16)")


def test_an_argument_that_a_class_lacks_is_named_with_the_launchs_key() -> None:
    lacks = BOTH._replace(condition="hasattr(Args, 'fp16')", message="Args() got an unexpected keyword argument 'fp16'")
    (one,) = found(LAUNCH, judged("0.16.1", (lacks, VALUES)))
    assert one.problem.wanted == "no fp16, or a release that has it"


def test_a_guard_without_a_message_is_told_by_its_condition() -> None:
    (one,) = found(LAUNCH, judged("0.16.1", (IMPL, (("args.transformer_impl", "local"), *VALUES))))
    assert "transformer_impl != 'local'" in one.problem.message


def test_keys_are_the_launchs_own_and_the_place_is_where_it_writes_them(tmp_path: Any) -> None:
    file = tmp_path / "run.sh"
    file.write_text("torchrun pretrain_gpt.py \\\n  --micro-batch-size 1 \\\n  --num-experts 8 --no-rope-fusion\n")
    launch = load_launch(str(file), LoadOptions())
    (one,) = found(launch, judged("0.16.1", (BOTH, (("self.num_moe_experts", 8),))))
    assert one.keys == ("num_experts",)
    assert one.location is not None and one.location.line == 3
    (one,) = found(launch, judged("0.16.1", (BOTH, (("rope_fusion", False), ("seq_length", None)))))
    assert one.keys == ("no_rope_fusion", "seq_length")


def test_a_field_of_bridges_container_is_named_with_its_section() -> None:
    launch = load_launch("", LoadOptions(words=("model.num_moe_experts=8", "ddp.overlap_grad_reduce=true")))
    (one,) = found(launch, judged("0.6.0", (BOTH, (("self.num_moe_experts", 8), ("self.overlap_grad_reduce", True)))))
    assert one.keys == ("model.num_moe_experts", "ddp.overlap_grad_reduce")


def test_several_guards_of_a_function_are_several_findings_and_each_can_be_ignored_by_its_name() -> None:
    both = judged("0.16.1", (BOTH, VALUES), (IMPL, VALUES[:1]))
    assert [one.problem.guard for one in found(LAUNCH, both)] == [BOTH.slug, IMPL.slug]
    assert [one.problem.guard for one in found(LAUNCH, both, without=frozenset({IMPL.slug}))] == [BOTH.slug]
    assert [one.problem.guard for one in found(LAUNCH, both, only=frozenset({IMPL.slug}))] == [IMPL.slug]


@pytest.mark.parametrize(
    ("refuse", "severity", "says"),
    [
        ("abc", "error", "(all releases)"),
        ("bc", "warning", "(b and newer)"),
        ("ab", "warning", "(up to b)"),
        ("b", "warning", "(b)"),
        ("c", "warning", "(c)"),
    ],
)
def test_without_a_release_it_is_an_error_only_if_all_refuse(refuse: str, severity: str, says: str) -> None:
    (one,) = found(LAUNCH, *(judged(name, *([(BOTH, VALUES)] if name in refuse else [])) for name in "abc"))
    assert one.severity == severity
    assert says in one.problem.message


def test_releases_that_refuse_for_different_reasons_leave_none_that_starts() -> None:
    both = found(LAUNCH, judged("a", (BOTH, VALUES)), judged("b", (IMPL, VALUES[:1])))
    assert [one.severity for one in both] == ["error", "error"]


def test_what_only_some_releases_refuse_is_one_warning_that_names_the_releases_of_each_guard() -> None:
    (one,) = found(LAUNCH, judged("a", (IMPL, VALUES[:1])), judged("b"), judged("c", (BOTH, VALUES)))
    first, second = one.problem.message.split("; ")
    assert one.severity == "warning"
    assert "(up to a)" in first and IMPL.condition in first
    assert "(c)" in second and BOTH.message in second


def test_a_warning_of_many_guards_counts_those_behind_the_third() -> None:
    guards = [IMPL._replace(own=f"impl-{place}") for place in range(5)]
    (one,) = found(LAUNCH, judged("a"), judged("b", *((guard, VALUES[:1]) for guard in guards)))
    assert one.problem.message.count("(b)") == 3 and one.problem.message.endswith("; 2 more")


def test_a_guard_is_silent_where_the_launch_states_nothing_that_it_reads() -> None:
    assert found(LAUNCH, judged("0.16.1", (BOTH, (("args.log_interval", None),)))) == []


def test_a_release_whose_guards_are_silent_does_not_refuse() -> None:
    silent = (IMPL, (("args.log_interval", None),))
    (one,) = found(LAUNCH, judged("a", (BOTH, VALUES)), judged("b", silent))
    assert one.severity == "warning" and "(up to a)" in one.problem.message


def test_a_guard_is_silent_behind_a_value_that_the_parser_refuses() -> None:
    (plain,) = found(LAUNCH, judged("0.16.1", (BOTH, VALUES)))
    fired = [plain._replace(rule=BY_ID["KEY002"], keys=("bf16",))]
    assert findings_of(LAUNCH, (judged("0.16.1", (BOTH, VALUES)),), [RULES["START001"]], fired) == []


def test_where_a_rule_that_fired_cites_the_place_the_guard_is_silent() -> None:
    (plain,) = found(LAUNCH, judged("0.16.1", (BOTH, VALUES)))
    citing = BY_ID["TP001"]._replace(
        source=(ARGUMENTS.says("validate_args", "not (args.fp16 and args.bf16)", ">=0.12"),)
    )
    fired = [plain._replace(rule=citing)]
    start = [RULES["START001"]]
    assert findings_of(LAUNCH, (judged("0.16.1", (BOTH, VALUES)),), start, fired) == []
    assert len(findings_of(LAUNCH, (judged("0.16.1", (IMPL, VALUES[:1])),), start, fired)) == 1


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        ("validate_args", "one of the two", True),
        ("validate_args", "fp16 and args.bf16", True),
        ("validate_args", "another", False),
        ("validate_args", "16", False),
        ("parse_args", "one of the two", False),
    ],
)
def test_a_citation_is_about_a_guard_if_function_and_text_are_its(function: str, text: str, expected: bool) -> None:
    assert cites([ARGUMENTS.says(function, text, ">=0.12")], BOTH) == expected


@pytest.mark.parametrize("size", ["first", "last"])
def test_stages_in_a_hybrid_pattern_and_a_stage_size_are_one_finding(size: str) -> None:
    launch = load_launch(
        "",
        LoadOptions(
            words=tuple(
                "--bf16 --mock-data --micro-batch-size 1 --num-attention-heads 8 --hidden-size 256 --seq-length 1024 "
                "--max-position-embeddings 1024 --hybrid-layer-pattern M*M*|M*M* --pipeline-model-parallel-size 2 "
                f"--decoder-{size}-pipeline-num-layers 3".split()
            ),
            assumes=("mcore=0.19.0", "world_size=8"),
        ),
    )
    report = check_launch(launch, rules_for)
    assert [one.id for one in report.findings if one.severity == "error"] == ["PIPE005"]


def test_a_refusal_that_reads_nothing_written_names_the_settings_that_lead_to_it() -> None:
    """`fp16_mixed` in megatron/bridge/training/mixed_precision.py sets the fields that the guard reads."""
    words = (
        "ddp.use_megatron_fsdp=true", "ddp.megatron_fsdp_version=2", "mixed_precision=fp16_mixed",
        "model.tensor_model_parallel_size=1", "model.context_parallel_size=1", "model.pipeline_model_parallel_size=1",
    )  # fmt: skip
    options = LoadOptions(words=words, recipe="llama3_8b_pretrain_config", assumes=("bridge=0.7.0", "world_size=8"))
    report = check_launch(load_launch("", options), rules_for, fixes=False)
    (found,) = [one for one in report.findings if one.rule.id == "START009"]
    assert "MFSDP V2 requires BF16 training" in found.problem.message
    assert {*found.keys} >= {"mixed_precision", "ddp.use_megatron_fsdp"}
    assert "model.tensor_model_parallel_size" not in found.keys


def test_without_a_recipe_nothing_is_said_of_what_the_launch_does_not_write() -> None:
    words = ("ddp.use_megatron_fsdp=true", "ddp.megatron_fsdp_version=2", "mixed_precision=fp16_mixed")
    options = LoadOptions(words=words, dialect="bridge", assumes=("bridge=0.7.0", "world_size=8"))
    assert not check_launch(load_launch("", options), rules_for, fixes=False).findings
