"""DCP rules on names and versions: Megatron-LM's main and dev branch, Bridge and verl."""

from __future__ import annotations

import pytest

from hcp.launch.fact import Dialect
from hcp.rules.engine import check_launch
from hcp.rules.registry import RULES
from support.launches import DYNAMIC, HYBRID, ON_DEV, ON_MAIN, OVERRIDE, PROVIDER, VERL, VERL_ON_DEV
from support.rules import Row, launch, test_verdict

__all__ = ["test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.18.2 te=2.14", "all: DCP001"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.20.0 te=2.14", "all: DCP001"),
    ("DCP001", "mlm", HYBRID, ON_MAIN, "all:"),
    ("DCP001", "mlm", HYBRID, "world_size=8 mcore=0.21.0 te=2.14", "all:"),
    ("DCP016", "verl", f"{VERL}+{OVERRIDE}hybrid_context_parallel=True", VERL_ON_DEV, "all: DCP016"),
    ("DCP020", "mlm", HYBRID, "world_size=8 mcore=0.15.3 te=2.14", "all: DCP020"),
    ("DCP020", "mlm", DYNAMIC, "world_size=8 mcore=0.19.0 te=2.14", "all: DCP020"),
    ("DCP020", "verl", VERL, "verl=0.7.1 mcore=0.19.0 mcore_branch=dev", "all: DCP020"),
    ("DCP020", "mlm", DYNAMIC, ON_DEV, "all:"),
    ("DCP020", "verl", VERL, VERL_ON_DEV, "all:"),
    ("DCP024", "verl", VERL, "verl=0.9.1 mcore=0.19.0", "all: DCP024"),
    ("DCP024", "verl", VERL, "verl=0.9.1 mcore=0.19.0 mcore_branch=main", "all: DCP024"),
    ("DCP016", "bridge-provider", PROVIDER, "mcore=0.16.1 te=2.14", "all:"),
    ("DCP016", "bridge", f"{PROVIDER} model.pipeline_model_parallel_size=1", "mcore=0.16.1 te=2.14", "all: DCP016"),
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
