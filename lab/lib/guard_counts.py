"""What an ok of `hcp check` covers, in numbers: upstream's guards by framework, and hcp's own rules."""

from __future__ import annotations

from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import START
from megatron_hcp.skills.rendered import table
from megatron_hcp.validators.table import program_of_release

FRAMEWORKS = {
    "Megatron-LM, with megatron-core": ("megatron-lm", "megatron-core"),
    "Megatron-Bridge": ("megatron-bridge",),
    "Transformer Engine": ("transformer-engine",),
    "verl": ("verl",),
    "NeMo-RL": ("nemo-rl",),
    "slime, miles": ("slime", "miles"),
    "ms-swift": ("ms-swift",),
}
"""Frameworks as people write them, and the repositories that rules about them cite."""
TABLES = {
    "megatron-lm": ("0.16.1", "0.19.0", "main"),
    "megatron-bridge": ("0.5.1", "0.6.0", "main"),
    "verl": ("0.8.0", "0.9.1", "main"),
    "slime": ("0.3.1", "main"),
    "miles": ("0.1.0",),
    "ms-swift": ("4.4.3", "4.5.2", "main"),
    "nemo-rl": ("0.6.0", "0.7.0", "main"),
}
"""The repositories whose guards are in the tables, and the releases to count."""
BEGIN, END = "<!-- python lab guards --write -->", "<!-- end -->"


def counts() -> str:
    """The table of docs/check.md."""
    rows = []
    for name, repos in FRAMEWORKS.items():
        own = [rule for rule in RULES if not rule.id.startswith(START)]
        rules = sum(any(source.repo in repos for source in rule.source) for rule in own)
        several = sum(repo in TABLES for repo in repos) > 1
        programs = {
            f"{repo} {release}" if several else release: program_of_release(repo, release)
            for repo in repos
            for release in TABLES.get(repo, ())
        }
        read = "; ".join(f"{release}: {one.guards - one.unreadable}" for release, one in programs.items() if one)
        unread = "; ".join(f"{release}: {one.unreadable}" for release, one in programs.items() if one)
        rows.append((name, read or "0", unread or "not read yet", str(rules)))
    return "\n".join(table(("upstream", "guards read", "guards that could not be read", "rules of hcp"), rows))


def in_page(text: str) -> str:
    """The page with the table renewed."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{counts()}\n{END}{after}"
