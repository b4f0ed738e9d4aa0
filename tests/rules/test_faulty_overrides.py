"""Override lists for a Megatron-Bridge recipe that nobody names: what is wrong with each is found all the same.

What an unknown recipe leaves alone is presumed (launch/facts/presumed.txt). A finding that rests on such a value is a
warning, unless no recipe sets it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import RULES

CP4 = "model.context_parallel_size=4"
HCP = f"{CP4} model.cp_comm_type=a2a+p2p"
HEADS = "model.tensor_model_parallel_size=1 model.num_attention_heads=32 model.num_query_groups"
PACKED = "dataset.offline_packing_specs.packed_sequence_size=4096"
SIZES = "model.hierarchical_context_parallel_sizes"

FAULTY = (
    # (rule, the faulty list, the mended list, assumed)
    ("HCP001", HCP, f"{HCP} {SIZES}=[2,2]", ""),
    ("HCP002", f"{HCP} {SIZES}=[2,4]", f"{HCP} {SIZES}=[2,2]", ""),
    ("HCP006", f"{CP4} {SIZES}=[2,2]", f"{CP4} {SIZES}=[2,2] model.cp_comm_type=a2a+p2p", ""),
    (
        "CP007",
        f"model.context_parallel_size=8 model.cp_comm_type=a2a {HEADS}=4",
        f"model.context_parallel_size=8 model.cp_comm_type=a2a {HEADS}=8",
        "",
    ),
    (
        "HCP007",
        f"model.context_parallel_size=8 model.cp_comm_type=a2a+p2p {SIZES}=[4,2] {HEADS}=2",
        f"model.context_parallel_size=8 model.cp_comm_type=a2a+p2p {SIZES}=[2,4] {HEADS}=2",
        "",
    ),
    ("CP001", f"{CP4} model.seq_length=4100", f"{CP4} model.seq_length=4104", ""),
    ("CP009", f"{CP4} model.window_size=[1024,0]", f"{CP4} model.window_size=[1024,0] model.cp_comm_type=a2a", ""),
    ("CP010", f"{CP4} model.softmax_type=learnable", f"{CP4} model.softmax_type=learnable model.cp_comm_type=a2a", ""),
    ("HCP014", f"{HCP} {SIZES}=[2,2] {PACKED}", f"{CP4} model.cp_comm_type=p2p {PACKED}", "te=2.14"),
    (
        "LOSS001",
        f"{CP4} {PACKED} model.calculate_per_token_loss=false",
        f"{CP4} {PACKED} model.calculate_per_token_loss=true ddp.average_in_collective=false",
        "",
    ),
    (
        "PACK002",
        f"{CP4} {PACKED} dataset.offline_packing_specs.pad_seq_to_mult=4",
        f"{CP4} {PACKED} dataset.offline_packing_specs.pad_seq_to_mult=8",
        "",
    ),
)
IDS = [row[0] for row in FAULTY]
REPORTED = "model:\n  context_parallel_size: 4\n  cp_comm_type: a2a+p2p\n"
"""Megatron-Bridge #2667, as the report has it: with no sizes, context parallelism is off without a word."""


def report(words: str = "", *, target: str = "", assumed: str = "") -> Report:
    return check_launch(
        load_launch(target, LoadOptions(words=tuple(words.split()), assumes=tuple(assumed.split()))), RULES
    )


def found(of: Report) -> set[str]:
    """The rules with an error, or with a warning about a recipe that leaves a key at its default."""
    sure = [finding for finding in of.findings if not finding.problem.only_in]
    return {finding.rule.id for finding in sure if finding.severity == "error" or finding.presumed}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("rule_id", "faulty", "mended", "assumed"), FAULTY, ids=IDS)
def test_a_fault_is_found_without_the_recipe(rule_id: str, faulty: str, mended: str, assumed: str) -> None:
    assert rule_id in found(report(faulty, assumed=assumed))


@pytest.mark.sample(3)
@pytest.mark.parametrize(("rule_id", "faulty", "mended", "assumed"), FAULTY, ids=IDS)
def test_the_mended_list_has_no_such_finding(rule_id: str, faulty: str, mended: str, assumed: str) -> None:
    of = report(mended, assumed=assumed)
    assert found(of) == set()
    assert rule_id not in {finding.rule.id for finding in of.findings if not finding.problem.only_in}


def test_a_fault_that_some_recipes_avoid_is_a_warning_that_names_the_key_and_how_many() -> None:
    of = report(f"{CP4} model.window_size=[1024,0]")
    (warning,) = (finding for finding in of.findings if finding.rule.id == "CP009")
    assert warning.severity == "warning"
    (presumed,) = (item for item in warning.presumed if item.key == "model.cp_comm_type")
    assert presumed.value == "p2p" and 0 < presumed.recipes_set < presumed.recipes / 10


@pytest.mark.parametrize("form", ["yaml", "overrides", "container"])
def test_bridge_2667_fails_in_every_form(form: str, tmp_path: Path, root: Path) -> None:
    if form == "overrides":
        of = report(HCP)
    else:
        text = REPORTED
        if form == "container":
            written = (root / "examples" / "bridge_hcp.yaml").read_text()
            text = written.replace("  hierarchical_context_parallel_sizes:\n  - 4\n  - 2\n", "")
            assert "hierarchical_context_parallel_sizes" not in text and "ConfigContainer" in text
        (tmp_path / "run.yaml").write_text(text)
        of = report(target=str(tmp_path / "run.yaml"))
    (error,) = (finding for finding in of.findings if finding.rule.id == "HCP001")
    assert error.severity == "error"
    assert of.verdict == "failed"
