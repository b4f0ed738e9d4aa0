"""`hcp skills build`: what a rule, a card or an option owns is written once, and rendered wherever it is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.rules.registry import BY_ID, RULES
from megatron_hcp.skills.card import load_card
from support.cards import skill_in, step

CLOSE = "<!-- /hcp -->"
CARD: dict[str, Any] = {
    "limitations": ["No GPU | was used."],
    "rules": ["HCP001", "KNOWN001"],
    "claims": [{"id": "c", "text": "It holds.", "proved_by": ["step:s1"]}],
    "recommended": [{"dialect": "mlm", "text": "--context-parallel-size 2"}],
}


def built(hcp, folder: Path, text: str) -> str:
    """What `hcp skills build` makes of a text in a skill's references."""
    skill = skill_in(folder, step(proves="that it holds"), **CARD)
    (skill / "references").mkdir()
    (skill / "references" / "x.md").write_text(text)
    done = hcp("skills", "build", skill)
    assert done.returncode == 0, done.stderr
    return (skill / "references" / "x.md").read_text()


def test_nothing_of_the_pack_and_the_documents_is_stale(hcp) -> None:
    """After a change to a rule, a card or an option: `hcp skills build`."""
    done = hcp("skills", "build", "--check")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("mark", "lines"),
    [
        ("limitations", ["- No GPU | was used."]),
        ("steps", ["| step | level | proves |", "| --- | --- | --- |", "| s1 | static | that it holds |"]),
        ("claims", ["| claim | proved by |", "| --- | --- |", "| It holds. | step:s1 |"]),
        ("launch 1", ["```", "--context-parallel-size 2", "```"]),
        (
            "rules TOPO002",
            [
                "| rule | severity | effect | requirement |",
                "| --- | --- | --- | --- |",
                f"| TOPO002 | {BY_ID['TOPO002'].severity} | {BY_ID['TOPO002'].effect} | {BY_ID['TOPO002'].title} |",
            ],
        ),
    ],
)
def test_a_block_is_written_between_its_marks_at_their_indent(hcp, tmp_path: Path, mark: str, lines: list[str]) -> None:
    text = f"# X\n\n1. one\n\n   <!-- hcp:{mark} -->\n   old words\n   {CLOSE}\n\nlast\n"
    inside = "".join(f"   {line}\n" for line in lines)
    assert built(hcp, tmp_path, text) == f"# X\n\n1. one\n\n   <!-- hcp:{mark} -->\n{inside}   {CLOSE}\n\nlast\n"


def test_the_tests_of_a_claim_are_left_to_the_card(hcp, tmp_path: Path) -> None:
    proofs = ["step:s1", "test:tests/test_a.py::test_b", "test:tests/test_a.py::test_c"]
    skill = skill_in(tmp_path, step(), **(CARD | {"claims": [{"id": "c", "text": "It holds.", "proved_by": proofs}]}))
    page = skill / "references" / "x.md"
    page.parent.mkdir()
    page.write_text(f"<!-- hcp:claims -->\n{CLOSE}\n")
    assert hcp("skills", "build", skill).returncode == 0
    assert "| It holds. | step:s1, a test |" in page.read_text()


def test_a_part_inside_a_line_stays_there(hcp, tmp_path: Path) -> None:
    text = (
        f"| a | <!-- hcp:rule HCP001 -->{CLOSE} | <!-- hcp:number all-rules -->7{CLOSE}, <!-- hcp:stack -->x{CLOSE} |\n"
    )
    assert built(hcp, tmp_path, text) == (
        f"| a | <!-- hcp:rule HCP001 -->{BY_ID['HCP001'].title} (HCP001){CLOSE} "
        f"| <!-- hcp:number all-rules -->{len(RULES)}{CLOSE}, <!-- hcp:stack -->megatron-core >=0.13{CLOSE} |\n"
    )


def test_known_faults_are_listed_and_options_are_rows(hcp, tmp_path: Path) -> None:
    text = built(hcp, tmp_path, f"<!-- hcp:known -->\n{CLOSE}\n<!-- hcp:options skills build -->\n{CLOSE}\n")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "\n- megatron-core: KNOWN001 (<0.17)\n" in text and "HCP001" not in text
    assert "| `--check` | Write nothing; exit 1 if a file is stale. |" in rows


def test_check_says_what_is_stale_and_writes_nothing(hcp, tmp_path: Path) -> None:
    skill = skill_in(tmp_path, **CARD)
    before = (skill / "SKILL.md").read_text() + f"<!-- hcp:limitations -->\n{CLOSE}\n"
    (skill / "SKILL.md").write_text(before)
    done = hcp("skills", "build", "--check", skill)
    assert done.returncode == 1 and done.stdout == f"{skill}/SKILL.md: stale; run hcp skills build\n"
    assert (skill / "SKILL.md").read_text() == before
    assert hcp("skills", "build", skill).returncode == 0
    assert hcp("skills", "build", "--check", skill).returncode == 0
    card = skill / "config" / "card.yaml"
    card.write_text(card.read_text().replace("No GPU", "No CPU"))
    assert hcp("skills", "build", "--check", skill).returncode == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n<!-- hcp:limitations -->\n", "x.md:2: <!-- hcp:limitations --> is not closed"),
        (f"<!-- hcp:rules HCP001 --> <!-- hcp:steps -->{CLOSE}", "x.md:1: <!-- hcp:rules HCP001 --> is not closed"),
        (f"<!-- hcp:no-such -->{CLOSE}", "is not a known part; wanted one of claims, fields"),
        (f"<!-- hcp:rules HCP999 -->{CLOSE}", "names HCP999, which is not a rule"),
        (f"<!-- hcp:rule -->{CLOSE}", "names no rule"),
        (f"<!-- hcp:launch 2 -->{CLOSE}", "names no launch; wanted a number from 1 to 1"),
        (f"<!-- hcp:launch {'9' * 5000} -->{CLOSE}", "names no launch"),
        (f"<!-- hcp:number x -->{CLOSE}", "counts nothing"),
        (f"<!-- hcp:fields text -->{CLOSE}", "names no part of the card"),
        (f"<!-- hcp:options check nope -->{CLOSE}", "names no command"),
        (f"<!-- hcp:options \u202e\x1b[2J -->{CLOSE}", "names no command"),
    ],
)
def test_a_mark_that_says_nothing_is_one_clear_line(hcp, tmp_path: Path, text: str, said: str) -> None:
    skill = skill_in(tmp_path, **CARD)
    (skill / "references").mkdir()
    (skill / "references" / "x.md").write_text(text)
    done = hcp("skills", "build", skill)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.rstrip("\n").isprintable() and (skill / "references" / "x.md").read_text() == text


def test_a_part_of_a_card_wants_a_card(hcp, tmp_path: Path) -> None:
    skill = skill_in(tmp_path)
    (skill / "config" / "card.yaml").unlink()
    with (skill / "SKILL.md").open("a") as file:
        file.write(f"<!-- hcp:steps -->\n{CLOSE}\n")
    done = hcp("skills", "build", skill)
    assert done.returncode == 2 and "comes from a card, and there is none" in done.stderr


def test_nothing_is_written_through_a_link(hcp, tmp_path: Path) -> None:
    skill = skill_in(tmp_path, **CARD)
    victim = tmp_path / "victim.md"
    victim.write_text(f"<!-- hcp:steps -->\n{CLOSE}\n")
    (skill / "references").mkdir()
    (skill / "references" / "x.md").symlink_to(victim)
    done = hcp("skills", "build", skill)
    assert done.returncode == 2 and "leads elsewhere" in done.stderr
    assert victim.read_text() == f"<!-- hcp:steps -->\n{CLOSE}\n"


def test_every_skill_of_the_pack_leads_to_its_card(root: Path) -> None:
    """The card holds rules, claims and proofs; a page that repeated them was read by no agent."""
    for folder in sorted((root / "skills").iterdir()):
        assert "(config/card.yaml)" in (folder / "SKILL.md").read_text(encoding="utf-8"), folder.name
        assert load_card(folder).claims, folder.name
