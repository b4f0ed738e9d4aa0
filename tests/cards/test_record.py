"""A record proves something about exactly the code that a step ran."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import hcp.cards.record as record
from hcp.cards.card import Step, find_skill, load_card
from hcp.cards.record import closure_of, digest_of, stale_steps, write_record
from hcp.cards.steps import StepResult
from hcp.core.errors import HcpError

STEP = Step("parity", ("python", "checks/attention_parity.py", "--sizes", "2,2"), "cpu", 10)


def names(step: Step) -> set[str]:
    return {path.name for path in closure_of(step)}


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
