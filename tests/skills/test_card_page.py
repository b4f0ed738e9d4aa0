"""docs/card.md: its example is a skill that works, and its transcript what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

from megatron_hcp.skills.markdown import blocks_in
from support.cards import FRONT

PAGE = Path(__file__).resolve().parents[2] / "docs" / "card.md"


def example(folder: Path) -> tuple[Path, list[str]]:
    """The skill of the page's example, and the lines of its transcript."""
    blocks = {block.info: block.lines for block in blocks_in(PAGE.read_text(encoding="utf-8")) if block.info}
    skill = folder / "rank-order"
    for name, kind in (("config/card.yaml", "yaml"), ("scripts/groups.py", "python")):
        (skill / name).parent.mkdir(parents=True)
        (skill / name).write_text("\n".join(blocks[kind]) + "\n")
    (skill / "SKILL.md").write_text(FRONT.replace("a-skill", "rank-order") + "# Ranks\n")
    return skill, list(blocks["console"])


def test_the_transcript_is_what_the_commands_print(hcp, tmp_path: Path) -> None:
    _, transcript = example(tmp_path)
    commands = [line.removeprefix("$ hcp ").split() for line in transcript if line.startswith("$ ")]
    printed = []
    for words in commands:
        done = hcp(*words, cwd=tmp_path)
        assert done.returncode == (0 if "--trust" in words else 2)
        # How long a step took and what it printed last stand behind its name.
        printed += ["$ hcp " + " ".join(words)]
        printed += [re.sub(r"^(passed  \S+)  .*", r"\1", line) for line in done.stdout.splitlines()]
    assert len(commands) == 2 and printed == transcript


def test_the_example_is_a_sound_card_and_its_proof_can_fail(hcp, tmp_path: Path) -> None:
    skill, _ = example(tmp_path)
    assert hcp("skills", "validate", skill).returncode == 0
    card = skill / "config" / "card.yaml"
    card.write_text(card.read_text().replace("[0, 2]", "[0, 1]"))
    done = hcp("verify", "--trust", skill)
    assert done.returncode == 1 and "groups.0 in its JSON is [0, 2], wanted [0, 1]" in done.stdout


def test_the_page_names_every_kind_of_part() -> None:
    from megatron_hcp.skills.rendered import RENDERERS

    text = PAGE.read_text(encoding="utf-8")
    rows = "".join(re.findall(r"(?m)^\| `.*", text[text.index("## Generated parts") :]))
    assert [kind for kind in (*RENDERERS, "options") if f"`{kind}" not in rows] == []
