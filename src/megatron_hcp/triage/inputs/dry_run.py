"""What `hcp dryrun` found, read as evidence beside the logs (`hcp.dryrun/1`); nothing is run."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.intake import TooLargeError, read_whole
from megatron_hcp.ground.visible import visible
from megatron_hcp.triage.signatures.row import said_text

_LARGEST = 16 << 20
_MOST_RANKS = 1000


class DryRunRefusal(NamedTuple):
    """How upstream's own code refused a rank of the launch before the job ran."""

    rank: int
    role: str
    stage: str
    error: str
    """`type: message`"""
    where: str
    """`file:line, in function`"""

    def text(self) -> str:
        """The refusal for a reader."""
        return f"upstream refuses rank {self.rank} ({self.role}) at the stage {self.stage}: {self.error} ({self.where})"


def read_dry_run(path: str) -> tuple[DryRunRefusal, ...]:
    """The ranks that a dry run says upstream refuses.

    Raises:
        HcpError: the file cannot be read, or is no `hcp.dryrun/1`.
    """
    try:
        said = json.loads(read_whole(path, _LARGEST))
    except OSError as error:
        raise _unfit(path, error.strerror or "it cannot be read") from None
    except TooLargeError:
        raise _unfit(path, f"found more than {_LARGEST >> 20} MiB") from None
    except (ValueError, RecursionError):
        raise _unfit(path, "found no JSON") from None
    if not isinstance(said, dict) or said.get("schema") != "hcp.dryrun/1" or not isinstance(said.get("ranks"), list):
        raise _unfit(path, "found no hcp.dryrun/1")
    refused = (_refusal(rank) for rank in said["ranks"][:_MOST_RANKS] if isinstance(rank, dict))
    return tuple(found for found in refused if found is not None)


def _refusal(rank: dict[str, Any]) -> DryRunRefusal | None:
    error, number = rank.get("error"), rank.get("rank")
    if rank.get("verdict") != "refused" or not isinstance(error, dict) or type(number) is not int:
        return None
    kind, message, file, line, name = (
        said_text(str(error.get(key) or "")) for key in ("type", "message", "file", "line", "function")
    )
    role, stage = (said_text(str(rank.get(key) or "")) for key in ("role", "stage"))
    return DryRunRefusal(number, role, stage, f"{kind}: {message}", f"{file}:{line}, in {name}")


def _unfit(path: str, found: str) -> HcpError:
    return HcpError(
        f"{visible(path)}: {found}", wanted="the JSON of a dry run", do="hcp dryrun TARGET --format json >FILE"
    )
