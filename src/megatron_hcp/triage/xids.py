"""The driver's error numbers (Xid): what each means, and whether the machine or the program is to blame.

Source: NVIDIA's "XID Errors" (GPU deployment and management documentation).
"""

from __future__ import annotations

_OF_THE_PROGRAM = {
    13: "a kernel's exception, mostly an access outside an array",
    31: "a memory access outside what the program has mapped",
    43: "the program's channel was stopped after a fault of its own",
    68: "an exception of the video decoder",
    69: "a kernel's class error",
}
_OF_THE_MACHINE = {
    48: "a double-bit memory error",
    62: "the GPU's internal micro-controller halted",
    64: "a faulty memory row could not be remapped",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "too many single-bit memory errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    109: "a context switch timed out",
    110: "a security fault",
    119: "the GPU's system processor does not answer",
    120: "the GPU's system processor failed",
    140: "an uncorrected memory error",
    149: "an NVLink error",
    154: "the GPU wants to be reset",
}
OF_THE_PROGRAM = "|".join(map(str, _OF_THE_PROGRAM))
"""Alternatives of a pattern: these say nothing against the machine."""
PASSED_ON = "45|63"
"""45 cleans up after another error; 63 notes that a memory row was remapped."""


def meaning(xid: int | None) -> str:
    """What a number means, in words; empty where it is not known.

    >>> meaning(79), meaning(7)
    ('the GPU has fallen off the bus', '')
    """
    return {**_OF_THE_PROGRAM, **_OF_THE_MACHINE}.get(xid or 0, "")
