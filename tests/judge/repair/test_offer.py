"""Which fixes are offered, in which order, and what is said where there is none."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.fixes import apply_fix
from megatron_hcp.judge.repair.offer import why_none
from megatron_hcp.judge.report import Finding
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Example, Fix, Problem, Rule, rule
from megatron_hcp.rules.upstream import OWN
from megatron_hcp.rules.view import View
from support.rules import example, launch

KV8 = "--num-attention-heads 64 --group-query-attention --num-query-groups 8"


def found(
    text: str, assumed: str = "", dialect: Dialect = "mlm", rules: tuple[Rule, ...] = RULES
) -> dict[str, Finding]:
    return {item.rule.id: item for item in check_launch(launch(dialect, text, assumed), rules, verdict=False).findings}


def offered(item: Finding) -> list[str]:
    return [" ".join(fix.overrides) for fix in item.fixes]


def test_the_fix_of_the_cause_is_offered_to_all_that_follows_from_it() -> None:
    """A tensor-parallel size of 3 breaks four rules; a sequence of 4104 would suit one of them."""
    text = f"{KV8} --tensor-model-parallel-size 3 --sequence-parallel --context-parallel-size 2 --seq-length 4096"
    findings = found(text, "world_size=8")
    assert set(findings) == {"CP002", "CP008", "TOPO003", "TP001"}
    for item in findings.values():
        assert offered(item) == ["tensor_model_parallel_size=2", "tensor_model_parallel_size=4"], item.rule.id


def test_a_finding_of_its_own_keeps_its_own_fixes() -> None:
    findings = found(f"{KV8} --tensor-model-parallel-size 3 --context-parallel-size 4 --seq-length 4100")
    assert offered(findings["CP001"]) == ["seq_length=4104"]


def _broken(rule_id: str, severity: str, fact: str, right: object, *fixes: Fix) -> Rule:
    """A rule that a test makes up: the fact has to have a value."""

    def holds(v: View) -> Problem | None:
        """It holds."""
        return None if v.get(fact) == right else Problem("m", "f", "w", (fact,), fixes)

    of = Example("mlm", "--context-parallel-size 2")
    return rule(
        rule_id,
        f"{severity} crash config",
        source=(OWN,),
        applies=lambda v: True,
        good=of,
        bad=of,
    )(holds)


TP2, CP4 = Fix({"tp": 2}, "two"), Fix({"cp": 4}, "four")


def test_the_fix_that_clears_most_comes_first() -> None:
    rules = (
        _broken("A1", "error", "cp", 4, Fix({"cp": 4}, "one"), Fix({"cp": 4, "tp": 2}, "both")),
        _broken("B1", "error", "tp", 2, TP2),
    )
    findings = found("--context-parallel-size 2", rules=rules)
    assert offered(findings["A1"])[0] == "context_parallel_size=4 tensor_model_parallel_size=2"
    assert offered(findings["B1"]) == offered(findings["A1"])[:1]


def test_a_fix_that_gives_a_feature_up_is_no_cause_to_others() -> None:
    off = Fix({"sft": False}, "off")
    rules = (
        _broken("A1", "error", "sft", False, off),
        _broken("B1", "error", "sft", False, Fix({"sft": False, "cp": 4}, "other")),
    )
    assert offered(found("--context-parallel-size 2 --sft", rules=rules)["B1"]) == [
        "sft=false context_parallel_size=4",
    ]


@pytest.mark.parametrize("severity", ["info", "warning"])
def test_a_fix_of_an_info_finding_joins_no_error(severity: str) -> None:
    rules = (_broken("A1", severity, "tp", 2, Fix({"tp": 2, "cp": 4}, "x")), _broken("B1", "error", "cp", 4))
    assert bool(offered(found("--context-parallel-size 2", rules=rules)["B1"])) == (severity == "warning")


def test_a_fix_that_makes_one_other_error_is_offered_with_the_fix_of_that() -> None:
    text = f"{KV8} --tensor-model-parallel-size 3 --context-parallel-size 16 --cp-comm-type a2a+p2p"
    item = found(f"{text} --hierarchical-context-parallel-sizes 8 2 --seq-length 4096")["TP001"]
    assert offered(item)[0] == "tensor_model_parallel_size=2 hierarchical_context_parallel_sizes=4 4"
    assert item.fixes[0].effect.startswith("tensor parallelism over 2 ranks; all-to-all over 4 ranks inside")
    rules = (
        _broken("A1", "error", "tp", 2, TP2),
        _broken("B1", "error", "tp", 1, Fix({"tp": 1, "cp": 4}, "one")),
    )
    assert offered(found("--context-parallel-size 2", rules=rules)["A1"]) == []


def test_what_cannot_be_checked_with_a_fix_is_said_in_its_text() -> None:
    item = found("--context-parallel-size 4 --cp-comm-type a2a+p2p --seq-length 4096")["HCP001"]
    assert item.fixes[0].effect == (
        "all-to-all over 2 ranks inside, a ring of 2 outside; unchecked without num_attention_heads"
    )
    item = found("--context-parallel-size 4 --cp-comm-type a2a+p2p --num-attention-heads 8")["HCP001"]
    assert "unchecked" not in item.fixes[0].effect


def test_a_fix_that_leaves_its_own_rule_open_for_want_of_a_setting_is_not_offered() -> None:
    # Versions are stated beside the launch: what lacks them is a note.
    of = launch(
        "bridge", "model.context_parallel_size=4 model.attention_backend=local model.transformer_impl=${oc.env:X}"
    )
    item = {each.rule.id: each for each in check_launch(of, RULES, verdict=False).findings}["CP006"]
    assert item.fixes == ()
    assert "model.attention_backend=auto leaves the question open without model.transformer_impl" in why_none(
        of, item, lambda _: RULES
    )
    assert found("--context-parallel-size 2 --softmax-type learnable")["CP010"].fixes, "lacks a version only"


@pytest.mark.parametrize(
    ("text", "assumed", "rule_id", "why"),
    [
        (
            f"{KV8} --softmax-type learnable --context-parallel-size 16",
            "",
            "CP010",
            "cp_comm_type=a2a is rejected by CP007",
        ),
        (
            "--context-parallel-size 2",
            "world_size=4 rank_order=tp-dp",
            "TOPO007",
            "no single setting of this launch fixes it",
        ),
    ],
)
def test_why_there_is_no_fix(text: str, assumed: str, rule_id: str, why: str) -> None:
    of = launch("mlm", text, assumed)
    item = {each.rule.id: each for each in check_launch(of, RULES, verdict=False).findings}[rule_id]
    said = why_none(of, item, lambda _: RULES)
    assert item.fixes == () and said.startswith(why) and said.endswith(f"; wanted: {item.problem.wanted}")


FLAGS = "--context-parallel-size {cp} --cp-comm-type {kind} --num-attention-heads 32 --seq-length {length} {more}"


@pytest.mark.parametrize(
    ("cp", "kind", "length", "more", "assumed", "rule_id", "first"),
    [
        # As many heads as a rank has, on the inner level.
        (8, "a2a", 4096, "--group-query-attention --num-query-groups 8 --tensor-model-parallel-size 4", "", "CP007", 1),
        (
            8,
            "a2a",
            4096,
            "--group-query-attention --num-query-groups 4 --tensor-model-parallel-size 4",
            "",
            "CP007",
            None,
        ),
    ],
)
def test_a_hierarchy_is_offered_where_cp_exceeds_the_heads(
    cp: int, kind: str, length: int, more: str, assumed: str, rule_id: str, first: int | None
) -> None:
    fixes = offered(found(FLAGS.format(cp=cp, kind=kind, length=length, more=more), assumed)[rule_id])
    wanted = "cp_comm_type=a2a+p2p hierarchical_context_parallel_sizes=2 4"
    assert fixes[0] == "cp_comm_type=p2p"
    assert fixes[1:] == ([] if first is None else [wanted])


@pytest.mark.parametrize(
    ("most", "length"), [("", 4098), ("--max-position-embeddings 8192", 4098), ("--max-position-embeddings 4096", 4092)]
)
def test_a_sequence_grows_only_as_far_as_the_model_has_positions(most: str, length: int) -> None:
    item = found(f"--context-parallel-size 3 --seq-length 4096 {most}")["CP001"]
    assert offered(item) == [f"seq_length={length}"]


def test_sinks_under_flash_get_a2a_and_cudnn_at_once() -> None:
    flags = "--context-parallel-size 2 --softmax-type learnable --attention-backend {} --num-attention-heads 8"
    both = ["cp_comm_type=a2a attention_backend=fused"]
    assert offered(found(flags.format("flash"), "te=2.14")["CP010"]) == both
    assert offered(found(flags.format("fused"), "te=2.14")["CP010"]) == ["cp_comm_type=a2a"]


@pytest.mark.sample(12)
def test_the_first_fixes_of_every_bad_example_leave_no_error_that_is_not_explained(rule: Rule) -> None:
    of = example(rule.bad)
    done: set[str] = set()
    while True:
        errors = [item for item in check_launch(of, RULES, verdict=False).findings if item.severity == "error"]
        item = next((each for each in errors if each.fixes and each.rule.id not in done), None)
        if item is None:
            break
        done.add(item.rule.id)
        changed = apply_fix(of, item.fixes[0])
        assert changed is not None
        of = changed
    for item in errors:
        assert item.rule.id not in done and "wanted: " in why_none(of, item, lambda _: RULES)


@pytest.mark.parametrize(("cp", "types"), [(8, ["p2p", "a2a"]), (16, ["p2p"])])
def test_a_type_that_no_tensor_parallel_size_makes_legal_is_not_offered(cp: int, types: list[str]) -> None:
    """8 KV heads: at TP 1, 8 ranks can each take one; no TP leaves 16 ranks a whole head."""
    text = (
        f"model.num_attention_heads=32 model.num_query_groups=8 model.context_parallel_size={cp} "
        "model.cp_comm_type=a2a+p2p"
    )
    item = found(text, "bridge=0.6.2 mcore=0.18.2 te=2.14", "bridge-provider")["HCP001"]
    assert offered(item) == [f"model.cp_comm_type={name}" for name in types]


def test_what_keeps_context_parallelism_comes_before_what_gives_it_up() -> None:
    """Packing alone would be refused, as its padding is 2: both change at once."""
    text = (
        "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false policy.megatron_cfg.context_parallel_size=4 "
        "policy.megatron_cfg.tensor_model_parallel_size=2 policy.megatron_cfg.sequence_parallel=true "
        "policy.make_sequence_length_divisible_by=2 policy.sequence_packing.enabled=false "
        "policy.dynamic_batching.enabled=true"
    )
    item = found(text, "nemo_rl=0.6", "nemo-rl")["NRL002"]
    assert offered(item) == [
        "policy.sequence_packing.enabled=true policy.dynamic_batching.enabled=false "
        "policy.make_sequence_length_divisible_by=16",
        "policy.megatron_cfg.context_parallel_size=1",
    ]


def test_a_fix_that_ends_context_parallelism_comes_after_one_that_changes_another_number() -> None:
    """What the rule prefers otherwise holds: a pipeline is a feature, too."""

    def holds(v: View) -> Problem | None:
        """It holds."""
        without = (Fix({name: 1}, name) for name in ("cp", "pp", "tp"))
        is_fine = 1 in (v.get("cp"), v.get("pp"), v.get("tp"))
        return None if is_fine else Problem("m", "f", "w", ("cp", "pp", "tp"), tuple(without))

    of = Example("mlm", "--context-parallel-size 2")
    declared = rule("A1", "error crash config", source=(OWN,), applies=lambda v: True, good=of, bad=of)(holds)
    text = "--context-parallel-size 2 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2"
    assert offered(found(text, rules=(declared,))["A1"]) == [
        "pipeline_model_parallel_size=1",
        "tensor_model_parallel_size=1",
        "context_parallel_size=1",
    ]


GPT3 = "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --tensor-model-parallel-size 8"


def script(words: str) -> str:
    torchrun = "torchrun --nproc_per_node 8 --nnodes 1 --master_addr localhost pretrain_gpt.py"
    return f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n{torchrun} {words}\n"


def test_more_nodes_are_offered_with_what_they_need_to_meet() -> None:
    """Megatron-LM's own template of 175 B parameters: 8 GPUs, at one address, for 128 ranks."""
    (fix,) = found(script(f"{GPT3} --pipeline-model-parallel-size 16"))["TOPO003"].fixes
    assert fix.overrides == ("nodes=16",)
    assert "--rdzv-backend c10d --rdzv-endpoint" in fix.effect


def test_a_layout_that_no_gpu_holds_is_not_offered() -> None:
    """175 B parameters over 8 GPUs take 16 bytes each, 348 GB a GPU; a tenth of them fits."""
    small = GPT3.replace("12288", "3072").replace("96 --hidden", "32 --hidden")
    fixes = found(script(f"{small} --pipeline-model-parallel-size 16"))["TOPO003"].fixes
    assert [fix.overrides for fix in fixes] == [("nodes=16",), ("pipeline_model_parallel_size=1",)]
