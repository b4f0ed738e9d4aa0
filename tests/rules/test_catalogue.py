"""Every id of the catalogue is a rule, a claim with a proof, something that triage says, or has a reason not to be."""

from __future__ import annotations

import re
from pathlib import Path

from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.skills.card import find_skill, load_card
from support.rows import rows

CATALOGUE = {
    line.split()[0]: line.split(maxsplit=2)[1:]
    for line in (Path(__file__).parent / "catalogue.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
}
LAST = "CP 26 DCP 26 ENV 5 HCP 25 KEY 1 LOAD 2 LOG 3 LOSS 6 MODEL 6 PACK 11 PAR 1 PERF 1 SLURM 12 TOPO 7 TP 1".split()
"""The highest number of each prefix in the catalogue. Later rules have numbers above it, and are no part of it."""


def test_the_list_has_every_id_of_the_catalogue() -> None:
    pairs = zip(LAST[::2], LAST[1::2], strict=True)
    assert set(CATALOGUE) == {f"{prefix}{number:03d}" for prefix, last in pairs for number in range(1, int(last) + 1)}


@rows("name, entry", CATALOGUE.items())
def test_an_id_of_the_catalogue_is_where_the_list_says(name: str, entry: list[str], root: Path) -> None:
    kind, what = entry
    if kind == "rule":
        assert what in BY_ID
    elif kind == "claim":
        skill, _, wanted = what.partition(":")
        (claim,) = (claim for claim in load_card(find_skill(skill)).claims if claim.id == wanted)
        assert claim.proved_by
    elif kind == "triage":
        said = "".join(
            file.read_text(encoding="utf-8") for file in sorted((root / "src/megatron_hcp/triage").rglob("*.py"))
        )
        assert f'"{what}"' in said
    else:
        assert kind == "reason" and len(what.split()) >= 5, name
    assert kind == "rule" or name not in BY_ID or name == "ENV004", f"{name} is a rule now"
    assert re.fullmatch(r"[A-Z]+\d{3}", name)
