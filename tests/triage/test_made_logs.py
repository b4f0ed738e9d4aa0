"""No log makes triage fail, however broken: what cannot be read says nothing."""

import json
import unicodedata

import pytest

from megatron_hcp.core.ranks import RankMesh
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_document
from megatron_hcp.triage.screen_text import diagnosis_text
from support.made_logs import made_log
from support.selection import examples

PLAN = CpPlan(cp=4, hcp_sizes=(2, 2), cp_groups=RankMesh({"tp": 2, "cp": 4}).groups("cp"), arch="sm90")
COMMANDS = ("sacct", "hcp", "squeue", "sbatch")


def _diagnose(tmp_path, seed):
    path = tmp_path / "made.log"
    path.write_bytes(made_log(seed))
    try:
        diagnosis = triage([path], PLAN)
    except HcpError as error:
        assert "found no text" in str(error)
        return ""
    text, document = diagnosis_text(diagnosis, "train.sh"), diagnosis_document(diagnosis, "train.sh")
    json.loads(document)
    said = text + document
    controls = {letter for letter in said if letter != "\n" and unicodedata.category(letter) in ("Cc", "Cf", "Cs")}
    assert not controls, f"seed {seed}: {controls}"
    for step in [line.partition("next: ")[2] for line in text.splitlines() if "next: " in line]:
        if step.startswith(COMMANDS):
            assert not set(step) & set(";|&$`<>\\\"'#\n"), f"seed {seed}: {step}"
    return said


@pytest.mark.sample(4)
@pytest.mark.parametrize("first", range(0, 1600, 400))
def test_a_made_log_is_read_without_a_fault(tmp_path, first):
    for seed in range(first, first + examples(quick=8, full=400)):
        try:
            _diagnose(tmp_path, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 18_000, 1000))
def test_thousands_of_made_logs_are_read_without_a_fault(tmp_path, first):
    for seed in range(first, first + 1000):
        try:
            _diagnose(tmp_path, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.slow
def test_the_made_logs_reach_what_they_are_made_for(tmp_path):
    """A generator that makes only noise would prove nothing."""
    said = "".join(_diagnose(tmp_path, seed) for seed in range(400))
    assert said.count("first failure:") > 200
    assert said.count("LOG002") > 3 and said.count('"left_out": []') < said.count("left_out")
