"""What native code says when it ends a process: signals, broken heaps, failed checks, panics."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, effect, fault

CRASHES: tuple[Signature, ...] = (
    fault(
        "crash",
        r"[Cc]aught signal \d{1,2} \((?P<how>[^()]{1,160})\)|^(?P<how2>Segmentation fault|Bus error)\b|"
        r"Fatal Python error: (?P<how3>Segmentation fault|Bus error|Illegal instruction|Floating[ -]point \w+|"
        r"[A-Za-z_]\w{1,60}: .{1,200})|\bSignal: (?P<how4>[A-Z][\w ]{2,30}) \(\d{1,2}\)|"
        r"Program received signal (?P<how5>SIG[A-Z]{2,8})|\*\*\* Process received signal \*\*\*$",
        "a process crashed: {how}{how2}{how3}{how4}{how5}",
        "the lines below it show where: an extension, or NCCL and its plugins",
        tokens=(ERROR, b"ignal", b"Segmentation fault"),
        role="general",
        again="chance",
    ),
    effect(
        "faulthandler-timeout",
        r"^Timeout \((?P<text>\d{1,4}:\d\d:\d\d(?:\.\d{1,9})?)\)!$",
        "Python's faulthandler found no progress after {text}, and dumped where each thread was",
        "the frames below it, of each rank: the one that is not in a collective is the one that the others wait for",
        tokens=(b"Timeout (",),
        role="origin",
    ),
    fault(
        "heap-corrupted",
        r"(?:^|[\s`'\"])(?P<what>(?:free|c?alloc|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): "
        r"[a-z][\w ,.()-]{3,80}\b|"
        r"double free or corruption|corrupted (?:size vs\. prev_size|double-linked list)|"
        r"Attempt to free invalid pointer|stack smashing detected)",
        "a process corrupted its own memory, which is a bug in a native library: {what}",
        "PYTHONFAULTHANDLER=1 shows the Python line; does LD_PRELOAD load a second allocator?",
        tokens=(b"(): ", b"double free", b"corrupted ", b"invalid pointer", b"stack smashing"),
        role="general",
        again="chance",
    ),
    fault(
        "check-failed",
        r"(?:^|\] )\s{0,3}Check failed: (?P<text>\S.*)$",
        "a check inside a native library failed: {text}",
        "the stack below it names the library",
        tokens=(b"Check failed: ",),
        role="general",
        again="chance",
    ),
    fault(
        "cpp-exception",
        r"^\s{0,8}what\(\):\s{1,8}(?P<text>\S.*)$",
        "a C++ exception ended the program: {text}",
        "read the lines below it: they show where",
        tokens=(b"what():",),
        role="general",
        again="chance",
    ),
    fault(
        "panic",
        r"^thread '[^']{0,80}' (?:\(\d{1,10}\) )?panicked at (?P<text>.+)$|^panic: (?P<text2>.+)$",
        "native code (Rust or Go) panicked: {text}{text2}",
        "the next line gives the reason; RUST_BACKTRACE=1 shows where",
        tokens=(b"panicked at ", b"panic: "),
        role="general",
        again="chance",
    ),
    fault(
        "assert-failed",
        r"^[^`]{1,500}: Assertion [`'](?P<text>[^`']{1,300})' failed",
        "an assertion of native code failed: {text}",
        "the library is named by the source file",
        tokens=(b"Assertion `", b"Assertion '"),
        role="general",
        again="chance",
    ),
    fault(
        "gpu-call",
        r"^(?:\S{1,200} )?(?P<text>(?:CUDA|HIP|HSA|cuDNN|CUDNN|cuBLAS|NPU|XPU|SYCL|oneCCL|"
        r"(?i:curand|cusolver|cusparse|cufft|nvrtc|hiprtc|rocblas|miopen))[\w ]{0,20} "
        r"[Ee]rror:? (?!handling)\S.{2,})$",
        "a call to the GPU's libraries failed: {text}",
        "run again with CUDA_LAUNCH_BLOCKING=1",
        role="general",
        again="chance",
    ),
)
