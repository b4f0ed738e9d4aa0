"""Reads the validators of a checkout of upstream, without importing anything of it."""

from __future__ import annotations

from megatron_hcp.validators.program import Program


def program_of_folder(folder: str) -> Program:
    """The program of the validators in a checkout or an unpacked wheel.

    Raises:
        HcpError: the folder holds none that is known.
    """
    raise NotImplementedError
