"""Every row of the triage table: its example is recognised in a log, its near miss is not."""

import re

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.signatures.table import SIGNATURES
from support.examples import EXAMPLES
from support.logs import context_of, said
from support.rows import rows


def _seen(tmp_path, line, context=""):
    log = tmp_path / "x.log"
    log.write_text("a line before\n" + context + line + "\na line after\n")
    failure = triage([log], CpPlan()).failure
    return failure.signature.id if failure else None


@rows("row", SIGNATURES)
def test_the_example_is_recognised_as_this_row(row, tmp_path):
    assert _seen(tmp_path, said(row, EXAMPLES[row.id].example), context_of(row)) == row.id


@pytest.mark.slow
@rows("row", SIGNATURES)
def test_the_near_miss_is_not_this_row(row, tmp_path):
    assert _seen(tmp_path, said(row, EXAMPLES[row.id].near), context_of(row)) != row.id


_NAMES = ("train-4711-r1-n1.log", "train-4711-r2-node3.log", "attempt_1/0/stderr.log", "slurm-4711.out", "rank_3.log")
"""As rendered jobs, torchrun and others name the log of a later attempt, or of one rank."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", _NAMES)
def test_an_example_means_the_same_in_the_only_log_of_any_attempt(name, tmp_path):
    """A log that begins with a step and ends with the example, by its name the second or third attempt's."""
    plain, log = tmp_path / "x.log", tmp_path / name
    log.parent.mkdir(parents=True, exist_ok=True)
    wrong = []
    for row in SIGNATURES:
        text = (
            " iteration 5/ 10 | elapsed time per iteration (ms): 81 |\n"
            + context_of(row)
            + said(row, EXAMPLES[row.id].example)
        )
        found = []
        for path in (plain, log):
            path.write_text(text)
            diagnosis = triage([path], CpPlan())
            found.append((diagnosis.state, diagnosis.failure and diagnosis.failure.signature.id))
        if found[0] != found[1]:
            wrong.append((row.id, *found))
    assert not wrong


@pytest.mark.parametrize("row", [row for row in SIGNATURES if row.context], ids=lambda row: row.id)
def test_a_text_that_other_faults_share_needs_its_context(row, tmp_path):
    assert _seen(tmp_path, EXAMPLES[row.id].example) != row.id


def test_each_row_has_its_lines_and_no_lines_are_of_no_row():
    assert list(EXAMPLES) == [row.id for row in SIGNATURES]


def test_ids_are_unique_and_rules_are_ids_of_the_catalogue():
    assert len({row.id for row in SIGNATURES}) == len(SIGNATURES)
    assert all(re.fullmatch(r"|[A-Z]+\d{3}", row.rule) for row in SIGNATURES)


@rows("row", SIGNATURES)
def test_every_name_in_a_cause_is_a_group_of_the_pattern(row):
    assert set(re.findall(r"{(\w+)}", row.cause)) <= set(re.compile(row.pattern).groupindex)
    assert set(re.findall(r"{(\w+)}", " ".join(row.next))) <= {"job", "node", "launch", "rule", "memory"}


_SAID_BY = {
    "hcp-product-source": ("megatron-core", "np.prod(hierarchical_context_parallel_sizes) == context_parallel_size"),
    "hcp-two-levels": ("transformer-engine", "requires cp_group = [a2a_cp_group, p2p_cp_group]"),
    "hcp-te-too-old": ("megatron-core", "hierarchical cp commucation"),
    "hcp-bias": ("transformer-engine", "bias type is not supported with hierarchical CP"),
    "cp-window": ("transformer-engine", "support sliding window att"),
    "cp-tp-slice": ("megatron-core", "First dimension of the tensor should be divisible by tensor parallel size"),
    "cp-comm-spelling": ("transformer-engine", "Unsupported communication type: "),
    "cp-comm-list": ("megatron-core", "Length of cp_comm_type ("),
    "cp-local-attention": ("megatron-core", "Context parallelism is only supported by TEDotProductAttention"),
    "cp-a2a-heads": ("transformer-engine", "requires num_heads % cp_size == 0"),
    "cp-gqa-tp": ("megatron-core", "must be a multiple or divisor of"),
    "cp-padding-mask": ("transformer-engine", "Padding mask not supported with context parallelism"),
    "cp-fp8": ("transformer-engine", "FP8 is only supported with Fused Attention"),
    "attention-backend": ("transformer-engine", "No dot product attention backend is available"),
    "pack-micro-batch": ("megatron-bridge", "Micro batch size should be 1 when training with packed"),
    "pack-verl": ("verl", "Context parallel size without seq_pack"),
    "loss-per-token": ("megatron-bridge", "When finetuning with CP>1"),
    "topology-world": ("megatron-core", "is not divisible by"),
    "topology-order": ("megatron-core", "When not using pp-last rank ordering"),
    "mamba-heads": ("megatron-core", "nheads must be evenly divisible by tp_size"),
    "nvte-switch": ("megatron-core", "for attention backend type"),
    "dcp-too-long": ("megatron-core", "There should be at least one group existing, cannot re"),
    "dcp-even": ("megatron-core", "requires an even number of ranks"),
    "dcp-mla": ("megatron-core", "hybrid_context_parallel is not supported with MLA"),
    "dcp-build": ("verl", "Dynamic CP requires a Megatron-Core build"),
    "dcp-verl-length": ("verl", "tokens needs at least"),
    "nan-loss": ("megatron-core", "found NaN in local"),
}
"""Row -> (distribution, a text of its source that stands in the row's example)."""


@pytest.fixture(scope="session")
def python_sources(upstream_dir):
    texts: dict[str, list[str]] = {}
    for folder in sorted(upstream_dir.iterdir()):
        name = folder.name.rpartition("-")[0]
        texts.setdefault(name, []).extend(path.read_text(errors="replace") for path in folder.rglob("*.py"))
    return {name: "\n".join(parts) for name, parts in texts.items()}


@pytest.fixture(scope="session")
def upstream_dir():
    import os
    from pathlib import Path

    return Path(os.environ.get("HCP_UPSTREAM", Path.home() / ".cache" / "hcp-upstream"))


@pytest.mark.upstream
@pytest.mark.parametrize("row", [row for row in SIGNATURES if row.id in _SAID_BY], ids=lambda row: row.id)
def test_upstream_really_says_it(row, python_sources):
    distribution, text = _SAID_BY[row.id]
    assert text in python_sources[distribution]
    assert text in EXAMPLES[row.id].example


@pytest.mark.parametrize("size", ["data-type size", "element size"])
def test_the_size_of_a_file_is_none_of_the_launch(tmp_path, size):
    assert _seen(tmp_path, f"ValueError: Size of available data is not a multiple of the {size}.") == "exception"
    assert _seen(tmp_path, "ValueError: the batch size is not a multiple of the micro-batch size.") == "size-divides"
