"""Any exception that no other row knows."""

from __future__ import annotations

from hcp.triage.signatures.row import ERROR, Signature, fault

EXCEPTIONS: tuple[Signature, ...] = (
    fault(
        "exception",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error|(?:[a-z_]\w*\.)+Error): (?P<text>.+)$",
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
        r"[Cc]aught signal \d{1,2} \((?P<how>[^()]{1,160})\)|^(?P<how2>Segmentation fault|Bus error)\b|"
        r"Fatal Python error: (?P<how3>Segmentation fault|Bus error|Illegal instruction|Floating[ -]point \w+|"
        r"[A-Za-z_]\w{1,60}: .{1,200})|\bSignal: (?P<how4>[A-Z][\w ]{2,30}) \(\d{1,2}\)|"
        r"Program received signal (?P<how5>SIG[A-Z]{2,8})|\*\*\* Process received signal \*\*\*$",
        "a process crashed: {how}{how2}{how3}{how4}{how5}",
        "Fatal Python error: Segmentation fault",
        "Fatal Python error: none",
        "the lines below it show where: an extension, or NCCL and its plugins",
        tokens=(ERROR, b"ignal", b"Segmentation fault"),
        role="general",
        again="chance",
    ),
    fault(
        "heap-corrupted",
        r"(?:^|[\s`'\"])(?P<what>(?:free|c?alloc|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): "
        r"[a-z][\w ,.()-]{3,80}\b|"
        r"double free or corruption|corrupted (?:size vs\. prev_size|double-linked list)|"
        r"Attempt to free invalid pointer|stack smashing detected)",
        "a process damaged its own memory, which is a bug of a native library: {what}",
        "free(): invalid pointer",
        "free(): 3 GiB",
        "PYTHONFAULTHANDLER=1 shows the Python line; does LD_PRELOAD load a second allocator?",
        tokens=(b"(): ", b"double free", b"corrupted ", b"invalid pointer", b"stack smashing"),
        role="general",
        again="chance",
    ),
    fault(
        "check-failed",
        r"(?:^|\] )\s{0,3}Check failed: (?P<text>\S.*)$",
        "a check inside a native library failed: {text}",
        "task_receiver.cc:219:  Check failed: objects_valid",
        "Check failed runs with sacct",
        "the stack below it names the library",
        tokens=(b"Check failed: ",),
        role="general",
        again="chance",
    ),
    fault(
        "cpp-exception",
        r"^\s{0,8}what\(\):\s{1,8}(?P<text>\S.*)$",
        "the program was ended by a C++ exception: {text}",
        "  what():  invalid device pointer: 0x7ff443ffdc00",
        "  what is it: a pointer",
        "read the lines below it: they show where",
        tokens=(b"what():",),
        role="general",
        again="chance",
    ),
    fault(
        "exception-other",
        r"^(?!KeyboardInterrupt\b|SystemExit\b|Exception:$)(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)"
        r"(?:: ?(?P<text>.*))?$",
        "the program raised {exc}: {text}",
        "filelock.Timeout: The file lock '/cache/x.lock' could not be acquired.",
        "KeyboardInterrupt",
        "read the traceback above this line",
        tokens=(),
        role="general",
        again="chance",
        context=r"Traceback \(most recent call last\):",
    ),
)

UNKNOWN = Signature(
    "unknown-error",
    "",
    "unknown",
    "chance",
    (),
    r"^(?P<text>.+)$",
    "probably this line, which hcp does not recognise: {text}",
    ("read the lines around it",),
    "ERROR: the licence server said no",
    "",
)
"""Stands for any line that says error and that no row knows; it is no row of the table."""
