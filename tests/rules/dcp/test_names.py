"""DCP rules on names and versions: Megatron-LM's main and dev branch, Bridge and verl."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.rules.registry import RULES
from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, OVERRIDE, PROVIDER, TP, VERL, VERL_ON_DEV
from support.rules import FixRow, Row, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

ON_MAIN_0_19 = "world_size=8 mcore=0.19.0 te=2.14"
ON_16_RANKS = "world_size=16 mcore=0.19.0 te=2.14"
DYNAMIC_PROVIDER = PROVIDER.replace("hybrid", "dynamic")
BRIDGE = f"{PROVIDER}model.pipeline_model_parallel_size=1"
PIPELINE = f"{PROVIDER}model.pipeline_model_parallel_size=2"
BOTH_NAMES = f"{VERL}+{OVERRIDE}hybrid_context_parallel=True"
VERL_0_7 = "verl=0.7.0 mcore=0.19.0 mcore_branch=dev"
VERL_0_8 = "verl=0.8.0 mcore=0.19.0 "
VERL_0_9 = "verl=0.9.0 mcore=0.19.0 "

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.18.2 te=2.14", "all: DCP001"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.18.0", "error crash training"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.19.0", "error crash training"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.20.0", "warning crash training"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.20.0 te=2.14", "all: DCP001"),
    ("DCP001", "mlm", HYBRID, ON_MAIN, "all:"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.21.0 te=2.14", "all:"),
    ("DCP001", "mlm", HYBRID, "world_size=8", "needs mcore"),
    ("DCP001", "mlm", DYNAMIC, ON_DEV, "not concerned"),
    ("DCP001", "bridge-provider", PROVIDER, "mcore=0.19.0", "not concerned"),
    ("DCP028", "mlm", HYBRID, ON_MAIN, "fine"),
    ("DCP028", "mlm", f"{HYBRID} --use-varlen-dataset", ON_MAIN, "all: DCP028"),
    # The other errors that the launch has on main are said at once.
    ("DCP028", "mlm", f"{HYBRID} --use-varlen-dataset --eval-iters 10", ON_MAIN, "all: DCP013 DCP028"),
    ("DCP028", "mlm", f"{HYBRID} --max-seqlen-per-dp-cp-rnk 4", ON_MAIN, "fine"),  # a misspelling is KEY001's
    ("DCP028", "mlm", f"{HYBRID} --my-own-option 1", ON_MAIN, "fine"),
    ("DCP028", "mlm", f"{HYBRID} --use-varlen-dataset", ON_DEV, "fine"),  # dev has it
    ("DCP028", "mlm", f"{HYBRID} --use-packed-sequence", ON_DEV, "error crash config"),
    ("DCP028", "mlm", f"{HYBRID} --sequence-packing-scheduler dp_balanced", ON_MAIN, "fine"),  # KEY002 says it
    ("DCP028", "mlm", f"{DYNAMIC} --use-varlen-dataset", ON_DEV, "not concerned"),
    ("DCP028", "bridge-provider", PROVIDER, "mcore=0.19.0", "not concerned"),
    ("DCP016", "verl", BOTH_NAMES, VERL_ON_DEV, "all: DCP016"),
    ("DCP016", "verl", BOTH_NAMES, VERL_ON_DEV, "error crash training"),
    ("DCP016", "verl", f"+{OVERRIDE}hybrid_context_parallel=True", VERL_ON_DEV, "error crash training"),
    ("DCP016", "verl", VERL, VERL_ON_DEV, "not concerned"),
    ("DCP016", "mlm", HYBRID, ON_MAIN, "not concerned"),
    ("DCP016", "bridge", "model.context_parallel_size=8", "mcore=0.16.1", "not concerned"),
    ("DCP016", "bridge", BRIDGE.replace("hybrid", "dynamic"), "mcore=0.16.1", "error crash training"),
    ("DCP016", "bridge", BRIDGE, "mcore=0.16.1", "error crash training"),
    ("DCP016", "bridge", PIPELINE, "mcore=0.16.1", "error silent never"),
    ("DCP020", "mlm", HYBRID, "world_size=8 mcore=0.15.3 te=2.14", "all: DCP020"),
    ("DCP020", "mlm", HYBRID, "world_size=8 mcore=0.15.3", "error crash config"),
    ("DCP020", "mlm", HYBRID, "world_size=8 mcore=0.16.0", "fine"),
    ("DCP020", "mlm", DYNAMIC, "world_size=8 mcore=0.19.0 te=2.14", "all: DCP020"),
    ("DCP020", "mlm", DYNAMIC, "world_size=8 mcore=0.19.0 te=2.14", "error crash config"),
    ("DCP020", "bridge-provider", DYNAMIC_PROVIDER, "mcore=0.16.1", "error silent never"),
    ("DCP020", "bridge-provider", PROVIDER, "mcore=0.15.3", "error silent never"),
    ("DCP020", "bridge", DYNAMIC_PROVIDER, "mcore=0.16.1", "not concerned"),  # DCP016 says it
    ("DCP020", "mlm", "--context-parallel-size 8", "mcore=0.15.3", "not concerned"),
    # Both names: main's parser does not know the second, dev's config refuses the pair ("Cannot set both").
    ("DCP020", "mlm", f"{HYBRID} --dynamic-context-parallel", "world_size=8 mcore=0.19.0", "error crash config"),
    ("DCP020", "mlm", f"{DYNAMIC} --hybrid-context-parallel", ON_DEV, "error crash config"),
    # dev's parser takes the old name; initialize.py and validate_args ask for the new one alone.
    ("DCP020", "mlm", HYBRID, ON_DEV, "all: DCP020"),
    ("DCP020", "mlm", HYBRID, ON_DEV, "error silent never"),
    ("DCP020", "verl", VERL, "verl=0.7.1 mcore=0.19.0 mcore_branch=dev", "all: DCP020"),
    ("DCP020", "verl", VERL, VERL_0_7, "error crash init"),
    ("DCP020", "verl", VERL, VERL_0_8, "error crash init"),
    ("DCP020", "verl", VERL, VERL_0_8 + "mcore_branch=dev", "fine"),
    ("DCP020", "verl", VERL, VERL_0_9, "fine"),  # DCP024 says it
    ("DCP020", "verl", VERL, VERL_0_9 + "mcore_branch=dev", "fine"),
    ("DCP020", "mlm", DYNAMIC, ON_DEV, "all:"),
    ("DCP020", "verl", VERL, VERL_ON_DEV, "all:"),
    ("DCP024", "verl", VERL, "verl=0.9.1 mcore=0.19.0", "all: DCP024"),
    ("DCP024", "verl", VERL, "verl=0.9.1 mcore=0.19.0 mcore_branch=main", "all: DCP024"),
    ("DCP024", "verl", VERL, VERL_0_9, "error crash init"),
    ("DCP024", "verl", VERL, VERL_0_8, "fine"),  # a split of its own, without the scheduler
    ("DCP024", "verl", "trainer.nnodes=1", VERL_0_9, "not concerned"),
    ("DCP016", "bridge-provider", PROVIDER, "mcore=0.16.1 te=2.14", "all:"),
    ("DCP016", "bridge", BRIDGE, "mcore=0.16.1 te=2.14", "all: DCP016"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("DCP028", "mlm", f"{HYBRID} --use-varlen-dataset", ON_MAIN, "message: --use-varlen-dataset doesn't exist on main"),
    ("DCP001", "mlm", HYBRID, ON_MAIN_0_19, 'out of range" | hybrid_context_parallel with megatron-core 0.19.0'),
    ("DCP001", "mlm", f"{HYBRID}{TP} 2", ON_16_RANKS, "or hangs because the ranks of a TP group disagree"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.20.0", "builds of 0.20"),
    ("DCP016", "verl", BOTH_NAMES, VERL_ON_DEV, "hybrid_context_parallel in verl, which doesn't wrap"),
    ("DCP016", "verl", BOTH_NAMES, VERL_ON_DEV, "verl's own dynamic_context_parallel"),
    ("DCP016", "bridge", BRIDGE, "mcore=0.16.1", "the first step fails"),
    ("DCP016", "bridge", PIPELINE, "mcore=0.16.1", "no group is ever chosen"),
    ("DCP020", "mlm", DYNAMIC, ON_MAIN_0_19, "argparse rejects the flag"),
    ("DCP020", "bridge-provider", DYNAMIC_PROVIDER, "mcore=0.16.1", "no dynamic groups are built"),
    ("DCP020", "verl", VERL, VERL_0_7, "verl 0.8 or newer"),
    ("DCP020", "verl", VERL, VERL_0_8, "names the parameter differently"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each offered fix writes
    (
        "DCP020",
        "bridge-provider",
        DYNAMIC_PROVIDER,
        "mcore=0.16.1",
        (
            "model.dynamic_context_parallel=false model.hybrid_context_parallel=true",
            "model.dynamic_context_parallel=false",
        ),
    ),
    ("DCP020", "bridge-provider", PROVIDER, "mcore=0.15.3", ("model.hybrid_context_parallel=false",)),
    ("DCP024", "verl", VERL, VERL_0_9, ("actor_rollout_ref.actor.megatron.dynamic_context_parallel=false",)),
]


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("mlm", HYBRID.replace("--hybrid-context-parallel ", "")),
        ("verl", VERL.replace("=True", "=False")),
        ("bridge", PROVIDER.replace("=true", "=false")),
    ],
)
def test_dcp001_to_dcp027_do_not_apply_where_dynamic_cp_is_off(dialect: Dialect, text: str) -> None:
    report = check_launch(launch(dialect, text, "world_size=6 verl=0.8.0 mcore=0.19.0 te=2.14"), RULES, fixes=False)
    concerned = [found.rule.id for found in report.findings] + [item.rule.id for item in report.not_checked]
    assert not [rule for rule in concerned if rule.startswith("DCP") or rule == "LOSS006"]


@pytest.mark.parametrize(
    ("version", "branch"),
    [
        ("0.16.1", "main"),
        ("0.19.0", "main"),
        ("0.19.0+dev.d48bd6be", "dev"),
        ("0.19.0+d48bd6be", None),
        ("0.20.0rc0", None),
    ],
)
def test_dcp020_a_release_is_main_and_a_build_from_git_is_unknown(version: str, branch: str | None) -> None:
    fact = launch("verl", VERL, f"verl=0.9.1 mcore={version}").facts.get("mcore_branch")
    assert (fact.value if fact else None) == branch
