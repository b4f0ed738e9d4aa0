"""The cost of a step on the running machine, from a measured profile or from the model's sizes and the GPU."""

from __future__ import annotations

import os
from typing import Any

import torch

from megatron_hcp.cost.gpus import GPUS
from megatron_hcp.cost.profile import read_profile
from megatron_hcp.dcp import ASSUMED_COST, Cost
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.integrations.step_log import logger

PROFILE = "HCP_PROFILE"
"""The environment variable that names a file written by `hcp dcp calibrate`; the same on every rank."""
GPU_WITHOUT_A_NAME = "h100"


def cost_of(config: Any = None, *, tp: int = 1, pp: int = 1) -> Cost:
    """The cost from $HCP_PROFILE, otherwise of the model described by `config`, otherwise of a dense 7B.

    Every rank makes its own plan, so all must get the same cost: the profile and the GPU type must not differ between
    ranks.

    Args:
        config: megatron-core's TransformerConfig, or None if the framework does not provide it.

    Raises:
        HcpError: the profile cannot be read.
    """
    path = os.environ.get(PROFILE)
    if path:
        return Cost.from_profile(read_profile(path))
    if config is None:
        return ASSUMED_COST
    comm_type = getattr(config, "cp_comm_type", None) or "p2p"
    try:
        return Cost.from_facts(
            vars(config), gpu_here(), tp=tp, pp=pp, gpus_per_node=gpus_per_node(), hcp_sizes=None,
            cp_comm_type=comm_type if isinstance(comm_type, str) else comm_type[0],
        )  # fmt: skip
    except HcpError as error:
        logger.warning("dynamic CP plans for a dense 7B, because the model's cost is unknown: %s", error)
        return ASSUMED_COST


def gpu_here() -> str:
    """The name of this rank's GPU in `megatron_hcp.cost.gpus.GPUS`."""
    if not torch.cuda.is_available():
        return GPU_WITHOUT_A_NAME
    words = torch.cuda.get_device_name().lower().replace("-", " ").split()
    return next((word for word in words if word in GPUS), GPU_WITHOUT_A_NAME)


def gpus_per_node() -> int:
    """GPUs per node according to torchrun; 8 if not stated."""
    number = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(number[:9]) if number.isdecimal() and int(number[:9]) else 8
