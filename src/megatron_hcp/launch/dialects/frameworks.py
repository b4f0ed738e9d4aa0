"""The list of the frameworks whose launches are read."""

from __future__ import annotations

from collections.abc import Mapping

from megatron_hcp.launch.dialects.bridge.framework import BRIDGE, BRIDGE_PROVIDER
from megatron_hcp.launch.dialects.framework import Framework
from megatron_hcp.launch.dialects.mlm.framework import MLM
from megatron_hcp.launch.dialects.ms_swift import MS_SWIFT
from megatron_hcp.launch.dialects.nemo_rl.framework import NEMO_RL
from megatron_hcp.launch.dialects.slime import SLIME
from megatron_hcp.launch.dialects.verl.framework import VERL
from megatron_hcp.launch.fact import Dialect, Launch

FRAMEWORKS: Mapping[str, Framework] = {
    framework.name: framework for framework in (VERL, BRIDGE, BRIDGE_PROVIDER, NEMO_RL, MS_SWIFT, SLIME, MLM)
}
"""In the order in which they are asked: Megatron-LM's options may be another one's, Bridge's keys may be verl's."""
COMMAND_LINES: tuple[Dialect, ...] = tuple(one.name for one in FRAMEWORKS.values() if one.is_command_line)
"""The dialects whose launches are command options."""


def as_written(launch: Launch, key: str) -> str:
    """A key as the launch's framework writes it."""
    return FRAMEWORKS[launch.dialect].written(key)
