"""`hcp dryrun`, `check --dryrun`, `plan --measure` and `verify --engine upstream` alone execute upstream's code."""

from __future__ import annotations

from support.tree import MODULES, imported, name_of, room_of

ALLOWED = {
    "megatron_hcp.cli.dryrun.command",
    "megatron_hcp.cli.check",
    "megatron_hcp.cli.dryrun.measured",
    "megatron_hcp.cli.verify.upstream",
}


def test_only_four_commands_have_upstreams_code_executed() -> None:
    found = {
        name_of(path)
        for path in MODULES
        if room_of(name_of(path)) not in ("dryrun", "pretend")
        and any(name.startswith(("megatron_hcp.dryrun", "megatron_hcp.pretend")) for name in imported(path))
    }
    assert "megatron_hcp.cli.dryrun.command" in found and found <= ALLOWED


def test_the_server_for_agents_has_no_tool_for_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in MODULES if room_of(name_of(path)) == "mcp"]
    assert texts and not any("dryrun" in text or "dry_run" in text for text in texts)
