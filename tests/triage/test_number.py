"""Numbers of logs pass one function, which may say that there is none."""

import ast
from pathlib import Path

import pytest

import megatron_hcp.triage
from megatron_hcp.triage.exit_codes import exit_code
from megatron_hcp.triage.inputs.log_name import read_name
from megatron_hcp.triage.line import last_time, read_line
from megatron_hcp.triage.number import number, whole

MODULES = sorted(Path(megatron_hcp.triage.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("text", ["123.412.5", "400.1.", ".", "", "nan", "inf", "1e9", "١٢", "²", "0x1", "1_0", None])
def test_what_is_no_number_is_none(text):
    assert number(text) is None and whole(text) is None


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_of_thousands_of_digits_is_none_wherever_it_stands(digits):
    huge = "9" * digits
    assert number(huge) is None and whole(huge) is None
    assert read_line(f"[rank{huge}]: x".encode()).rank is None
    assert read_name(f"x-rank{huge}.log").rank is None and read_name(f"attempt_{huge}/0/stderr.log").attempt is None
    assert exit_code({"how": f"Exited with exit code {huge}"}) is None
    assert last_time(f"2026-08-22 10:00:00.{huge} x") == (8, 22, 36000.999999999)


def test_no_other_module_of_triage_makes_numbers_of_texts():
    made = {path.name: _makes_numbers(path) for path in MODULES}
    assert {name: calls for name, calls in made.items() if calls} == {
        "number.py": ["float", "int"],
        "report.py": ["int"] * 3,  # of seconds, which are numbers already
    }


def _makes_numbers(path: Path) -> list[str]:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return sorted(call.id for call in calls if isinstance(call, ast.Name) and call.id in ("int", "float"))
