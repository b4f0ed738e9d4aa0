"""`hcp support`: its tables, its formats, and that it says what `hcp check` says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from families import FAMILIES
from support_agrees import Judges, draws

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.facts.releases import TRANSFORMER_ENGINE
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.support.matrix import UNBOUNDED, SupportTable, spans_of, support_table
from megatron_hcp.support.question import MODEL_WORDS, Subject, Way

ROOT = Path(__file__).resolve().parents[2]
Hcp = Callable[..., "CompletedProcess[str]"]
STATED = ("te=2.14", "mcore=0.19.2", "arch=sm90", "cudnn=9.21")


def table_of(folder: Path, family: str, *assumes: str) -> SupportTable:
    file = folder / "config.json"
    name = next(name for name in FAMILIES if name.startswith(family))
    file.write_text(json.dumps(FAMILIES[name]), encoding="utf-8")
    options = LoadOptions(dialect="mlm", words=MODEL_WORDS, model_file=str(file), assumes=assumes)
    launch = load_launch("", options)
    return support_table(Subject(launch.reading, launch.assumed, launch.model))


def sizes_of(table: SupportTable, comm_type: str, layout: str) -> list[Any]:
    """By tensor-parallel size: the largest size, or the rules that stop it."""
    cells = [cell for cell in table.cells if (cell.comm_type, cell.layout) == (comm_type, layout)]
    return [cell.largest or cell.blocked for cell in cells]


def test_a2a_is_bounded_by_the_kv_heads_of_a_rank_and_the_ring_by_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path, "Llama", *STATED)
    assert sizes_of(table, "p2p", "sbhd") == [UNBOUNDED] * 4
    assert sizes_of(table, "a2a", "sbhd") == [8, 4, 2, ("CP007",)]
    assert sizes_of(table, "a2a+p2p", "sbhd") == [8, 4, 2, ("HCP007",)]
    # Transformer Engine 2.14 has no packed data with all_gather or a2a+p2p.
    assert sizes_of(table, "all_gather", "thd") == [("PACK007",)] * 4
    assert sizes_of(table, "a2a+p2p", "thd")[0] == ("HCP014",)
    assert (table.presumed, table.by_release) == ((), ())


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("family", "comm_type", "expected"),
    [
        ("Mistral", "p2p", ("CP009",)),
        ("Mistral", "all_gather", UNBOUNDED),
        ("Gemma", "a2a", 16),
        ("Gemma", "a2a+p2p", ("HCP018",)),
        ("gpt-oss", "a2a", 8),
        # Its multi-token prediction wants rotary positions: the model has them, Megatron-LM by default not.
        ("DeepSeek with MLA", "p2p", UNBOUNDED),
        ("gpt-oss", "p2p", ("CP009", "CP010")),
        ("DeepSeek with MLA", "a2a+p2p", 128),
        ("DeepSeek with MLA", "a2a", ("CP015",)),
        ("DeepSeek with DSA", "all_gather", UNBOUNDED),
        ("DeepSeek with DSA", "p2p", ("MODEL002",)),
        ("vision", "a2a", 8),
        ("Qwen MoE", "a2a", 4),
    ],
)
def test_each_family_has_the_types_that_its_attention_allows(
    family: str, comm_type: str, expected: Any, tmp_path: Path
) -> None:
    assert sizes_of(table_of(tmp_path, family, *STATED), comm_type, "sbhd")[0] == expected


@pytest.mark.slow
def test_a_fact_that_a_rule_needs_and_nobody_states_is_named(tmp_path: Path) -> None:
    packed = [
        cell
        for cell in table_of(tmp_path, "gpt-oss", "te=2.18", "mcore=0.19.2", "arch=sm90").cells
        if (cell.comm_type, cell.layout, cell.tp) == ("a2a", "thd", 1)
    ]
    assert [(cell.largest, cell.unknown) for cell in packed] == [(8, ("cudnn",))]


def test_unknown_versions_are_told_by_release(tmp_path: Path) -> None:
    table = table_of(tmp_path, "Llama", "mcore=0.19.2")
    assert dict(table.presumed) == {"te": TRANSFORMER_ENGINE[-1]}
    rows = {(row.comm_type, row.layout): row.spans for row in table.by_release}
    packed = rows["a2a", "thd"]
    assert [(span.first, span.last, span.blocked) for span in packed] == [
        ("1.12.0", "2.9.0", ("PACK007",)),
        ("2.10.0", None, ()),
    ]


def test_the_releases_asked_about_are_those_that_were_executed() -> None:
    record = json.loads((ROOT / "lab/results/te_cpu.json").read_text(encoding="utf-8"))
    assert set(record["releases"]) <= set(TRANSFORMER_ENGINE)


def test_runs_of_equal_answers_are_one_span() -> None:
    spans = spans_of(("1", "2", "3"), lambda release: () if release == "2" else ("X001",))
    assert [tuple(span) for span in spans] == [("1", "1", ("X001",)), ("2", "2", ()), ("3", None, ("X001",))]


@pytest.mark.slow
def test_support_says_what_check_says_of_random_launches() -> None:
    judges = Judges()
    found = [judges.disagreement(drawn) for drawn in draws(random.Random(7), 150)]
    assert [one for one in found if one is not None] == []


WITH_REFERENCE = """
defaults: [ppo_megatron_trainer, _self_]
actor_rollout_ref:
  model: {path: Qwen/Qwen3-8B, use_remove_padding: true}
  actor: {strategy: megatron, use_kl_loss: true, megatron: {context_parallel_size: 2, tensor_model_parallel_size: 2}}
  ref: {megatron: {pipeline_model_parallel_size: 3}}
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""


def test_support_says_what_check_says_of_a_launch_with_several_models(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(WITH_REFERENCE, encoding="utf-8")
    launch = load_launch(str(file), LoadOptions())
    assert launch.reading.others
    subject = Subject(launch.reading, launch.assumed, launch.model)
    for comm_type, mcore in (("p2p", "0.15.3"), ("a2a", "0.16.1"), ("all_gather", "0.12.3")):
        way, versions = Way(comm_type, "thd", 2, 4), (("te", "2.14.0"), ("mcore", mcore))
        report = check_launch(subject.launch_of(way, versions), rules_for, fixes=False)
        errors = {finding.rule.id for finding in report.findings if finding.severity == "error"}
        assert "TOPO003" in errors, "an error of the reference model alone"
        assert set(subject.ask(way, versions).blocked) == errors


@pytest.mark.slow
def test_a_launch_is_asked_about_in_its_own_dialect(hcp: Hcp, root: Path) -> None:
    data = json.loads(hcp("support", "examples/verl_dcp.yaml", "--tp", "1", "--format", "json", cwd=root).stdout)
    hierarchical = [cell for cell in data["cells"] if cell["cp_comm_type"] == "a2a+p2p"]
    assert all("HCP010" in cell["blocked"] for cell in hierarchical)
    assert data["rules"]["HCP010"]


def test_text_and_page_name_the_model_and_the_rules(hcp: Hcp, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(FAMILIES["Llama (3.1 8B)"]), encoding="utf-8")
    words = ("config.json", "--assume", "te=2.14", "mcore=0.19.2", "--tp", "1,8", "--html", "page.html")
    done = hcp("support", *words, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == [
        "config.json: largest context-parallel size",
        "cp_comm_type layout  tp 1            tp 8",
    ]
    assert "a2a          sbhd    8               CP007" in done.stdout
    assert "PACK007: This Transformer Engine supports packed data" in done.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<td class=error>CP007</td>" in page and "Context parallelism for config.json" in page


@pytest.mark.sample(6)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_line_has_more_than_80_columns_and_every_size_has_one(family: str, tmp_path: Path) -> None:
    from megatron_hcp.cli.reports.support import lines
    from megatron_hcp.cli.screen import safe_line

    said = [safe_line(line) for line in lines(table_of(tmp_path, family), "config.json")]
    assert max(map(len, said)) <= 80
    assert said[1].startswith("on Transformer Engine ") and said[1].endswith(" (assumed, because not stated)")


@pytest.mark.slow
def test_many_sizes_stand_in_several_tables(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["Llama (3.1 8B)"]), encoding="utf-8")
    said = hcp("support", "config.json", "--tp", "1,2,4,8,16,32", cwd=tmp_path).stdout.splitlines()
    heads = [line.split()[2:] for line in said if line.startswith("cp_comm_type")]
    assert heads == [["tp", "1", "tp", "2", "tp", "4", "tp", "8"], ["tp", "16", "tp", "32"]]
    assert max(map(len, said)) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "found no model and no launch"),
        (("a.json", "b.json"), "found 2 targets"),
        (("missing.json",), "missing.json does not exist"),
        (("x.json", "--tp", "0"), "--tp '0': wanted sizes from 1"),
        (("x.json", "--tp", "two"), "--tp 'two': wanted sizes from 1"),
    ],
)
def test_what_cannot_be_used_is_one_line(hcp: Hcp, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(FAMILIES["Llama (3.1 8B)"]), encoding="utf-8")
    done = hcp("support", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
