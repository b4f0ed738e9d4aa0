"""What a grader sees in an answer, and what it does not fall for."""

from __future__ import annotations

import pytest

from megatron_hcp.skills.evals.grade import commands_in, faults_of_answer
from megatron_hcp.skills.evals.task import Grade, Task

CP = Grade("config", "bridge", assume=("te=2.14", "heads=32", "kv_heads=8"), facts={"cp": 4, "hcp_sizes": [2, 2]})
GOOD = "model.context_parallel_size=4 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=[2,2]"


def faults(grade: Grade, answer: str, used: str | None = None) -> list[str]:
    return faults_of_answer(Task("t", "?", None, grade), answer, used)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "answer",
    [
        f"```\n{GOOD}\n```",
        f"First:\n\n```bash\n$ {GOOD}\n```\n",
        "```yaml\nmodel:\n  context_parallel_size: 4\n  cp_comm_type: a2a+p2p\n"
        "  hierarchical_context_parallel_sizes: [2, 2]\n```",
        f"```\nhcp check -- {GOOD}\n```",
        "~~~\n" + GOOD.replace(" ", " \\\n  ") + "\n~~~",
    ],
)
def test_a_launch_is_found_however_it_is_written(answer: str) -> None:
    assert faults(CP, answer) == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Set the sizes to [2,2].", "contains no readable launch"),
        (f"```\n{GOOD.replace('[2,2]', '[4,2]')}\n```", "HCP002"),
        (f"```\n{GOOD.replace('_size=4', '_size=8').replace('[2,2]', '[4,2]')}\n```", "cp is 8, wanted 4"),
        ("```\nmodel.context_parallel_size=4 model.cp_comm_type=p2p\n```", "hcp_sizes is None"),
        (f"```\n{GOOD}\n```\nor rather\n```\n{GOOD.replace('[2,2]', 'null')}\n```", "HCP001"),
    ],
)
def test_a_wrong_launch_is_said(answer: str, said: str) -> None:
    assert any(said in fault for fault in faults(CP, answer)), faults(CP, answer)


def test_a_command_is_parsed_and_never_run(tmp_path) -> None:
    grade = Grade("command", run=("hcp", "check"), wants=(("te=2.14",),), unwanted=("--allow-undecided",))
    assert faults(grade, "`hcp check run.yaml --assume te=2.14`") == []
    assert faults(grade, "```\n$ hcp check \\\n  run.yaml --assume te=2.14\n```") == []
    assert faults(grade, "Say hcp check and te=2.14.") == ["gives no command that begins with hcp check"]
    assert faults(grade, "`hcp check run.yaml`; te=2.14") == ["says none of te=2.14"]
    assert faults(grade, "`hcp check a --assume te=2.14 --allow-undecided`") == ["says --allow-undecided"]
    mark = tmp_path / "ran"
    faults(grade, f"```\nhcp check $(touch {mark})\ntouch {mark}\n```")
    assert not mark.exists()


def test_words_are_whole_and_case_does_not_matter() -> None:
    grade = Grade("names", wants=(("CP 1", "hcp001"),), unwanted=("p2p",))
    assert faults(grade, "use CP 16") == ["says none of CP 1, hcp001"]
    assert faults(grade, "rule **HCP001**, `a2a`") == []
    assert faults(grade, "cp 1 with p2p") == ["says p2p"]


def test_a_skill_stays_unused() -> None:
    grade = Grade("none")
    assert faults(grade, "Use FSDP.") == []
    assert faults(grade, "Use FSDP.", used="a-skill") == ["used the skill a-skill"]
    assert faults(grade, "`hcp check x`") == ["runs hcp check x"]


def test_blocks_and_spans_are_commands() -> None:
    assert commands_in("`a b`\n```sh\n$ c \\\n d\n\ne\n```\n`f`") == ["c   d", "e", "a b", "f"]
