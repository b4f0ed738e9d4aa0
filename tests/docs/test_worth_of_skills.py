"""The table in docs/agents.md of what the skills are worth is that of the graded runs."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.skills.evals.benchmark import GradedRun, effects, read_runs

AGENTS = ("claude, skill and hcp, third draw", "claude, skill and hcp, second draw", "claude, skill and hcp")


def worth(name: str, runs: list[GradedRun]) -> str:
    by_agent = {effect.agent: effect for effect in effects(runs)}
    cells = [f"{name}"]
    for effect in (by_agent[agent] for agent in AGENTS):
        assert effect.lift is not None
        cells += [f"{effect.shares[arm]:.0%}" for arm in ("with", "without")] + [f"{100 * effect.lift:+.0f}"]
    return f"| {' | '.join(cells)} |"


def test_the_table_has_the_shares_of_the_runs(root: Path) -> None:
    runs = {folder.parent.name: read_runs(str(folder)) for folder in sorted(root.glob("skills/*/evals"))}
    every = [run._replace(task=f"{skill}/{run.task}") for skill, rows in runs.items() for run in rows]
    table = [worth(f"`{skill}`", rows) for skill, rows in runs.items()] + [worth("all", every)]
    page = (root / "docs" / "agents.md").read_text(encoding="utf-8").partition("### What ours are worth\n")[2]
    head, _, *rows = [line for line in page.partition("\n### ")[0].splitlines() if line.startswith("|")]
    assert head.startswith("| skill | third draw (%) | without (%) | lift | second draw (%)") and rows == table
