"""Any exception that no other row knows."""

from __future__ import annotations

from hcp.triage.signatures.row import Signature, fault

EXCEPTIONS: tuple[Signature, ...] = (
    fault(
        "exception",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "ValueError: could not load the tokenizer",
        "Errors: 0",
        "read the traceback above this line",
        generic=True,
    ),
    fault(
        "exception-class",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*\w*Exception): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "Exception: the data are not there",
        "no Exception: all is well",
        "read the traceback above this line",
        token=b"Exception: ",
        generic=True,
    ),
    fault(
        "exception-bare",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error):?$",
        "the program raised {exc} without a text",
        "AssertionError",
        "No Error",
        "read the traceback above this line",
        "hcp check {launch}",
        generic=True,
    ),
)
