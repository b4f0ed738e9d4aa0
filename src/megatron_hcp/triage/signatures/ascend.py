"""What ROCm says, and what Ascend's runtime (CANN) and HCCL do: codes of two letters and four digits, with a text."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import Signature, effect, fault

_CODES = (
    b"EI0",
    b"EJ0",
    b"EE1",
    b"EE9",
    b"EF0",
    b"EH0",
    b"EH9",
    b"EK0",
    b"EL0",
    b"EZ0",
    b"EZ9",
    b"E19",
    b"E39",
    b"E40",
)
_STAMP = r"(?:\[PID: \d{1,9}\] )?(?:\d{4}-\d\d-\d\d-[\d:.]{8,20} )?"
_PLOG = "the NPU's own logs (~/ascend/log, ASCEND_GLOBAL_LOG_LEVEL=1) of this rank say more"

ASCEND: tuple[Signature, ...] = (
    effect(
        "ascend-wait",
        rf"^(?:{_STAMP}[A-Za-z_]{{3,60}}\()?(?P<code>E[A-Z]\d{{4}})\)?(?:\[PID: \d{{1,9}}\])?: {_STAMP}"
        r"(?P<text>.{0,120}(?:[Tt]imes? ?out|timed out).*)",
        "an NPU timed out waiting for another rank or for its own stream ({code}): {text}",
        "find a rank that reports another error, or none, before this time",
        _PLOG,
        tokens=_CODES,
        role="origin",
    ),
    fault(
        "hsa",
        r"aborting with error ?: ?(?P<code>HSA_STATUS_ERROR\w{0,60})|^(?P<code2>HSA_STATUS_ERROR\w{0,60})\b",
        "ROCm ended the process: {code}{code2}",
        "rocm-smi and dmesg -T on {node}; run again with AMD_SERIALIZE_KERNEL=3",
        tokens=(b"HSA_STATUS_ERROR",),
        again="chance",
    ),
    fault(
        "ascend-error",
        rf"^(?:{_STAMP}[A-Za-z_]{{3,60}}\()?(?P<code>E[A-Z]\d{{4}}|E\d{{5}})\)?(?:\[PID: \d{{1,9}}\])?: {_STAMP}"
        r"(?P<text>(?!Inner Error)[A-Z].{5,})",
        "an NPU or its runtime failed ({code}): {text}",
        "the lines below it give a solution; do the versions of CANN, the driver and torch_npu match?",
        _PLOG,
        tokens=_CODES,
        again="chance",
    ),
    effect(
        "ascend-call",
        r"(?:NPU|OPS) (?:function )?error: (?P<text>.{1,200})|HCCL (?:function )?error(?: in)?: (?P<text2>.{1,200})|"
        r"^\w{1,40}Error: The (?P<text4>Inner error is reported as above)|error code is (?P<text3>[15]0[67]\d{3})\b",
        "a call to Ascend's libraries failed: {text}{text2}{text3}{text4}; the lines below it say why",
        _PLOG,
    ),
)
