"""What the path of a log says about it."""

import re
from pathlib import Path

import megatron_hcp.job
from megatron_hcp.resources import pack_dir
from megatron_hcp.triage.inputs.log_name import is_record

LOGS = ("comm.txt", "health.txt")
"""What programs print into files with a record's ending: a failure happens in them."""


def test_every_record_that_a_rendered_job_writes_is_known_by_its_name():
    text = "".join(path.read_text() for path in pack_dir("templates").glob("_*.j2"))
    names = {name.replace("$attempt", "1") for name in re.findall(r"\$run/([\w$-]+\.(?:json|txt))\b(?!\.)", text)}
    job = Path(megatron_hcp.job.__file__).parent
    for path in job.glob("*.py"):
        names |= set(re.findall(r"run / f?\"([\w.-]+\.(?:json|txt))\"", path.read_text()))
    names |= {"verdict-r1.json", "verdict-r1.preempted.json"}
    assert len(names) >= 8 and set(LOGS) < names
    assert {name for name in names if not is_record(f"runs/12/{name}")} == set(LOGS)
