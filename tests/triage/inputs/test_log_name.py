"""What the path of a log says about it."""

import re

from megatron_hcp.resources import pack_dir
from megatron_hcp.triage.inputs.log_name import is_record

LOGS = ("comm.txt", "health.txt")
"""What programs print into files with a record's ending: a failure happens in them."""


def test_every_record_that_a_rendered_job_writes_is_known_by_its_name():
    text = "".join(path.read_text() for path in pack_dir("templates").glob("*.sbatch.j2"))
    text += "".join(path.read_text() for path in pack_dir("templates").glob("_*.j2"))
    names = {name.replace("$attempt", "1") for name in re.findall(r"\$run/([\w$-]+\.(?:json|txt))\b(?!\.)", text)}
    assert len(names) >= 8 and set(LOGS) < names
    assert {name for name in names if not is_record(f"runs/12/{name}")} == set(LOGS)
