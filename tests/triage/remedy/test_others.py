"""What looks like a kind of failure that has a step of its own, and is another."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from support.logs import write_logs

OWN = '  File "/srv/u/run/train.py", line 12, in main\n    fit(model, batch)\n'
POPEN = OWN + '  File "/usr/lib/python3.11/subprocess.py", line 1950, in _execute_child\n    raise e(n, m)\n'
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: "
OPERANDS = "TypeError: unsupported operand type(s) for "
REFUSED = "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/"


@pytest.mark.parametrize(
    ("frames", "said", "named", "unnamed"),
    [
        (POPEN, f"{NO_FILE}'/srv/u/gone'", "/srv/u/gone, a program or the folder that it is to start in", "on PATH"),
        (POPEN, f"{NO_FILE}'ninja'", "on PATH", "folder that it is to start in"),
        (OWN, f"{REFUSED}models/org/model-8b/tree/main", "the terms of org/model-8b on", "api/models"),
        (OWN, f"{REFUSED}whoami-v2", "token", "the terms of"),
        (OWN, "RuntimeError: No valid credentials found for s3://bucket", "the credentials", "values"),
        (OWN, "KeyError: 'rope is not in the registry'", "rope is not in the registry: correct", "has no key"),
        (OWN, "ValueError: seq_length should be a multiple of 8, but 10 was given", "so that this holds", "?"),
        (OWN, "ValueError: expected 4 heads of --name, but got 3", "", "so that this holds"),
        (OWN, "ValueError: invalid literal for int() with base 10: '3e4'", "'3e4' is no int", "number"),
        (OWN, "ValueError: checkpoint of world size 8, the current world size is 4", "and 4 run now", "_extra_state"),
        (OWN, f"{OPERANDS}/: 'str' and 'str'", "another type", "YAML"),
        (OWN, f"{OPERANDS}*: 'float' and 'str'", "YAML", "another type"),
        (
            OWN.replace("fit(model, batch)", "def f(x: int | None):"),
            f"{OPERANDS}|: 'type' and 'NoneType'",
            "needs a newer Python",
            "is None",
        ),
        (
            OWN.replace("fit(model, batch)", "mask = left | right"),
            f"{OPERANDS}|: 'Tensor' and 'NoneType'",
            "is None",
            "newer Python",
        ),
    ],
)
def test_a_step_is_of_this_kind_and_not_of_the_other(tmp_path, frames, said, named, unnamed):
    log = f"Traceback (most recent call last):\n{frames}{said}\n"
    steps = diagnosis_json(triage(write_logs(tmp_path, a_log=log), CpPlan()), None)["first_failure"]["next"]
    told = " / ".join(steps)
    assert named in told and unnamed not in told
