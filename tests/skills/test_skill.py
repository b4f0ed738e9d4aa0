"""A skill's folder that somebody else made is judged in lines, whatever lies in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.skill import front_matter, judged_skill
from support.cards import BODY, FRONT, skill_in, step
from support.processes import HANG_S


def faults(skill: Path) -> str:
    """The faults, each of them one printable line."""
    found = [fault for faults in judged_skill(skill) for fault in faults]
    assert all(line.isprintable() for line in found)
    return "\n".join(found)


def test_a_sound_skill_has_no_faults(tmp_path: Path) -> None:
    assert faults(skill_in(tmp_path, step())) == ""


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("name: a-skill", "description: found nothing; wanted text"),
        ("5", "is a YAML text at its top; wanted front matter"),
        ("[1]", "is a YAML list at its top"),
        ("", "is empty; wanted front matter"),
        (FRONT[4:-4] + "1: 2", "1: found an unknown key; wanted only name, description"),
        ("name: a-skill\ndescription: x\nmetadata: 5", "metadata: found 5; wanted a mapping"),
        ("name: a-skill\ndescription: x\nmetadata: [1]", "metadata: found [1]; wanted a mapping"),
        ("name: a-skill\ndescription: x\nmetadata: {author: {}}", "metadata.author: found an empty mapping"),
        ("name: [1]\ndescription: x", "name: found [1]; wanted text"),
        ("name: 2001-99-99\ndescription: x", "name is '2001-99-99'; wanted the folder's name"),
        ("name: " + "9" * 5000 + "\ndescription: x", "name is '999"),
        ("name: a-skill\ndescription: !!bool maybe", "description has 5 characters"),
        ("a: " + "[" * 5000, "nests more than 60 levels"),
        ("a: !!python/object/apply:os.system [ls]", "the tag !!python/object/apply:os.system"),
        ("a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 30)), "aliases expand"),
        ('name: "\\e]52;c;aGk=\\a\\u202e"\ndescription: x', r"name is '\x1b]52;c;aGk=\x07\u202e'"),
        ('name: a-skill\ndescription: x\n"k\\e[2J": 1', r"k\x1b[2J: found an unknown key"),
    ],
)
def test_front_matter_is_one_clear_fault(tmp_path: Path, front: str, said: str) -> None:
    skill = skill_in(tmp_path)
    (skill / "SKILL.md").write_text(f"---\n{front}\n---\n{BODY}")
    assert said in faults(skill)


def test_front_matter_with_the_line_ends_of_windows_is_read(tmp_path: Path) -> None:
    skill = skill_in(tmp_path)
    (skill / "SKILL.md").write_bytes(b"\xef\xbb\xbf" + (FRONT + BODY).replace("\n", "\r\n").encode())
    assert front_matter(skill)[0]["name"] == "a-skill"
    assert faults(skill) == ""


def test_a_skill_that_is_no_text_is_refused(tmp_path: Path) -> None:
    skill = skill_in(tmp_path)
    (skill / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    with pytest.raises(HcpError, match="is not UTF-8"):
        front_matter(skill)


@pytest.mark.parametrize("kind", ["zero", "pipe", "passwd", "loop", "folder", "large", "many"])
def test_only_regular_files_of_the_folder_itself_are_read(tmp_path: Path, kind: str) -> None:
    """None of these is waited for, followed or read to its end."""
    skill = skill_in(tmp_path, step())
    place = skill / "references" / "x.md"
    place.parent.mkdir()
    said = "references/x.md leads elsewhere"
    if kind == "pipe":
        os.mkfifo(place)
        said = "references/x.md is not a regular file"
    elif kind == "large":
        place.write_text("x" * 5_000_001)
        said = "references/x.md has more than 5,000,000 bytes"
    elif kind == "many":
        for number in range(1001):
            (place.parent / f"{number}.md").touch()
        said = "more than 1,000 files"
    else:
        place.symlink_to({"zero": "/dev/zero", "passwd": "/etc/passwd", "loop": ".", "folder": "/usr"}[kind])
    assert said in faults(skill)


@pytest.mark.parametrize("link", ["x" * 5000, "a\0b", "\x1b]52;c;aGk=\a", "../../../etc/passwd", "\u202e"])
def test_a_link_in_the_text_may_be_anything(tmp_path: Path, link: str) -> None:
    skill = skill_in(tmp_path, step())
    (skill / "SKILL.md").write_text(FRONT + BODY + f"[x]({link})\n")
    assert "SKILL.md links to " in faults(skill)


CHECK = {
    "id": "asks",
    "run": ["hcp", "check", "--", "--context-parallel-size", "2"],
    "level": "static",
    "timeout_s": HANG_S,
}
PROGRAM = {"id": "runs", "run": ["python", "checks/attention_parity.py"], "level": "cpu", "timeout_s": HANG_S}
SCRIPTS = {
    "id": "scripts",
    "run": ["python", "checks/careless_scripts.py", "launch"],
    "level": "static",
    "timeout_s": HANG_S,
}
PLACE = {"repo": "megatron-core", "path": "megatron/core/parallel_state.py", "qualname": "initialize_model_parallel"}


@pytest.mark.parametrize(
    ("proofs", "source", "is_circular"),
    [
        (["rule:HCP001"], [], True),
        (["rule:HCP001", "step:asks"], [], True),
        (["step:asks"], [], True),
        (["rule:HCP001", "step:scripts"], [], True),
        (["rule:HCP001"], [PLACE], False),
        (["rule:HCP001", "step:asks", "step:runs"], [], False),
        (["rule:HCP001", "test:tests/skills/test_skill.py::test_a_sound_skill_has_no_faults"], [], False),
    ],
)
def test_a_claim_rests_on_more_than_our_own_check(
    tmp_path: Path, proofs: list[str], source: list[dict[str, str]], is_circular: bool
) -> None:
    """A rule that says so does not prove it, nor does the check that runs the rule."""
    claim = {"id": "c1", "text": "It holds.", "proved_by": proofs, "source": source}
    found = faults(skill_in(tmp_path, CHECK, PROGRAM, SCRIPTS, claims=[claim]))
    assert ("claim c1: proved by rules and hcp check alone" in found) == is_circular, found


def test_a_skill_of_others_needs_no_card_and_its_looks_are_advice(hcp, tmp_path) -> None:
    for name, front in (("good", ""), ("odd", "when_to_use: always\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Does a thing.\n{front}---\n[gone](references/x.md)\n"
        )
    (tmp_path / "good" / "references").mkdir()
    (tmp_path / "good" / "references" / "x.md").write_text("# X\n")
    done = hcp("skills", "validate", tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(line.startswith("odd: ") and "when_to_use: found an unknown key" in line for line in lines)
    assert [line for line in lines if line.startswith("good: ") and not line.startswith("good: advice: ")] == []
    assert any("good: advice: SKILL.md has no H1" in line for line in lines)
    assert hcp("skills", "validate", tmp_path / "good").returncode == 0
    assert hcp("skills", "validate", tmp_path / "good", "--strict").returncode == 1
    assert hcp("skills", "validate", tmp_path / "none").returncode == 2


def test_every_fault_of_a_skill_is_named_at_once(tmp_path: Path) -> None:
    """An odd key does not hide a dead link, nor what an agent never finds."""
    skill = skill_in(tmp_path, step())
    (skill / "references").mkdir()
    for name in ("linked", "beside", "alone"):
        (skill / "references" / f"{name}.md").write_text("[beside](beside.md)\n" if name == "linked" else "")
    front = FRONT.replace("metadata:", "when_to_use: always\nmetadata:")
    (skill / "SKILL.md").write_text(front + BODY + "[x](references/linked.md), [y](gone.md)\n")
    assert [fault for faults in judged_skill(skill) for fault in faults] == [
        "SKILL.md: when_to_use: found an unknown key; wanted only name, description, license, compatibility, metadata, "
        "allowed-tools",
        "SKILL.md links to gone.md, which does not exist",
        "references/alone.md is not mentioned in the skill's texts, so an agent does not find it",
    ]
