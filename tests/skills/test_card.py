"""A card that breaks the schema is refused with every fault at once; the pack's own cards and skills are sound."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.skills.card import load_card, skill_dirs
from megatron_hcp.skills.skill import judged_skill
from support.cards import stale_steps

GOOD = """\
schema: hcp.card/2
skill: a-skill
title: A title
summary: A summary
stack: {megatron-core: ">=0.13"}
recommended:
- {dialect: mlm, text: --context-parallel-size 2, assume: [nodes=1], why: it is small}
rules: [HCP001]
claims:
- {id: c1, text: It holds, proved_by: ["rule:HCP001", "step:s1"]}
verify:
- {id: s1, run: [python, -V], level: static, timeout_s: 5}
limitations: []
unknown: []
"""
FIRST = GOOD.replace("hcp.card/2", "hcp.card/1").replace("recommended:", "config:").replace("dialect:", "launcher:")


def card_in(folder: Path, text: str) -> Path:
    skill = folder / "a-skill"
    (skill / "config").mkdir(parents=True)
    (skill / "config" / "card.yaml").write_text(text)
    return skill


def test_a_good_card_is_read(tmp_path: Path) -> None:
    card = load_card(card_in(tmp_path, GOOD))
    assert (card.skill, card.rules, card.verify[0].run) == ("a-skill", ("HCP001",), ("python", "-V"))
    assert card.claims[0].proved_by == ("rule:HCP001", "step:s1")
    (launch,) = card.recommended
    assert (launch.dialect, launch.text, launch.assume) == ("mlm", "--context-parallel-size 2", ("nodes=1",))


def test_a_card_of_the_first_schema_is_read_as_one_of_today(tmp_path: Path) -> None:
    first, today = load_card(card_in(tmp_path / "1", FIRST)), load_card(card_in(tmp_path / "2", GOOD))
    assert replace(first, folder=today.folder) == today


@pytest.mark.parametrize(
    ("card", "own", "other"),
    [
        (FIRST, "config", "recommended"),
        (FIRST, "launcher", "dialect"),
        (GOOD, "recommended", "config"),
        (GOOD, "dialect", "launcher"),
    ],
)
def test_the_names_of_the_two_schemas_are_not_mixed(tmp_path: Path, card: str, own: str, other: str) -> None:
    with pytest.raises(HcpError, match=rf"{other}: found an unknown key"):
        load_card(card_in(tmp_path, card.replace(f"{own}:", f"{other}:")))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("hcp.card/2", "hcp.card/9", "schema: found 'hcp.card/9'; wanted hcp.card/2"),
        ("skill: a-skill", "skill: other", "wanted the folder's name, 'a-skill'"),
        ("title: A title", "titel: A title", "titel: found an unknown key; wanted a known one, did you mean title?"),
        ("title: A title\n", "", "title: found nothing; wanted text"),
        ('stack: {megatron-core: ">=0.13"}\n', "", "stack: found nothing; wanted package: version range"),
        (
            'proved_by: ["rule:HCP001", "step:s1"]',
            "proved_by: []",
            "claims[0].proved_by: found an empty list; wanted what proves it",
        ),
        ('"step:s1"', '"belief"', "wanted rule:ID, step:ID or test:FILE::NAME"),
        ("[python, -V]", "python -V", "wanted a list of words, never a shell string"),
        ("[python, -V]", "[bash, -c, x]", "that starts with python, torchrun or hcp"),
        ("level: static", "level: easy", "wanted one of static, cpu, gpu"),
        ("timeout_s: 5", "timeout_s: 0", "wanted seconds above 0"),
        ("timeout_s: 5", "timeout_s: 5, status: verified", "verify[0].status: found an unknown key"),
        ("dialect: mlm", "dialct: mlm", "recommended[0].dialct: found an unknown key"),
        ("schema: hcp.card/2", "schema: [1]", "schema: found [1]; wanted hcp.card/2"),
        ("timeout_s: 5", "timeout_s: .inf", "verify[0].timeout_s: found inf; wanted seconds above 0"),
        ("timeout_s: 5", "timeout_s: 5, needs: [1]", "verify[0].needs: found [1]; wanted a mapping"),
        ("timeout_s: 5", "timeout_s: 5, needs: {gpus: x}", "verify[0].needs.gpus: found 'x'; wanted a whole number"),
        ("timeout_s: 5", "timeout_s: 5, expect: 5", "verify[0].expect: found 5; wanted a mapping"),
        ("timeout_s: 5", "timeout_s: 5, expect: {exit: .inf}", "expect.exit: found inf; wanted a whole number"),
        ("timeout_s: 5", "timeout_s: 5, expect: {json: 5}", "expect.json: found 5; wanted dotted paths"),
        ("timeout_s: 5", "timeout_s: 5, expect: {json: {" + "9" * 300 + ": 1}}", "wanted dotted paths"),
        ("timeout_s: 5", "timeout_s: 2001-99-99", "verify[0].timeout_s: found '2001-99-99'; wanted seconds"),
        ("timeout_s: 5", "timeout_s: " + "9" * 5000, "verify[0].timeout_s: found '999"),
        ("timeout_s: 5", "timeout_s: " + "1:" * 3000 + "1", "verify[0].timeout_s: found '1:1:"),
        ("timeout_s: 5", "timeout_s: !!bool maybe", "verify[0].timeout_s: found 'maybe'; wanted seconds"),
        ("timeout_s: 5", "timeout_s: " + "[" * 5000, "nests more than 60 levels"),
        ("[python, -V]", r'[python, "a\0b"]', "wanted a list of words"),
        ("id: s1", r'id: "s\e[2J"', r"verify[0].id: found 's\x1b[2J'; wanted a name"),
        ("text: It holds,", "text: It holds, source: 5,", "claims[0].source: found 5; wanted a list of places"),
        ("text: It holds,", "text: It holds, source: [5],", "claims[0].source[0]: found 5; wanted a mapping"),
        (
            "text: It holds,",
            "text: It holds, source: [{repo: a/b}],",
            "source[0].repo: found 'a/b'; wanted a repository's plain name",
        ),
        ("rules: [HCP001]", "rules: !!set {HCP001}", "the tag !!set"),
        ("rules: [HCP001]", "rules: [HCP001]\nrules: []", "'rules' is written twice"),
        ("limitations: []", "limitations: [[1]]", "limitations[0]: found [1]; wanted text"),
    ],
)
def test_a_fault_in_a_card_is_named(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    with pytest.raises(HcpError) as caught:
        load_card(card_in(tmp_path, GOOD.replace(old, new)))
    assert fault in str(caught.value)


def test_an_alias_bomb_in_a_card_is_refused_at_once(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    with pytest.raises(HcpError, match="its aliases expand to more than"):
        load_card(card_in(tmp_path, GOOD + bomb))


def test_ids_that_are_used_twice_are_named(tmp_path: Path) -> None:
    claim = '- {id: c1, text: It holds, proved_by: ["rule:HCP001", "step:s1"]}\n'
    with pytest.raises(HcpError, match="claims: found the id c1 twice; wanted each id once; correct the file"):
        load_card(card_in(tmp_path, GOOD.replace(claim, claim * 2)))


@pytest.mark.parametrize("link", ["a-skill/config", "a-skill/config/card.yaml"])
def test_a_card_outside_its_skill_is_not_read(tmp_path: Path, link: str) -> None:
    skill = card_in(tmp_path, GOOD)
    (tmp_path / link).rename(tmp_path / "elsewhere")
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HcpError, match="leads elsewhere"):
        load_card(skill)


def test_all_faults_come_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HcpError) as caught:
        load_card(card_in(tmp_path, GOOD.replace("level: static", "level: x").replace("title: A title\n", "")))
    assert "level: found 'x'" in str(caught.value) and "title: found nothing" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "schema: [", "\x00"])
def test_what_is_no_card_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(HcpError):
        load_card(card_in(tmp_path, text))


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_skill_of_the_pack_is_fit_to_publish(folder: Path) -> None:
    assert judged_skill(folder) == ([], [])


TABLE = re.compile(r"<!-- (?:hcp|begin):.*?<!-- (?:/hcp|end) -->", re.DOTALL)
"""What a program wrote between its markers: an agent looks a line up in it."""


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_a_question_takes_at_most_8000_characters_of_a_skill(folder: Path) -> None:
    """SKILL.md and any one of its references, without the tables that programs write."""
    first = len((folder / "SKILL.md").read_text(encoding="utf-8"))
    prose = {
        path.name: TABLE.sub("", path.read_text(encoding="utf-8")) for path in (folder / "references").glob("*.md")
    }
    assert [name for name, text in prose.items() if first + len(text) > 8000] == []
    assert first <= 8000


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_test_that_a_claim_names_exists(folder: Path, root: Path) -> None:
    for claim in load_card(folder).claims:
        for proof in claim.proved_by:
            kind, _, name = proof.partition(":")
            if kind == "test":
                file, _, function = name.partition("::")
                assert f"def {function}(" in (root / file).read_text(encoding="utf-8"), (claim.id, name)


@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_launch_that_a_card_recommends_checks_clean(folder: Path, hcp, tmp_path: Path) -> None:
    for launch in load_card(folder).recommended:
        assumed = [word for item in launch.assume for word in ("--assume", item)]
        words = ["--", *launch.text.split()]
        if "\n" in launch.text:  # a configuration, whole
            (tmp_path / "run.yaml").write_text(launch.text)
            words = [str(tmp_path / "run.yaml")]
        done = hcp("check", "--dialect", launch.dialect, *assumed, *words)
        assert done.returncode == 0 and " 0 errors, 0 warnings" in done.stdout, done.stdout


@pytest.mark.sample(5)
@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_the_reference_validator_accepts_every_skill(folder: Path) -> None:
    skills_ref = pytest.importorskip("skills_ref", reason="skills-ref is in the test extra, for Python 3.11 and newer")
    assert skills_ref.validate(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_command_in_a_skill_runs(folder: Path, hcp, tmp_path: Path) -> None:
    """The `hcp` lines of SKILL.md that need no file and prove nothing at length: they run, and end with 0 or 1."""
    import shlex

    text = (folder / "SKILL.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [
        shlex.split(line.strip(), comments=True)[1:] for line in text.splitlines() if line.strip().startswith("hcp ")
    ]
    assert commands
    names = {option for command in commands for option in command}
    assert names
    for command in commands:
        if command[0] == "verify":
            command = [*command, "--dry-run"]
        if any(word.endswith((".sbatch", ".yaml", ".json", ".log")) for word in command):
            continue
        done = hcp(*command, cwd=tmp_path)
        assert done.returncode in (0, 1), (command, done.stderr)


@pytest.mark.slow  # Not in the quick set: nearly every change makes records stale, and a release renews them.
@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_what_is_recorded_as_verified_was_run_on_todays_code(folder: Path) -> None:
    """After a change to code that a step runs: `hcp verify SKILL --record`."""
    assert stale_steps(load_card(folder)) == []
