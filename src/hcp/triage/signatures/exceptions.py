"""Any exception that no other row knows."""

from __future__ import annotations

from hcp.triage.signatures.row import ERROR, Signature, fault

EXCEPTIONS: tuple[Signature, ...] = (
    fault(
        "exception",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "ValueError: could not load the tokenizer",
        "Errors: 0",
        "read the traceback above this line",
        role="general",
        again="chance",
    ),
    fault(
        "exception-class",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*\w*Exception): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "Exception: the data are not there",
        "no Exception: all is well",
        "read the traceback above this line",
        tokens=(b"xception: ",),
        role="general",
        again="chance",
    ),
    fault(
        "exception-bare",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error):?$",
        "the program raised {exc} without a text",
        "AssertionError",
        "No Error",
        "read the traceback above this line",
        "hcp check {launch}",
        role="general",
        again="chance",
    ),
    fault(
        "crash",
        r"[Cc]aught signal \d{1,2} \((?P<how>[^()]{1,60})\)|^(?:Fatal Python error: )?(?P<how2>Segmentation fault|"
        r"Bus error)\b|"
        r"\*\*\* Process received signal \*\*\*",
        "a process crashed: {how}{how2}",
        "Fatal Python error: Segmentation fault",
        "Fatal Python error: none",
        "the lines below it show where: an extension, or NCCL and its plugins",
        tokens=(ERROR, b"ignal"),
        role="general",
        again="chance",
    ),
)
