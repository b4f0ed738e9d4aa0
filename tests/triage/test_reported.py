"""Failures that users reported publicly: their first cause is named, in at most a screen of text.

reported.jsonl holds short excerpts, each with where it was reported (`source`), what was wrong (`cause`), and the
signatures that say so (`expect`).
"""

import json
from pathlib import Path

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text
from support.rows import rows

CASES = [json.loads(line) for line in (Path(__file__).parent / "reported.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.slow
@rows("case", CASES)
def test_the_first_cause_is_the_reported_one(tmp_path, case):
    (tmp_path / "job.log").write_text("\n".join(case["log"]) + "\n", "utf-8")
    diagnosis = triage([tmp_path / "job.log"], CpPlan())
    assert diagnosis.failure is not None, case["cause"]
    assert diagnosis.failure.signature.id in case["expect"], case["cause"]
    text = diagnosis_text(diagnosis, None)
    assert len(text.splitlines()) <= 20 and text.count("\ndo: ") == 1, text


PREFIXES = ("3: ", "[rank3]: ", "3: [default3]:[rank3]: ", "(Worker pid=7, ip=fd00::2) ", "gpu-12: ", "[1,3]<stderr>:")


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_cause_is_the_same_under_every_launcher(tmp_path, prefix):
    """What a line means does not depend on who passes it on."""
    other = []
    for case in CASES:
        if "Root Cause (first" in "".join(case["log"]) or any(line.startswith("srun") for line in case["log"]):
            continue
        (tmp_path / "job.log").write_text("".join(f"{prefix}{line}\n" for line in case["log"]), "utf-8")
        failure = triage([tmp_path / "job.log"], CpPlan()).failure
        if failure is None or failure.signature.id not in case["expect"]:
            other.append((case["source"], failure and failure.signature.id))
    assert not other
