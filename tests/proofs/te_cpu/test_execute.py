"""Transformer Engine's own attention on gloo processes: the oldest release, 2.14, the newest, and what was found.

`python lab te_cpu` runs every case of every release; these are the cases that the claims rest on.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from te_record import by_release, entries_of, record_of, with_table, written  # noqa: E402

from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.proofs.te_cpu.case import COMMS, AttentionCall, Inputs, every_case  # noqa: E402
from megatron_hcp.proofs.te_cpu.execute import WHOLE_GRADIENT, Result, run_release  # noqa: E402
from megatron_hcp.proofs.te_cpu.load import STAND_INS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]

RELEASES = ("2.1.0", "2.14.0", "2.20.2")
RECORD = Path(__file__).parents[3] / "lab/results/te_cpu.json"


def release(upstream: Path, version: str) -> Path:
    return upstream / f"transformer-engine-{version}"


def verdicts(results: list[Result]) -> dict[str, str]:
    return {str(result.case): result.verdict for result in results}


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_does_what_the_record_says(upstream: Path, version: str) -> None:
    recorded = by_release(json.loads(RECORD.read_text()))[version]
    cases = [case for case in every_case() if case.feature in ("causal", "window", "no load balance")]
    cases += [
        AttentionCall(comm, "sbhd", "cuDNN", feature) for comm in COMMS for feature in ("full", "sinks", "MLA heads")
    ]
    found = entries_of(run_release(release(upstream, version), cases))
    assert found == {case: recorded[case] for case in found}


def test_the_skills_table_is_the_records() -> None:
    page = (RECORD.parents[2] / "skills/hierarchical-context-parallel/references/transformer-engine.md").read_text()
    assert page == with_table(page, json.loads(RECORD.read_text())), "run lab/te_cpu.py --write"
    assert "| `all_gather` | thd | FlashAttention 2 | **wrong** 2.18+ |" in page
    assert "| `a2a+p2p` | thd | cuDNN | 2.19+ |" in page


def test_a_record_is_read_back_as_it_was_written() -> None:
    text = RECORD.read_text()
    assert written(record_of(by_release(json.loads(text)))) == text


@pytest.mark.parametrize("sizes", [(2, 1), (2, 4), (4, 2)])
def test_other_numbers_of_ranks_and_shapes_of_the_levels_are_right_too(upstream: Path, sizes: tuple[int, int]) -> None:
    cases = [AttentionCall(comm, layout, "cuDNN", "GQA") for comm in COMMS for layout in ("bshd", "thd padded")]
    found = verdicts(run_release(release(upstream, "2.20.2"), cases, sizes))
    assert found == {str(case): "right" for case in cases}


def test_packed_data_gathered_for_flash_attention_2_is_wrong_and_nobody_says_so(upstream: Path) -> None:
    fa2, fa3, fused = (
        AttentionCall("all_gather", "thd", kernel, "causal")
        for kernel in ("FlashAttention 2", "FlashAttention 3", "cuDNN")
    )
    for version in ("2.18.0", "2.19.0", "2.20.2"):
        by_kernel = run_release(release(upstream, version), [fa2, fa3, fused])
        assert [result.verdict for result in by_kernel] == ["wrong", "right", "right"]
        assert [result.not_chosen for result in by_kernel] == ["", "", ""]
    (before,) = run_release(release(upstream, "2.15.0"), [fa2])
    assert before.verdict == "refused" and "cp_comm_type='all_gather' and qkv_format='thd'" in before.outcome.text


def test_every_rank_of_a2a_holds_the_sinks_whole_gradient(upstream: Path) -> None:
    for version in ("2.8.0", "2.20.2"):
        results = run_release(release(upstream, version), [AttentionCall("a2a", "bshd", "cuDNN", "sinks")])
        assert [(result.verdict, result.outcome.text) for result in results] == [("right", WHOLE_GRADIENT)]


def test_every_stand_in_replaces_a_name_of_the_release(upstream: Path) -> None:
    for version in RELEASES:
        sources = release(upstream, version).glob("transformer_engine/pytorch/**/*.py")
        text = "".join(path.read_text() for path in sources)
        assert [row.name for row in STAND_INS if row.name not in text] == []


def test_a_folder_without_a_release_is_named(tmp_path: Path) -> None:
    with pytest.raises(HcpError, match="found no Transformer Engine"):
        run_release(tmp_path / "transformer-engine-2.20.2", [])


def test_inputs_of_padded_rows_end_with_whole_chunks_of_padding_and_odd_lengths() -> None:
    inputs = Inputs(AttentionCall("p2p", "thd padded", "cuDNN", "causal"), 4)
    assert (inputs.lengths, inputs.padded) == ([13, 27, 5], [16, 32, 8])
    assert int(inputs.counts.sum()) == 45
    assert float(inputs.dout[~inputs.counts].abs().sum()) == 0
