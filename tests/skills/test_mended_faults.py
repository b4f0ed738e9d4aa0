"""What earlier versions of the skills and rules said wrongly is not said again (F1 to F11 of the trial with agents)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megatron_hcp.launch.fact import Dialect
from megatron_hcp.skills.card import load_card, skill_dirs
from support.launches import CP, HYBRID, MLM, ON_DEV
from support.rules import finding, launch, verdict

WARMED = "--dynamic-context-parallel " + HYBRID.partition(" ")[2]
GDN = "--experimental-attention-variant gated_delta_net --linear-num-key-heads 16 --linear-num-value-heads 32"
HANDLER = f"srun --ntasks=1 python {MLM} --exit-signal-handler\n"
TORCHRUN = f"srun torchrun {MLM} --exit-signal-handler\n"


def texts() -> dict[str, str]:
    """The prose of all skills, each file in one line."""
    return {
        f"{folder.name}/{file.name}": " ".join(file.read_text(encoding="utf-8").split())
        for folder in skill_dirs()
        for file in (folder / "SKILL.md", *sorted((folder / "references").glob("*.md")))
    }


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            "F1 fault tolerance under torchrun is silently off",
            r"does nothing and says nothing|silently (off|disable)[^.]*ft_",
        ),
        ("F2 code 17 always comes with a checkpoint", r"exit 17, with a checkpoint"),
        ("F5 the first step alone is outside the section", r"The first step is measured outside"),
        ("F6 TP 2, CP 4 with a2a exchanges less", r"`?a2a`?,? which exchanges less"),
        ("F8 every claim is executed", r"every claim (in them )?is executed"),
        ("F11 verl cannot save before its end", r"verl does not listen"),
        ("a package that no index has", r"pip install megatron-hcp\b"),
    ],
)
def test_no_skill_says_so_again(fault: str, said: str) -> None:
    assert [name for name, text in texts().items() if re.search(said, text)] == [], fault


@pytest.mark.parametrize(
    ("fault", "rule", "dialect", "text", "assumed", "expected"),
    [
        ("F1", "SLURM007", "mlm", f"torchrun {MLM} --enable-ft-package\n", "", "error crash init"),
        ("F3", "DCP017", "mlm", WARMED, ON_DEV, "fine"),  # unset is filled in
        ("F9", "KNOWN003", "mlm", f"{CP} 2 {GDN}", "mcore=0.18.2", "error"),
        ("F9", "KNOWN003", "mlm", f"{CP} 2 {GDN}", "mcore=0.19.0", "fine"),
        ("F10", "SLURM006", "mlm", f"#SBATCH --signal=B:TERM@600\n{HANDLER}", "", "warning"),
        ("F10", "SLURM006", "mlm", f"#SBATCH --signal=TERM@600\n{TORCHRUN}", "", "warning"),
    ],
)
def test_the_check_judges_as_upstream_does(
    fault: str, rule: str, dialect: Dialect, text: str, assumed: str, expected: str
) -> None:
    assert verdict(rule, launch(dialect, text, assumed)).startswith(expected), fault


def test_f1_the_finding_quotes_what_the_ranks_say() -> None:
    found = finding("SLURM007", launch("mlm", f"torchrun {MLM} --enable-ft-package\n"))
    assert "RankMonitorClientError" in found.problem.message


def test_f4_a_recommended_launch_of_verl_has_micro_batches_that_verl_accepts() -> None:
    recommended = [(folder.name, item) for folder in skill_dirs() for item in load_card(folder).recommended]
    ours = [(name, item) for name, item in recommended if item.dialect == "verl"]
    assert len(ours) >= 2
    for name, item in ours:
        assert verdict("VERL001", launch("verl", item.text, " ".join(item.assume))) in ("fine", "not concerned"), name
        assert "use_dynamic_bsz=True" in item.text or "micro_batch_size" in item.text, name


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_f7_what_a_skill_installs_is_enough_for_its_proofs(folder: Path, root: Path) -> None:
    """No step up to level cpu needs a package that neither hcp nor the extras of the skill's own command bring."""
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    extras = {name for found in re.findall(r"megatron-hcp\[([\w,]+)\]", text) for name in found.split(",")}
    brought = "".join(re.findall(rf"^(?:{'|'.join(extras)}) = \[.*\]$", project, re.M)) if extras else ""
    needed = {package for step in load_card(folder).verify if step.level != "gpu" for package in step.needs.packages}
    assert {package for package in needed if f'"{package}' not in brought} == set()
