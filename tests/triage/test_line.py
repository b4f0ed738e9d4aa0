"""What stands before a message, whoever wrote it and however the log was copied."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.line import read_line
from megatron_hcp.triage.read import triage


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("2026-01-09 17:40:31.169213 master-0 >> [rank7]: KeyError: 3", (7, None, "")),  # a platform's own margin
        ("  9-task-1-0/0 [default7]:KeyError: 3", (None, 7, "")),  # Megatron-LM's CI
        ("trainer/0 [1]:[E socket.cpp:558] KeyError: 3", (None, 1, "E")),  # torchx
        ("[task 2025-01-21T17:12:18.382Z] [2025-01-21 17:10:38] KeyError: 3", (None, None, "")),  # Taskcluster
        ("  | 2024-08-23T22:22:58.880Z | KeyError: 3", (None, None, "")),  # SageMaker
        ("[rank0]:[titan] 2025-06-16 22:30:48,735 - root - ERROR - KeyError: 3", (0, None, "ERROR")),  # torchtitan
        ("2024-01-01 10:00:00.123 | ERROR    | train:main:12 - KeyError: 3", (None, None, "ERROR")),  # loguru
        ("2024-01-01 10:00:00.123 | ERROR | rank5 | KeyError: 3", (5, None, "ERROR")),  # loguru, with a field
        ("03/05/2024 07:01:51 - KeyError: 3", (None, None, "")),  # transformers' examples
        ("stderr: [rank3]: KeyError: 3", (3, None, "")),
        ("rank13]: KeyError: 3", (13, None, "")),  # copied without its first character
        ("> [rank1]: KeyError: 3", (1, None, "")),
        ("* [rank1]: KeyError: 3", (1, None, "")),
        ("`KeyError: 3", (None, None, "")),
        ("^[[31m[rank1]: KeyError: 3", (1, None, "")),
    ],
)
def test_the_margin_of_a_line_is_taken_off(line, said):
    read = read_line(line.encode())
    assert (read.body, read.rank, read.local, read.level) == ("KeyError: 3", *said)


def test_a_program_that_speaks_is_no_node():
    assert read_line(b"gpu7: x.cu:4: Assertion 'n' failed.").node == "gpu7"
    assert read_line(b"python3: x.cu:4: Assertion 'n' failed.").node is None


def test_the_indentation_of_a_quoted_frame_stays():
    assert read_line(b'>   File "train.py", line 9, in main').body == '  File "train.py", line 9, in main'


def _failure(tmp_path, log):
    (tmp_path / "a.log").write_text(log)
    return triage([tmp_path / "a.log"], CpPlan()).failure


def test_a_margin_that_no_one_knows_is_learnt_from_the_tracebacks_first_line(tmp_path):
    rows = ("Traceback (most recent call last):", '  File "x.py", line 3, in main', "    go()", "ValueError: no")
    tagged = [f"job 12@{second}s| {row}\n" for second, row in enumerate(rows, 50)]
    failure = _failure(tmp_path, "".join(tagged))
    assert failure.cause == "the program raised ValueError: no (x.py:3, in main: go())"
    others = [f"job of bob| step {second}\n" for second in range(4)]
    assert _failure(tmp_path, "".join(map("".join, zip(tagged, others, strict=True)))).message == "ValueError: no"


def test_a_word_before_a_traceback_is_no_margin(tmp_path):
    log = 'worker 3 failed: Traceback (most recent call last):\n  File "x.py", line 3, in main\nValueError: no\n'
    assert _failure(tmp_path, log).message == "ValueError: no"
