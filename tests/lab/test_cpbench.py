"""CP-Bench: what is collected from a checkout, how an answer counts, and what a changed launch is."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from agree.megatron_lm_launches import Drawn
from cpbench.answers import Answer, command, ours, outcome_of, says_ok
from cpbench.case import Case, read_cases, write_cases
from cpbench.mutants import changes_of, script_of
from cpbench.published import cases_of
from cpbench.reports import cases_of_reports

GREEN = Case("g", "x", "run.sh")
RED = Case("r", "x", "run.sh", expect="refused", names=("seq_length", "--seq-length"))
OPTIONS: dict[str, dict[str, Any]] = {
    "--seq-length": {"choices": None, "takes": 1},
    "--bf16": {"choices": None, "takes": 0},
    "--fp8-format": {"choices": ["e4m3", "hybrid"], "takes": 1},
}
CARD = """
items:
  sft:
    H100:
      command: ./scripts/training/train.sh --nodes 1 --recipe llama3_8b_pretrain_config
  inference:
    command: ./scripts/inference/infer.sh --model x
weak_scaling:
  - command: ./scripts/training/train.sh --nodes 2 --recipe llama3_8b_pretrain_config
"""


@pytest.mark.parametrize(
    ("case", "answer", "outcome"),
    [
        (GREEN, Answer(0, ""), "ok"),
        (GREEN, Answer(1, "seq_length"), "false error"),
        (GREEN, Answer(4, ""), "undecided"),
        (RED, Answer(0, "seq_length"), "silent"),
        (RED, Answer(0, "", "seq_length is long"), "told"),
        (RED, Answer(1, "--seq-length is odd"), "refused"),
        (RED, Answer(1, "no"), "wrong cause"),
        (RED, Answer(2, "seq_length"), "no answer"),
    ],
)
def test_a_refusal_counts_with_its_cause_only_if_it_names_it(case: Case, answer: Answer, outcome: str) -> None:
    assert outcome_of(case, answer) == outcome


def test_a_tool_gets_the_file_and_the_releases(tmp_path: Path) -> None:
    case = Case("c", "x", "run.sh", {"run.sh": "torchrun x.py\n"}, versions=("te=2.14", "mcore=0.17"))
    program = tmp_path / "tool.py"
    program.write_text("import sys; print(open(sys.argv[1]).read(), *sys.argv[2:]); sys.exit(1)")
    answer = command(f"{sys.executable} {program} {{file}} {{versions}}")(case)
    said = "torchrun x.py\n te=2.14 mcore=0.17\n"
    assert answer == Answer(1, said, said)
    assert says_ok(case).code == 0


def test_hcp_is_asked_with_the_releases_only_where_they_are_stated() -> None:
    text = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 4095\n"
    case = Case("c", "x", "run.sh", {"run.sh": text}, versions=("mcore=0.19.0",))
    answer = ours(versions=True)(case)
    assert answer.code == 1 and "CP001" in answer.text and "seq_length" in answer.text


def test_cases_are_written_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    assert write_cases(file, [GREEN, RED]) == 2
    assert list(read_cases(file)) == [GREEN, RED]
    file.write_text(json.dumps({"schema": "another/1"}) + "\n")
    with pytest.raises(ValueError, match=r"no case of hcp\.cpbench/1"):
        list(read_cases(file))


def test_a_checkouts_scripts_and_cards_are_collected_with_its_version(tmp_path: Path) -> None:
    files = {
        "src/megatron/bridge/package_info.py": "MAJOR = 0\nMINOR = 7\nPATCH = 0\n",
        "examples/train.sh": "torchrun scripts/training/run_recipe.py --recipe x\n",
        "examples/convert.sh": "# then run_recipe.py\npython convert.py\n",
        "examples/model_verification_cards/x/card.yaml": CARD,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = list(cases_of(tmp_path))
    assert [case.id for case in found] == [
        f"{tmp_path.name}:examples/train.sh", "card:x:items/sft/H100", "card:x:weak_scaling/0",
    ]  # fmt: skip
    assert {case.versions for case in found} == {("bridge=0.7.0",)}
    with pytest.raises(ValueError, match="found no checkout of"):
        list(cases_of(tmp_path / "examples"))


def test_a_changed_launch_differs_in_one_option() -> None:
    launch = Drawn(("--seq-length", "4096", "--bf16"), 16, {"A": "1 2", "B": None})
    changes = list(changes_of(launch, OPTIONS, random.Random(1)))
    assert {change.words for change in changes} >= {
        ("--seq-length", "4096"),
        ("--bf16",),
        ("--seq-length", "4097", "--bf16"),
        ("--seq-length", "4096", "--bf16", "--fp8-format", "e4m3"),
    }
    assert launch.words not in {change.words for change in changes}
    start = "torchrun --nproc-per-node 8 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint host0:29500 pretrain_gpt.py"
    assert script_of(launch) == f"#!/bin/bash\nexport A='1 2'\n{start} --seq-length 4096 --bf16\n"


def test_a_report_becomes_a_file_with_the_names_of_its_cause(tmp_path: Path) -> None:
    row = {
        "id": "x-1", "source": "NVIDIA/Megatron-LM#1", "cause": "EP without experts", "must": "error or warning",
        "argv": ["--launcher", "mlm", "--assume", "te=2.14 world_size=16", "--", "--expert-model-parallel-size", "4"],
        "files": {}, "reach": True, "expect": ["MOE001"],
    }  # fmt: skip
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (row, {**row, "must": "nothing"})))
    (case,) = cases_of_reports(file)
    start = "torchrun --nproc-per-node 8 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint host0:29500 pretrain_gpt.py"
    assert case.files["run.sh"].endswith(f"{start} --expert-model-parallel-size 4\n")
    assert case.versions == ("te=2.14", "world_size=16") and case.expect == "refused"
    assert {"MOE001", "#1", "expert_model_parallel_size", "--num-experts"} <= {*case.names}
