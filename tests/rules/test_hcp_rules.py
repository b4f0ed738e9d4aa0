"""Hierarchical CP, case by case: what each launcher, version and shape is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hcp.launch.fact import Launch
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID, RULES
from hcp.rules.report import Finding

LaunchOf = Callable[..., Launch]

BARE = {
    "mlm": "--context-parallel-size 4 --cp-comm-type a2a+p2p",
    "bridge": "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=null",
    "bridge-provider": "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p "
    "model.hierarchical_context_parallel_sizes=null",
    "verl": "actor_rollout_ref.actor.megatron.context_parallel_size=4 "
    "actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=a2a+p2p",
}
FLAGS = "--context-parallel-size {cp} --cp-comm-type {comm} --hierarchical-context-parallel-sizes {sizes}"


def findings(launch: Launch, rule_id: str | None = None) -> dict[str, Finding]:
    rules = RULES if rule_id is None else (BY_ID[rule_id],)
    return {finding.rule.id: finding for finding in check_launch(launch, rules, fixes=False).findings}


def needs(launch: Launch, rule_id: str) -> tuple[str, ...]:
    return next((item.needs for item in check_launch(launch, (BY_ID[rule_id],)).not_checked), ())


@pytest.mark.parametrize(
    ("kind", "assume", "effect", "stage"),
    [
        ("mlm", "", "crash", "config"),
        ("bridge", "", "silent", "never"),
        ("bridge", "bridge=0.3.1", "silent", "never"),
        ("bridge", "bridge=0.4.0", "crash", "config"),
        ("bridge-provider", "bridge=0.6.0", "silent", "never"),
        ("verl", "verl=0.9.1", "silent", "never"),
    ],
)
def test_missing_sizes_stop_where_the_launcher_looks_and_are_silent_elsewhere(
    kind: str, assume: str, effect: str, stage: str, launch_of: LaunchOf
) -> None:
    finding = findings(launch_of(kind, BARE[kind], assume))["HCP001"]
    assert (finding.severity, finding.effect, finding.stage) == ("error", effect, stage)


@pytest.mark.parametrize(
    ("kind", "assume", "found", "asked"),
    [
        ("mlm", "", True, ()),
        ("bridge", "bridge=0.4.0", True, ()),
        ("bridge", "bridge=0.3.1", False, ()),
        ("bridge", "", False, ("bridge",)),
        ("bridge-provider", "bridge=0.6.0", False, ()),
        ("verl", "", False, ()),
    ],
)
def test_at_cp_size_one_missing_sizes_matter_only_to_a_launcher_that_looks_at_the_type(
    kind: str, assume: str, found: bool, asked: tuple[str, ...], launch_of: LaunchOf
) -> None:
    text = BARE[kind].replace("parallel_size=4", "parallel_size=1").replace("parallel-size 4", "parallel-size 1")
    launch = launch_of(kind, text, assume)
    assert ("HCP001" in findings(launch)) == found
    assert needs(launch, "HCP001") == asked


def test_one_hierarchical_layer_in_a_list_is_enough(launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", "--context-parallel-size 4 --num-layers 3 --cp-comm-type p2p a2a+p2p a2a")
    assert "HCP001" in findings(launch)


@pytest.mark.parametrize(
    ("cp", "sizes", "ids"),
    [
        (8, "4 2", set()),
        (8, "8", {"HCP003"}),
        (8, "2 2 2", {"HCP003"}),
        (8, "4 4", {"HCP002"}),
        (8, "2 2 4", {"HCP002", "HCP003"}),
        (8, "-4 -2", {"HCP004"}),
        (8, "0 8", {"HCP004"}),
        (8, "1 8", {"HCP005"}),
        (8, "8 1", {"HCP005"}),
        (1, "2 2", {"HCP002"}),
    ],
)
def test_sizes(cp: int, sizes: str, ids: set[str], launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", FLAGS.format(cp=cp, comm="a2a+p2p", sizes=sizes))
    assert {rule_id for rule_id in findings(launch) if rule_id.startswith("HCP")} == ids


@pytest.mark.parametrize("comm", ["p2p", "a2a", "all_gather"])
def test_sizes_that_no_layer_uses_are_an_error_although_training_is_right(comm: str, launch_of: LaunchOf) -> None:
    launch = launch_of("mlm", FLAGS.format(cp=4, comm=comm, sizes="2 2"))
    assert (findings(launch)["HCP006"].severity, findings(launch)["HCP006"].effect) == ("error", "silent")


@pytest.mark.parametrize(
    ("heads", "groups", "tp", "inner", "fits"),
    [
        (32, 8, 1, 8, True),
        (32, 8, 2, 4, True),
        (32, 8, 4, 4, False),
        (32, 8, 8, 2, False),
        (32, 4, 8, 2, False),  # fewer KV heads than TP ranks: one each
        (32, 1, 1, 2, False),  # MQA
        (12, 12, 1, 8, False),
        (24, 3, 1, 3, True),
    ],
)
def test_the_inner_size_against_heads(
    heads: int, groups: int, tp: int, inner: int, fits: bool, launch_of: LaunchOf
) -> None:
    text = (
        f"--num-attention-heads {heads} --group-query-attention --num-query-groups {groups} "
        f"--tensor-model-parallel-size {tp} " + FLAGS.format(cp=2 * inner, comm="a2a+p2p", sizes=f"{inner} 2")
    )
    assert ("HCP007" in findings(launch_of("mlm", text))) != fits


def test_mla_splits_all_heads_since_it_has_as_many_keys_as_queries(launch_of: LaunchOf) -> None:
    text = "--num-attention-heads 32 --group-query-attention --num-query-groups 1 --multi-latent-attention "
    assert "HCP007" not in findings(launch_of("mlm", text + FLAGS.format(cp=8, comm="a2a+p2p", sizes="4 2")))


@pytest.mark.parametrize(
    ("backend", "te", "severity"),
    [
        ("fused", "2.20.2", "error"),
        ("auto", "2.15.0", "warning"),
        ("flash", "2.20.2", None),
        ("fused", "2.14.0", None),
    ],
)
def test_odd_heads_cost_fused_attention(backend: str, te: str, severity: str | None, launch_of: LaunchOf) -> None:
    text = (
        f"--num-attention-heads 24 --group-query-attention --num-query-groups 3 --attention-backend {backend} "
        + FLAGS.format(cp=6, comm="a2a+p2p", sizes="3 2")
    )
    finding = findings(launch_of("mlm", text, f"te={te}")).get("HCP008")
    assert (finding.severity if finding else None) == severity


@pytest.mark.parametrize(("te", "effect"), [("1.9.0", "silent"), ("1.11.0", "crash"), ("1.12.0", None)])
def test_old_transformer_engines_ignore_or_refuse_the_type(te: str, effect: str | None, launch_of: LaunchOf) -> None:
    finding = findings(launch_of("mlm", FLAGS.format(cp=4, comm="a2a+p2p", sizes="2 2"), f"te={te}")).get("HCP013")
    assert (finding.effect if finding else None) == effect


@pytest.mark.parametrize(
    ("assume", "found", "asked"),
    [
        ("te=2.18.0 thd=true", True, ()),
        ("te=2.19.0 thd=true", False, ()),
        ("te=2.18.0 thd=false", False, ()),
        ("thd=false", False, ()),
        ("te=2.19.0", False, ()),
        ("thd=true", False, ("te",)),
    ],
)
def test_packing_asks_only_for_what_decides(
    assume: str, found: bool, asked: tuple[str, ...], launch_of: LaunchOf
) -> None:
    launch = launch_of(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[2,2]",
        assume,
    )
    assert ("HCP014" in findings(launch)) == found
    assert needs(launch, "HCP014") == asked


@pytest.mark.parametrize(
    ("window", "skip", "comm", "found"),
    [
        ("[128,0]", "null", "a2a+p2p", True),
        ("[128,0]", "2", "a2a+p2p", True),
        ("[128,0]", "1", "a2a+p2p", False),  # every layer skips the window
        ("[-1,0]", "null", "a2a+p2p", False),
        ("null", "null", "a2a+p2p", False),
        ("[128,0]", "2", "[a2a,a2a+p2p]", False),  # layer 2 skips the window
        ("[128,0]", "2", "[a2a+p2p,a2a]", True),
        ("[128,0]", "[0,1]", "[a2a+p2p,a2a]", False),
    ],
)
def test_windows_are_looked_at_layer_by_layer(
    window: str, skip: str, comm: str, found: bool, launch_of: LaunchOf
) -> None:
    launch = launch_of(
        "bridge",
        f"model.context_parallel_size=4 model.cp_comm_type={comm} model.num_layers=2 "
        f"model.hierarchical_context_parallel_sizes=[2,2] model.window_size={window} "
        f"model.window_attn_skip_freq={skip}",
        "te=2.20.2 mcore=0.17.0",
    )
    assert ("HCP018" in findings(launch)) == found


def test_the_fix_for_windows_keeps_the_hierarchy_where_it_can(launch_of: LaunchOf) -> None:
    launch = launch_of(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.num_layers=4 "
        "model.hierarchical_context_parallel_sizes=[2,2] model.window_size=[128,0] "
        "model.num_attention_heads=8 model.num_query_groups=8 model.tensor_model_parallel_size=1 "
        "model.window_attn_skip_freq=2",
        "te=2.20.2 mcore=0.17.0",
    )
    finding = next(item for item in check_launch(launch, RULES).findings if item.rule.id == "HCP018")
    assert finding.fixes[0].overrides == ("model.cp_comm_type=[a2a,a2a+p2p,a2a,a2a+p2p]",)


@pytest.mark.parametrize("kind", ["bridge-provider", "verl"])
def test_launchers_that_drop_the_sizes_are_silent_even_with_right_sizes(kind: str, launch_of: LaunchOf) -> None:
    prefix = {"bridge-provider": "model", "verl": "actor_rollout_ref.actor.megatron.override_transformer_config"}[kind]
    text = BARE[kind].replace("model.hierarchical_context_parallel_sizes=null", "")
    text += f" {prefix}.hierarchical_context_parallel_sizes=[2,2]"
    found = findings(launch_of(kind, text))
    assert "HCP001" not in found
    assert (found["HCP010"].severity, found["HCP010"].effect) == ("error", "silent")


@pytest.mark.parametrize(("assume", "effect"), [("", "crash"), ("bridge=0.4.0", "crash"), ("bridge=0.3.1", "silent")])
def test_decentralized_groups_know_no_levels(assume: str, effect: str, launch_of: LaunchOf) -> None:
    launch = launch_of(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p "
        "model.hierarchical_context_parallel_sizes=[2,2] dist.use_decentralized_pg=true",
        assume,
    )
    assert findings(launch)["HCP011"].effect == effect


def test_a_launch_without_cp_is_never_undecided_about_hierarchical_cp(launch_of: LaunchOf) -> None:
    launches = [
        launch_of("mlm", "--num-layers 2"),
        launch_of("bridge", "model.context_parallel_size=1 model.cp_comm_type=p2p"),
        launch_of("mlm", "--context-parallel-size 4 --cp-comm-type p2p"),
        launch_of("verl", "actor_rollout_ref.actor.megatron.context_parallel_size=2"),
    ]
    for launch in launches:
        report = check_launch(launch, RULES)
        assert not [item.rule.id for item in report.not_checked if item.rule.id.startswith(("HCP", "TOPO001", "LOAD"))]


def test_a_fix_for_a_provider_never_writes_sizes_that_go_nowhere(launch_of: LaunchOf) -> None:
    finding = check_launch(launch_of("bridge-provider", BARE["bridge-provider"]), RULES).findings[0]
    edits: list[Any] = [dict(fix.edits) for fix in finding.fixes]
    assert edits and all("hcp_sizes" not in edit or edit["hcp_sizes"] is None for edit in edits)


def test_verl_is_told_once_that_the_hierarchy_goes_nowhere_and_not_what_it_would_lack(launch_of: LaunchOf) -> None:
    override = "actor_rollout_ref.actor.megatron.override_transformer_config"
    launch = launch_of(
        "verl",
        f"{BARE['verl']} {override}.hierarchical_context_parallel_sizes=[2,3,2] {override}.softmax_type=learnable",
        "te=2.14.0 einops=false mcore=0.16.1",
    )
    assert {rule_id for rule_id in findings(launch) if rule_id.startswith("HCP")} == {"HCP010"}
