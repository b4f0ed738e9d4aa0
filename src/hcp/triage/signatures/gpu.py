"""What a failing or full GPU says, and numbers that are not finite."""

from __future__ import annotations

from hcp.triage.signatures.row import ERROR, EXCLUDE_NODE, Signature, fault, report
from hcp.triage.xids import OF_THE_PROGRAM, PASSED_ON

_XID = r"NVRM: Xid \([^()]{0,80}\): "

GPU: tuple[Signature, ...] = (
    fault(
        "gpu-memory",
        r"(?:OutOfMemoryError: )?CUDA out of memory|CUDA error: out of memory|"
        r"Cuda failure (?:\d{1,4} )?'out of memory'|"
        r"CUDA_ERROR_OUT_OF_MEMORY",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB",
        "RuntimeError: CUDA error: invalid device ordinal",
        "raise context_parallel_size or lower the micro-batch, or turn on activation recomputation",
        "hcp check {launch} --select CP024",
        tokens=(ERROR, b"NCCL WARN"),
    ),
    fault(
        "gpu-ecc",
        r"CUDA error: uncorrectable ECC error|uncorrectable (?:NVLink|ECC) error|CUDA error: .{0,40}hardware",
        "a GPU's memory is faulty",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: misaligned address",
        EXCLUDE_NODE,
        again="machine",
    ),
    fault(
        "gpu-xid-app",
        rf"{_XID}(?P<xid>{OF_THE_PROGRAM})\b",
        "the driver reported Xid {xid}, an error of the program and not of the machine",
        "NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=python, channel 0x00000008, intr 00000000. MMU Fault",
        "kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus.",
        "run again with CUDA_LAUNCH_BLOCKING=1; compute-sanitizer names the kernel",
        "hcp check {launch} --select PACK,DCP",
        tokens=(b"NVRM: ",),
    ),
    report(
        "gpu-xid-passed-on",
        rf"{_XID}(?P<xid>{PASSED_ON})\b",
        "the driver reported Xid {xid}, which follows from something else",
        "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001",
        "kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus.",
        tokens=(b"NVRM: ",),
        role="echo",
    ),
    fault(
        "gpu-xid",
        rf"{_XID}(?P<xid>\d+)",
        "the driver reported Xid {xid} on a GPU",
        "kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus.",
        "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        EXCLUDE_NODE,
        tokens=(b"NVRM: ",),
        again="machine",
    ),
    fault(
        "gpu-assert",
        r"Assertion `[^`]{1,200}` failed|CUDA error: device-side assert",
        "a kernel met an index outside its table: a token beyond the vocabulary, a position beyond the table, "
        "a label that is no class",
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: [134,0,0], thread: "
        "[0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "AssertionError: no index",
        "compare the largest token id of the data with the padded vocabulary, and seq_length with "
        "max_position_embeddings",
        "run again with CUDA_LAUNCH_BLOCKING=1",
        tokens=(b"Assertion `", ERROR),
    ),
    fault(
        "gpu-access",
        r"CUDA error(?: \([^()]{0,200}\))?: (?:an illegal (?:memory access|instruction)|misaligned address)|"
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress",
        "a kernel read or wrote outside its data (with packed data: sequence lengths that do not divide, PACK001)",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: no kernel image is available",
        "hcp check {launch} --select PACK,DCP",
        "run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    fault(
        "gpu-build",
        r"no kernel image is available|CUDA driver version is insufficient|driver on your system is too old|"
        r"CUDA error: invalid device (?:ordinal|function)|named symbol not found",
        "the program does not fit this node's GPU or driver: it is built for another architecture, or the driver is "
        "too "
        "old, or there are fewer GPUs than ranks",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "hcp facts, inside the container of the job, on {node}",
    ),
    fault(
        "gpu-lost",
        r"CUDA error: (?:unknown error|unspecified launch failure|device not ready)|fallen off the bus|"
        r"CUDA-capable device\(s\) is/are busy|Cuda failure (?:\d{1,4} )?'(?:unknown error|unspecified launch failure)|"
        r"unhandled cuda error|ncclUnhandledCudaError|Unable to determine the device handle",
        "a GPU stopped working",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: invalid argument",
        EXCLUDE_NODE,
        tokens=(ERROR, b"NCCL WARN", b"NVRM: "),
        again="machine",
    ),
    fault(
        "nan-loss",
        r"found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf)|found NaN in (?:local )?(?:forward|grad)|"
        r"[Ll]oss is (?:nan|inf|NaN)\b",
        "the loss or a gradient is not finite",
        "AssertionError: found NaN in local forward loss calculation. Device: 0, node: n1",
        "AssertionError: found no data in local cache",
        "start from the last checkpoint once: if it comes back at the same step, the data or the model is the cause, "
        "if not, suspect {node}",
        tokens=(ERROR, b"Unexpected result "),
        again="chance",
    ),
)
