"""A record proves something about exactly the code that a step ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import megatron_hcp.skills.record as record
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import Step, find_skill, load_card
from megatron_hcp.skills.record import closure_of, digest_of, write_record
from megatron_hcp.skills.steps import StepResult
from support.cards import skill_in, stale_steps, step

pytestmark = pytest.mark.xdist_group("records")  # what is parsed once serves test_digest.py, too
STEP = Step("parity", ("python", "checks/attention_parity.py", "--sizes", "2,2"), "cpu", 10)


def names(step: Step) -> set[str]:
    return {path.name for path in closure_of(step)}


@pytest.mark.slow
def test_the_closure_holds_what_the_step_imports_and_nothing_else() -> None:
    found = names(STEP)
    assert {"attention_parity.py", "attention.py", "online_softmax.py", "shards.py", "program.py"} <= found
    assert "training_step.py" not in found and "check.py" not in found
    assert {"check.py", "engine.py", "registry.py"} <= names(Step("s", ("hcp", "check", "x"), "static", 1))


def test_the_digest_changes_with_the_words_and_with_any_file_of_the_closure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = digest_of(STEP)
    assert digest_of(STEP) == before
    assert digest_of(Step("parity", (*STEP.run[:-1], "4,2"), "cpu", 10)) != before
    changed = tmp_path / "attention.py"
    changed.write_text("# changed")
    closure = closure_of(STEP)
    monkeypatch.setattr(record, "closure_of", lambda step: closure | {changed})
    assert digest_of(STEP) != before


def test_an_edit_is_noticed_although_files_are_parsed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "parity.py").write_text("import json\n")
    (tmp_path / "helper.py").write_text("")
    monkeypatch.setattr(record, "pack_dir", lambda name: tmp_path)
    step = Step("parity", ("python", "checks/parity.py"), "cpu", 10)
    assert names(step) == {"parity.py"}
    before = digest_of(step)
    (tmp_path / "parity.py").write_text("import helper\n")
    os.utime(tmp_path / "parity.py", (1, 1))  # an editor may be quicker than the clock of the file system
    assert names(step) == {"parity.py", "helper.py"} and digest_of(step) != before


def test_a_record_of_other_code_a_failed_step_and_a_missing_one_are_stale(tmp_path: Path) -> None:
    card = load_card(find_skill("hierarchical-context-parallel"))
    step = card.verify[0]
    folder = tmp_path / card.skill
    (folder / "config").mkdir(parents=True)
    copy = type(card)(**{**vars(card), "folder": folder, "verify": (step,)})
    assert stale_steps(copy) == ["no verified.json: run hcp verify --record"]
    for entry, fault in (
        ({"status": "passed", "digest": digest_of(step)}, []),
        ({"status": "passed", "digest": "0"}, [f"{step.id}: recorded for other code"]),
        ({"status": "failed", "digest": digest_of(step)}, [f"{step.id}: recorded as failed"]),
    ):
        (folder / record.RECORD_PATH).write_text(json.dumps({"steps": {step.id: entry}}))
        assert stale_steps(copy) == fault
    (folder / record.RECORD_PATH).write_text(json.dumps({"steps": {}}))
    assert stale_steps(copy) == [f"{step.id}: not recorded"]


def test_only_a_checkout_is_written_to(tmp_path: Path) -> None:
    card = load_card(find_skill("hierarchical-context-parallel"))
    copy = type(card)(**{**vars(card), "folder": tmp_path})
    with pytest.raises(HcpError, match="wanted a checkout"):
        write_record(copy, [StepResult(copy, card.verify[0], "passed")])


def checkout(folder: Path, *steps: str) -> Path:
    """A checkout with a skill that has these steps, as far as `--record` looks at it."""
    skill = skill_in(folder / "skills", *(step(id=name) for name in steps))
    (folder / "src" / "megatron_hcp").mkdir(parents=True)
    return skill


def recorder(skill: Path, names: list[str]) -> subprocess.Popen[str]:
    """A process that records each of the steps as passed, one by one, as `hcp verify SKILL:STEP --record` does."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import megatron_hcp.skills.record as record\n"
        "from megatron_hcp.skills.card import load_card\n"
        "from megatron_hcp.skills.steps import StepResult\n"
        "skill = Path(sys.argv[1])\n"
        "record._PACKAGE = skill.parents[1] / 'src' / 'megatron_hcp'\n"
        "record.digest_of = lambda step, folder: 'x'\n"
        "card = load_card(skill)\n"
        "for step in card.verify:\n"
        "    if step.id in sys.argv[2:]:\n"
        "        record.write_record(card, [StepResult(card, step, 'passed')])\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, skill, *names], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_that_record_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(80)]
    skill = checkout(tmp_path, *names)
    both = [recorder(skill, names[::2]), recorder(skill, names[1::2])]
    assert [process.communicate()[1] for process in both] == ["", ""]
    data = json.loads((skill / record.RECORD_PATH).read_text())
    assert sorted(data["steps"]) == sorted(names)
    assert sorted(path.name for path in (skill / "config").iterdir()) == ["card.yaml", "verified.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "5", '{"steps": 5}', '{"steps": {"s": 5}}', "[" * 100_000, "9" * 5000]
)
def test_what_is_no_record_is_refused_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    skill = checkout(tmp_path, "s")
    monkeypatch.setattr(record, "_PACKAGE", tmp_path / "src" / "megatron_hcp")
    (skill / record.RECORD_PATH).write_text(text)
    card = load_card(skill)
    with pytest.raises(HcpError, match=r"verified\.json"):
        stale_steps(card)
    with pytest.raises(HcpError, match=r"verified\.json"):
        write_record(card, [])
    assert (skill / record.RECORD_PATH).read_text() == text


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = checkout(tmp_path, "s")
    monkeypatch.setattr(record, "_PACKAGE", tmp_path / "src" / "megatron_hcp")
    os.mkfifo(skill / record.RECORD_PATH)
    with pytest.raises(HcpError, match="is not a regular file"):
        write_record(load_card(skill), [])


def test_a_full_disk_is_one_line_and_the_old_record_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = checkout(tmp_path, "s")
    monkeypatch.setattr(record, "_PACKAGE", tmp_path / "src" / "megatron_hcp")
    card = load_card(skill)
    write_record(card, [StepResult(card, card.verify[0], "passed")])
    before = (skill / record.RECORD_PATH).read_text()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HcpError, match=r"cannot write .*No space left on device"):
        write_record(card, [StepResult(card, card.verify[0], "failed")])
    assert (skill / record.RECORD_PATH).read_text() == before


def test_that_a_record_cannot_be_written_is_said_before_the_steps_run(hcp, tmp_path: Path) -> None:
    skill = skill_in(tmp_path, step(run=["python", "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]))
    done = hcp("verify", "--trust", "--record", skill)
    assert done.returncode == 2 and "wanted a checkout" in done.stderr
    assert not (tmp_path / "ran").exists()
