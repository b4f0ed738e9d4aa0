"""The triage table: every row, in the order in which the rows are tried on a line; and what is searched for in logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from megatron_hcp.triage.collective.waits import TOKENS as COLLECTIVE_TOKENS
from megatron_hcp.triage.cp.evidence import SPEED_TOKENS, START_TOKENS
from megatron_hcp.triage.history import STEP_TOKEN
from megatron_hcp.triage.raised.tracebacks import HEAD
from megatron_hcp.triage.signatures.ascend import ASCEND
from megatron_hcp.triage.signatures.checkpoints import CHECKPOINTS
from megatron_hcp.triage.signatures.containers import CONTAINERS
from megatron_hcp.triage.signatures.cp.context_parallel import CONTEXT_PARALLEL
from megatron_hcp.triage.signatures.cp.dynamic_cp import DYNAMIC_CP
from megatron_hcp.triage.signatures.cp.hierarchical_cp import HIERARCHICAL_CP
from megatron_hcp.triage.signatures.cp.layout import LAYOUT
from megatron_hcp.triage.signatures.cp.packing import PACKING
from megatron_hcp.triage.signatures.crashes import CRASHES
from megatron_hcp.triage.signatures.data import DATA
from megatron_hcp.triage.signatures.effects import EFFECTS
from megatron_hcp.triage.signatures.endings import ENDINGS
from megatron_hcp.triage.signatures.environment import ENVIRONMENT
from megatron_hcp.triage.signatures.exceptions import EXCEPTIONS
from megatron_hcp.triage.signatures.gpu import GPU
from megatron_hcp.triage.signatures.job import JOB
from megatron_hcp.triage.signatures.launchers import LAUNCHERS
from megatron_hcp.triage.signatures.models import MODELS, REFUSED
from megatron_hcp.triage.signatures.network import NETWORK
from megatron_hcp.triage.signatures.node import NODE
from megatron_hcp.triage.signatures.progress import BEGINS, DONE, NCCL_IS_UP, ONE_DONE
from megatron_hcp.triage.signatures.ray import RAY
from megatron_hcp.triage.signatures.rollout import ROLLOUT
from megatron_hcp.triage.signatures.row import ERROR, Signature

SIGNATURES: tuple[Signature, ...] = (
    *HIERARCHICAL_CP,
    *PACKING,
    *MODELS,
    *CONTEXT_PARALLEL,
    *LAYOUT,
    *DYNAMIC_CP,
    *ROLLOUT,
    *GPU,
    *ASCEND,
    *NETWORK,
    *CHECKPOINTS,
    *DATA,
    *CONTAINERS,
    *NODE,
    *JOB,
    *ENVIRONMENT,
    *RAY,
    *EFFECTS,
    *ENDINGS,
    *LAUNCHERS,
    *REFUSED,
    *EXCEPTIONS[:-1],
    *CRASHES,
    *EXCEPTIONS[-1:],
)
"""The first row that matches a line names it, so the general ones come last."""


def compiled(rows: tuple[Signature, ...]) -> list[tuple[Signature, re.Pattern[str]]]:
    """The rows with their expressions compiled, in order."""
    return [(row, re.compile(row.pattern)) for row in rows]


JOB_TOKEN = b"hcp-job: "
RESTART_TOKEN = b"will restart worker group"
_MARKS = (JOB_TOKEN, *DONE, *BEGINS, ONE_DONE, NCCL_IS_UP, RESTART_TOKEN, STEP_TOKEN)
ALWAYS = (*_MARKS, *START_TOKENS, *SPEED_TOKENS, *COLLECTIVE_TOKENS)
"""Lines with these are read every time: their numbers are what counts."""
_LOUD = (ERROR, b"ERROR", b"FATAL", b"CRITICAL", b"fatal: ")


def words_of(rows: Sequence[Signature]) -> tuple[bytes, ...]:
    """What is searched for: a line without one of these says nothing."""
    of_rows = (token for row in rows for token in row.tokens)
    return tuple(dict.fromkeys((*of_rows, *_LOUD, HEAD, *START_TOKENS, *_MARKS, *COLLECTIVE_TOKENS)))


def places_of(rows: Sequence[Signature]) -> dict[bytes, list[int]]:
    """Token -> the places of the rows that have it."""
    places: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        for token in row.tokens:
            places.setdefault(token, []).append(place)
    return places
