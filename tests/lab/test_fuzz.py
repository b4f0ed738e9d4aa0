"""The fuzzer: that it sees each fault for which it looks, and that some thousands of its inputs show none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import fuzz
import pytest
from fuzzer import faulty
from fuzzer import run as fuzz_run
from fuzzer.case import Case
from fuzzer.readers import READERS, made
from fuzzer.run import Fault, examine
from fuzzer.seeds import gathered
from fuzzer.shrink import shrunk
from fuzzer.workers import Done, Plan, run_all

from support.selection import examples

ROOT = Path(__file__).resolve().parents[2]
SKILL = "context-parallel-planning"
Command = Callable[[list[str]], None]
CASE = Case("shell", ("check", "run.sh"), (("run.sh", b"x\n"), ("hcp_decoy.sh", b"x\n")))
JSON = CASE._replace(words=("check", "run.sh", "--format", "json"))
GITHUB = CASE._replace(words=("check", "run.sh", "--format=github"))


def kinds(command: Command, folder: Path, case: Case = CASE) -> set[str]:
    """The kinds of faults that are seen in a command."""
    here = folder / "here"
    here.mkdir()
    seen = {fault.kind for fault in examine(case, here, command).faults}
    assert not list(here.iterdir())
    return seen


def bench(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(ROOT / "lab"), "fuzz", *words]
    return subprocess.run(program, capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.slow
def test_fixed_inputs_show_no_fault() -> None:
    done = bench("--inputs", str(examples(quick=30, full=2000)), "--seed", "1", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(reader in done.stdout for reader in READERS)


def test_the_interpreter_compiles_nothing_during_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    during: list[bool] = []
    kinds(lambda words: during.append(sys.dont_write_bytecode), tmp_path)
    assert set(during) == {True}
    assert not sys.dont_write_bytecode


@pytest.mark.slow
def test_an_input_is_the_same_wherever_it_is_made() -> None:
    one, other = (bench("--inputs", "100", "--show", PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert one.stdout == other.stdout
    assert one.stdout != bench("--inputs", "100", "--show", "--seed", "5").stdout


@pytest.mark.parametrize(
    "command", [faulty.fine, faulty.unusable, faulty.exits_with(4), faulty.prints("::notice ::x\n")]
)
def test_a_command_without_fault_shows_none(command: Command, tmp_path: Path) -> None:
    assert not kinds(command, tmp_path, GITHUB._replace(words=(*GITHUB.words, "out.x")))


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (faulty.raises, "traceback"),
        (faulty.shows_a_traceback, "traceback"),
        (faulty.exits_with(3), "exit code"),
        (faulty.exits_with(5), "exit code"),
        (faulty.starts_a_program, "touched"),
        (faulty.calls_a_shell, "touched"),
        (faulty.connects, "touched"),
        (faulty.reads_elsewhere, "touched"),
        (faulty.reads_what_nobody_named, "touched"),
        (faulty.lists_elsewhere, "touched"),
        (faulty.removes_its_input, "touched"),
        (faulty.prints("\x1b[2J"), "control character"),
        (faulty.prints("a\rb"), "control character"),
        (faulty.prints("a\tb"), "control character"),
        (faulty.prints("\x9b2J"), "control character"),
        (faulty.prints("\u202eabc"), "control character"),
        (faulty.prints("\udc80"), "control character"),
        (faulty.prints("", 1, "\x07"), "control character"),
        (faulty.prints("fine\n::error ::x\n"), "command to CI"),
        (faulty.prints("fine\n \t::error ::x\n"), "command to CI"),
        (faulty.prints("fine ##[error]x\n"), "command to CI"),
        (faulty.prints("", 2), "exit 2 without its one line"),
        (faulty.prints("", 2, "hcp: a\nhcp: b\n"), "exit 2 without its one line"),
        (faulty.prints("", 2, "hcp: a\nb\n"), "exit 2 without its one line"),
        (faulty.prints("", 2, "hcp: a"), "exit 2 without its one line"),
    ],
)
def test_each_fault_is_seen(command: Command, kind: str, tmp_path: Path) -> None:
    assert kind in kinds(command, tmp_path)


@pytest.mark.parametrize(
    ("case", "text", "kind"),
    [
        (JSON, "{", "no JSON"),
        (JSON, "{}", "schema"),
        (JSON, '{"schema": "check"}', "schema"),
        (JSON, '{"schema": "hcp.facts/1", "x": "\u202e"}', "control character"),
        (GITHUB, "::add-mask::x\n", "command to CI"),
        (GITHUB, "::set-output name=x::y\n", "command to CI"),
        (CASE._replace(words=("check", "--format", "sarif")), "{", "no JSON"),
    ],
)
def test_each_fault_of_a_format_is_seen(case: Case, text: str, kind: str, tmp_path: Path) -> None:
    assert kind in kinds(faulty.prints(text), tmp_path, case)


@pytest.mark.parametrize("command", [faulty.prints("a SECRET"), faulty.prints("", 1, "hcp: a SECRET\n")])
def test_a_planted_secret_that_is_shown_is_seen(command: Command, tmp_path: Path) -> None:
    assert kinds(command, tmp_path, CASE._replace(secret="SECRET")) == {"secret"}


def test_secrets_are_planted_in_scripts_configurations_and_logs() -> None:
    cases = [made(reader, 1, number, gathered(())) for reader in ("shell", "yaml", "triage") for number in range(40)]
    planted = [case for case in cases if case.secret]
    assert len(planted) > 10
    assert all(any(case.secret.encode() in data for _, data in case.files) for case in planted)


def test_a_message_is_answered_by_the_servers_own_code_with_its_planted_path_refused(tmp_path: Path) -> None:
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": f"hcp://skills/{SKILL}/{name}"}}
             for name in ("SKILL.md", "/etc/passwd")]  # fmt: skip
    case = Case("message", ("mcp",), (), b"\n".join([*(json.dumps(line).encode() for line in lines), b"{"]))
    seen = examine(case, tmp_path)
    assert not seen.faults
    read, refused, unread = json.loads(seen.answer.out)["answers"]
    assert read["text"] and refused["schema"] == "hcp.error/1" and unread["error"]["code"] == -32700


def test_a_dry_run_is_asked_for_up_to_its_child_and_none_is_started(tmp_path: Path) -> None:
    seen = [examine(made("dryrun", 1, number, gathered(())), tmp_path) for number in range(25)]
    assert not any(one.faults for one in seen)
    assert {one.answer.code for one in seen} == {0, 2}


def test_what_programs_say_reaches_the_doctors_report_and_starts_none(tmp_path: Path) -> None:
    case = Case("doctor", ("doctor", "--format", "json"), (), b'[[0, "GPU 0: a\\u001b[2J (x)\\n", "", ""]]')
    seen = examine(case, tmp_path)
    assert not seen.faults
    (gpus,) = (line for line in json.loads(seen.answer.out)["found"] if line["name"] == "GPUs")
    assert gpus["state"] == "ok" and gpus["text"].startswith("1: a")


def test_every_door_of_the_command_line_has_a_reader() -> None:
    """A command that reads something is called by at least one case."""
    called = {made(reader, 1, number, gathered(())).words[:1] for reader in READERS for number in range(25)}
    reading = {"check", "show", "render", "triage", "skills", "verify", "dcp", "pack", "groups", "explain", "plan",
               "support", "anchors", "mcp", "init", "dryrun", "doctor"}  # fmt: skip
    assert reading <= {words[0] for words in called if words}


def test_json_is_held_against_its_schema(tmp_path: Path) -> None:
    if not fuzz_run.SCHEMAS.is_dir():
        pytest.skip("there are no schemas/")
    pytest.importorskip("jsonschema")
    assert kinds(faulty.prints('{"schema": "hcp.check/2"}'), tmp_path, JSON) == {"schema"}


def test_a_file_outside_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    monkeypatch.setenv("HCP_FUZZ_ELSEWHERE", str(outside))
    assert kinds(faulty.writes_elsewhere, tmp_path) == {"touched"}
    assert not outside.exists()


def test_foreign_code_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "hcp_decoy.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    assert "touched" in kinds(faulty.imports_foreign_code, tmp_path)


def test_endless_work_is_ended_and_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_run, "CPU_S", 0.1)
    monkeypatch.setattr(fuzz_run, "ENDS_AFTER_S", 0.2)
    assert "CPU" in kinds(faulty.burns, tmp_path)


def test_memory_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_run, "MEMORY", fuzz_run.BARE + 40_000_000)
    assert kinds(faulty.holds, tmp_path) == {"memory"}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "kind"), [(faulty.dies, "died"), (faulty.changes_its_mind, "another answer")])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_dead_process_and_a_changed_answer_are_told(
    command: Command, kind: str, jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    works = [("groups", 0), ("groups", 1), ("groups", 2)]
    assert fuzz.run(works, Plan(1, (), main=command), jobs) == 1
    out = capsys.readouterr().out
    assert f"{kind}: " in out
    assert "--seed 1 --only groups:" in out


def test_the_answer_of_the_second_run_counts_once() -> None:
    tally = fuzz.Tally()
    work = ("shell", 7)
    assert not tally.add(Done(work, b"a", (), 0.1, 0))
    assert [fault.kind for _, fault, _ in tally.add(Done(work, b"b", (), 0.1, 0))] == ["another answer"]
    fault = Fault("traceback", "x")
    assert len(tally.add(Done(("shell", 8), b"a", ((fault, CASE),), 0.1, 3))) == 1
    assert not tally.add(Done(("shell", 8), b"a", ((fault, CASE),), 0.1, 3))
    assert not tally.add(Done(("shell", 9), b"a", ((fault, CASE),), 0.1, 3))
    assert tally.counts["shell", fault] == 2
    assert tally.inputs["shell"] == 3


def test_all_inputs_run_without_fault_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.run([("shell", 0)], Plan(1, ()), 1, [Done(("shell", 0), b"a", (), 0.1, 0)]) == 0
    assert "faults" in capsys.readouterr().out


def test_the_smallest_input_is_looked_for() -> None:
    text = b"".join(b"line %d\n" % number for number in range(100)) + b"x needle y\n"
    case = Case("shell", ("check", "--strict", "run.sh", "--set", "a=b"), (("run.sh", text), ("other", b"abc\n" * 9)))
    small = shrunk(case, lambda other: b"needle" in dict(other.files)["run.sh"] and "run.sh" in other.words)
    assert small.words == ("check", "run.sh")
    assert dict(small.files)["run.sh"] == b"needle"
    assert len(dict(small.files)["other"]) <= 1


def test_shares_are_those_of_the_table() -> None:
    works = fuzz.shares(1000, tuple(READERS))
    assert len(works) == len({*works}) == 1000
    for reader, (share, _) in READERS.items():
        assert sum(name == reader for name, _ in works) == 10 * share
    assert fuzz.shares(10, ["card"]) == [("card", number) for number in range(10)]


@pytest.mark.slow
def test_every_case_runs_twice() -> None:
    works = fuzz.shares(30, ["groups", "lengths"])
    done = list(run_all(Plan(1, ()), works, 2))
    assert sorted(one.work for one in done) == sorted(works * 2)


@pytest.mark.slow
def test_one_case_of_some_runs_twice_where_that_is_asked_for() -> None:
    works = fuzz.shares(60, ["groups", "lengths"])
    done = Counter(one.work for one in run_all(Plan(1, (), again=5), works, 1))
    assert set(done) == set(works)
    for reader in ("groups", "lengths"):
        assert 1 <= sum(times == 2 for (name, _), times in done.items() if name == reader) <= 15
