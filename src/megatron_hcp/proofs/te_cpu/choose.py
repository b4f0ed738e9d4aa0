"""A release's own choice of the backend: would DotProductAttention take the kernel of a case?

`get_attention_backend` runs unchanged, for bfloat16 tensors on an H100 with cuDNN 9.21; NVTE_FLASH_ATTN and
NVTE_FUSED_ATTN request the kernel. What cuDNN itself would refuse is compiled code and not consulted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator
from typing import Any

from megatron_hcp.proofs.te_cpu.case import BATCH, HEAD_DIM, AttentionCall, Inputs
from megatron_hcp.proofs.te_cpu.load import Release, use_flash

CP_SIZE = 4
LOGGER = "DotProductAttention"
_SWITCHES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")


def why_not_chosen(release: Release, case: AttentionCall) -> str:
    """Why the release rejects the kernel of this case, from its log; empty if it takes it."""
    use_flash(release, case.flash or 2)
    wanted = ("0", "1", "0") if case.flash == 0 else ("1", "0", "0")
    with _environment(dict(zip(_SWITCHES, wanted))), logged_by_choice() as lines:
        parameters = _parameters(release, case)
        takes_flash, *rest = release.chooser.get_attention_backend(parameters)
    takes = takes_flash if case.flash else any(value is True or value == 1 for value in rest[:2])
    return "" if takes else _reason(lines, case)


def _parameters(release: Release, case: AttentionCall) -> Any:
    inputs = Inputs(case, CP_SIZE)
    mask = "causal" if case.is_causal else "no_mask"
    if case.format == "thd":
        mask = "padding_causal" if case.is_causal else "padding"
    total = sum(inputs.padded) if case.format == "thd" else max(inputs.padded)
    given: dict[str, Any] = {
        "qkv_layout": "_".join([case.format] * 3),
        "batch_size": len(inputs.padded) if case.format == "thd" else BATCH,
        "num_heads": inputs.heads,
        "num_gqa_groups": inputs.kv_heads,
        "max_seqlen_q": max(inputs.padded),
        "max_seqlen_kv": max(inputs.padded),
        "num_tokens_q": total,
        "num_tokens_kv": total,
        "head_dim_qk": inputs.head_dim,
        "head_dim_v": HEAD_DIM,
        "attn_mask_type": mask,
        "window_size": case.window,
        "bottom_right_diagonal": False,
        "pad_between_seqs": case.is_padded,
        "context_parallel": True,
        "cp_comm_type": case.comm,
        "cp_size": CP_SIZE,
        "cp_size_a2a": {"a2a": CP_SIZE, "a2a+p2p": 2}.get(case.comm, 1),
        "softmax_type": "learnable" if case.feature == "sinks" else "vanilla",
        "core_attention_bias_shape": None,
        "core_attention_bias_requires_grad": False,
        "softmax_scale": inputs.scale,
    }
    kind = release.chooser.AttentionParams
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in known})


def _reason(lines: list[str], case: AttentionCall) -> str:
    kernel = "FusedAttention" if case.flash == 0 else "FlashAttention"
    against = [line for line in lines if line.startswith("Disabling") and kernel in line]
    against = [line for line in against if "NVTE_" not in line]
    return against[0] if against else "No dot product attention backend is available for the provided inputs"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def logged_by_choice() -> Iterator[list[str]]:
    """The lines that the choice of backend logs meanwhile, hidden from everyone else."""
    logger, handler = logging.getLogger(LOGGER), _Lines()
    before, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
