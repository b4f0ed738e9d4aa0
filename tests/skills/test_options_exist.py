"""Every option that a skill names exists: Megatron-LM's in a release or branch that was read, hcp's in a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from megatron_hcp.cli.main import cli
from megatron_hcp.launch.facts.known_options import all_options
from megatron_hcp.skills.card import skill_dirs

OTHERS = frozenset(
    # Slurm, pyxis
    "account batch consolidate-segments container-env container-image container-mounts container-name"
    " container-remap-root container-unshare container-writable cpus-per-task dependency distribution exact exclusive"
    " export gpus-per-task gres gres-flags hint jobid kill-on-bad-exit no-container-mount-home no-kill no-requeue"
    " nodelist ntasks ntasks-per-node open-mode output overlap partition pty segment spread-segments stepmgr test-only"
    " threads-per-core wait"
    # torchrun, ft_launcher
    " ft-attribution-analysis-backend ft-attribution-endpoint ft-attribution-llm-api-key-file"
    " ft-attribution-stop-action ft-checkpoint-iteration-file ft-enable-dist-storage-healthcheck"
    " ft-enable-nic-healthcheck ft-gpu-memory-reclaim-timeout ft-gpu-memory-tolerance-mb"
    " ft-initial-rank-heartbeat-timeout ft-max-no-progress-cycles ft-no-restart-exit-code"
    " ft-node-health-check-endpoint ft-per-cycle-applog-prefix ft-rank-heartbeat-timeout"
    " ft-rank_out_of_section_timeout ft-rank_section_timeouts ft-restart-policy ft-segment"
    " ft-storage-health-check-path master-addr master-port max-restarts nnodes node-rank nproc-per-node"
    " rdzv-backend rdzv-endpoint workers-stop-timeout"
    # git, uv, ray, converters and Bridge's programs
    " always config device direction dirty ep extra init is-ancestor load-dir locked pp reset-iterations save-dir"
    " step_func".split()
)
"""Options of other programs, which nothing here reads."""


def options_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (name.lstrip("-") for name in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from options_of(child)


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    return frozenset(options_of(cli)) | OTHERS


@pytest.mark.parametrize("folder", skill_dirs(), ids=lambda folder: folder.name)
def test_every_option_that_a_skill_names_exists(folder: Path, known: frozenset[str]) -> None:
    megatron = all_options()
    for page in (folder / "SKILL.md", *(folder / "references").glob("*.md")):
        for option in re.findall(r"(?<![\w-])--([a-z][\w-]*\w)(?![\w-])", page.read_text(encoding="utf-8")):
            name = option.replace("-", "_")
            upstream = name in megatron or name.removeprefix("no_") in megatron
            assert upstream or option in known, f"{page.name}: --{option}"
