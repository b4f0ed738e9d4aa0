"""A step passes, fails, is skipped or is ended: each with one clear reason, and nothing is left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import Card, Expect, Needs, Step
from megatron_hcp.skills.steps import program_of, run_step, steps_up_to
from support.processes import HANG_S, have_ended

CARD = Card("a-skill", "t", "s", {"x": ">=1"}, (), (), (), (), (), (), Path("."))


def python(code: str, **options: object) -> Step:
    return Step(**{"id": "s", "run": ("python", "-c", code), "level": "cpu", "timeout_s": HANG_S, **options})  # type: ignore[arg-type]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("print('all well')", "passed", ""),
        (
            "import sys; print('groups differ', file=sys.stderr); sys.exit(1)",
            "failed",
            "exit 1, wanted exit 0: groups differ",
        ),
        (
            "import sys; print('no torch', file=sys.stderr); sys.exit(2)",
            "failed",
            "exit 2 (could not run), wanted exit 0: no torch",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "failed", "signal 11, wanted exit 0: no output"),
        ("raise ValueError('odd')", "failed", "exit 1, wanted exit 0: ValueError: odd"),
    ],
)
def test_the_exit_status_decides_and_the_reason_quotes_the_program(code: str, status: str, reason: str) -> None:
    result = run_step(CARD, python(code))
    assert (result.status, result.reason) == (status, reason)


def test_the_last_line_of_a_passing_step_is_kept_as_evidence() -> None:
    assert run_step(CARD, python("print('a'); print('max error 1e-15')")).last_line == "max error 1e-15"


def test_a_step_that_wants_a_failure_passes_on_that_very_exit_status() -> None:
    assert run_step(CARD, python("import sys; sys.exit(1)", expect=Expect(1))).status == "passed"
    assert run_step(CARD, python("pass", expect=Expect(1))).reason == "exit 0, wanted exit 1: no output"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ('{"findings": [{"rule": "HCP001"}]}', ""),
        ('{"findings": [{"rule": "HCP002"}]}', 'findings.0.rule in its JSON is "HCP002", wanted "HCP001"'),
        ('{"findings": []}', 'findings.0.rule in its JSON is nothing, wanted "HCP001"'),
        ("oops", "wanted JSON on stdout, found: oops"),
    ],
)
def test_values_in_the_json_output_are_compared(printed: str, reason: str) -> None:
    step = python(f"print({printed!r})", expect=Expect(0, {"findings.0.rule": "HCP001"}))
    result = run_step(CARD, step)
    assert (result.status, result.reason) == ("failed" if reason else "passed", reason)


@pytest.mark.parametrize("printed", ["'[' * 100_000", "'9' * 5000", "'{' * 5"])
def test_output_that_json_cannot_hold_fails_the_step(printed: str) -> None:
    step = python(f"print({printed})", expect=Expect(0, {"a": 1}))
    assert run_step(CARD, step).reason.startswith("wanted JSON on stdout, found: ")


@pytest.mark.slow
def test_what_a_step_prints_cannot_act_on_the_terminal_or_start_a_line() -> None:
    code = r"print('\x1b]52;c;aGk=\a\u202e\r\x85::error::x')"
    assert run_step(CARD, python(code)).last_line == "::error::x"
    result = run_step(CARD, python(code.replace("\\r\\x85", "") + "; raise SystemExit(1)"))
    assert result.reason == r"exit 1, wanted exit 0: \x1b]52;c;aGk=\x07\u202e::error::x"
    result = run_step(CARD, python(r"print('{\"a\": \"\\u202e\"}')", expect=Expect(0, {"a": "\x1b", "b\n": 2})))
    assert result.reason.isprintable() and "wanted" in result.reason


def test_a_step_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    code = "import sys\nprint('first')\nwhile True:\n    sys.stdout.write('x' * 100_000 + '\\n')"
    result = run_step(CARD, python(code))
    assert result.status == "failed" and result.reason.startswith("printed more than 20,000,000 bytes; ended; last ")
    assert len(result.reason) < 400


def test_a_program_that_cannot_be_started_fails_its_step() -> None:
    result = run_step(CARD, python("x" * 3_000_000))
    assert (result.status, result.reason) == ("failed", "could not start: Argument list too long")


def test_what_a_step_lacks_is_named_and_it_counts_as_skipped() -> None:
    result = run_step(CARD, python("pass", needs=Needs(packages=("no-such-package",))))
    assert (result.status, result.reason) == ("skipped", "needs no-such-package, not installed")
    result = run_step(CARD, python("pass", needs=Needs(programs=("no-such-program",))))
    assert (result.status, result.reason) == ("skipped", "needs the program no-such-program")


def test_a_wheel_that_is_not_unpacked_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HCP_UPSTREAM", str(tmp_path))
    result = run_step(CARD, python("pass", needs=Needs(wheels=("some-wheel",))))
    assert (result.status, result.reason) == ("skipped", "needs an unpacked wheel of some-wheel in $HCP_UPSTREAM")
    (tmp_path / "some-wheel-1.2.0").mkdir()
    assert run_step(CARD, python("pass", needs=Needs(wheels=("some-wheel",)))).status == "passed"


def test_missing_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run_step(CARD, python("pass", needs=Needs(gpus=4)))
    assert (result.status, result.reason) == ("skipped", "needs 4 GPUs, found 0")


@pytest.mark.slow
def test_a_hanging_step_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    """The grandchild sits in a session of its own and ignores SIGTERM, as torchrun's workers may."""
    pids = tmp_path / "pids"
    code = f"""
import os, signal, subprocess, sys, time
worker = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(10**6)"
child = subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
print("waiting", flush=True)
time.sleep(10**6)
"""
    result = run_step(CARD, python(code, timeout_s=2))
    assert (result.status, result.reason) == ("failed", "still running after 2 s; ended; last line: waiting")
    family = [int(pid) for pid in pids.read_text().split()]
    assert have_ended(family)


def test_steps_run_in_a_new_folder_and_can_import_hcp() -> None:
    result = run_step(CARD, python("import os, megatron_hcp; print(len(os.listdir()), megatron_hcp.__version__ != '')"))
    assert result.last_line == "0 True"


@pytest.mark.parametrize("name", ["no_such_check", "longer_than_a_file_system_allows" * 10])
def test_a_check_outside_the_pack_is_refused(name: str) -> None:
    step = Step("s", ("python", f"checks/{name}.py"), "cpu", 5)
    with pytest.raises(HcpError, match=rf"found no checks/{name}\.py in the pack"):
        program_of(step, Path("."))
    assert run_step(CARD, step).status == "failed"


def test_levels_include_the_lower_ones() -> None:
    steps = tuple(Step(level, ("hcp",), level, 1) for level in ("static", "cpu", "gpu"))
    card = Card("a", "t", "s", {}, (), (), (), steps, (), (), Path("."))
    assert [step.id for step in steps_up_to(card, "static")] == ["static"]
    assert [step.id for step in steps_up_to(card, "gpu")] == ["static", "cpu", "gpu"]
