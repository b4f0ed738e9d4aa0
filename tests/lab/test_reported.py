"""The harness of reported faults: what counts as caught, missed and a false alarm, each for the right reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MTP = ["--launcher", "mlm", "--assume", "mcore=0.19", "--assume", "world_size=4", "--", "--context-parallel-size", "2"]


def case(name: str, **changes: Any) -> dict[str, Any]:
    plain = {
        "id": name,
        "source": "o/none#1",
        "title": "of no matter here at all",
        "kind": "check",
        "files": {},
        "argv": [*MTP, "--mtp-num-layers", "1"],
        "cause": "something else entirely",
        "reach": True,
        "must": "error or warning",
        "expect": [],
    }
    return {**plain, **changes}


def outcomes(root: Path, folder: Path, *cases: dict[str, Any], wanted: str = "0") -> tuple[int, dict[str, str], str]:
    """The exit status, the outcome of each case with its reason, and the last line."""
    file = folder / "cases.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in cases))
    command = [sys.executable, str(root / "lab"), "reported", str(file), "--wanted", wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    *lines, _, last = done.stdout.splitlines()
    return done.returncode, {item["id"]: line for item, line in zip(cases, lines)}, last


@pytest.mark.slow
def test_a_fault_is_caught_by_its_rule_by_its_report_or_by_its_words(root: Path, tmp_path: Path) -> None:
    status, said, last = outcomes(
        root,
        tmp_path,
        case("rule", expect=["KNOWN004"]),
        case("report", source="NVIDIA/Megatron-LM#1 / #6746"),
        case("words", cause="rolls of slice edges over the world's process group hang"),
        case("other-number", source="NVIDIA/TransformerEngine#6746"),
    )
    assert said["rule"].startswith("caught") and said["rule"].endswith("KNOWN004")
    assert said["report"].startswith("caught") and "by the report" in said["report"]
    assert said["words"].startswith("caught") and "words:" in said["words"]
    assert said["other-number"].startswith("missed") and "only other findings: KNOWN004" in said["other-number"]
    assert last == "3 of 4 reported faults caught with the right cause: 75%"
    assert status == 0


@pytest.mark.slow
def test_too_few_caught_is_a_failure(root: Path, tmp_path: Path) -> None:
    assert outcomes(root, tmp_path, case("a"), wanted="0.5")[0] == 1


@pytest.mark.slow
def test_a_warning_on_a_mended_launch_is_a_false_alarm_and_a_failure(root: Path, tmp_path: Path) -> None:
    quiet = case("quiet", must="silent", argv=["--launcher", "mlm", "--", "--context-parallel-size", "2"])
    status, said, _ = outcomes(root, tmp_path, case("loud", must="silent"), quiet)
    assert said["loud"].startswith("false alarm") and said["quiet"].startswith("fine")
    assert status == 1


@pytest.mark.slow
def test_what_no_static_check_can_know_counts_for_nothing(root: Path, tmp_path: Path) -> None:
    _, said, last = outcomes(root, tmp_path, case("data", reach=False, must="nothing"))
    assert said["data"].startswith("not run")
    assert last.startswith("0 of 0")


@pytest.mark.slow
def test_a_launch_of_another_framework_is_read_or_refused(root: Path, tmp_path: Path) -> None:
    files = {"cfg.yaml": "base_model: m\nsequence_len: 8192\nsample_packing: true\n"}
    _, said, _ = outcomes(
        root, tmp_path, case("axolotl", must="read, or refused by name", files=files, argv=["{dir}/cfg.yaml"])
    )
    assert said["axolotl"].startswith("fine") and said["axolotl"].endswith("refused")
