"""What a failing or full GPU says, and numbers that are not finite."""

from __future__ import annotations

from hcp.triage.signatures.row import EXCLUDE_NODE, Signature, fault

GPU: tuple[Signature, ...] = (
    fault(
        "gpu-memory",
        r"(?:OutOfMemoryError: )?CUDA out of memory|CUDA error: out of memory",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB",
        "RuntimeError: CUDA error: invalid device ordinal",
        "raise context_parallel_size or lower the micro-batch, or turn on activation recomputation",
        "hcp check {launch} --select CP024",
    ),
    fault(
        "gpu-ecc",
        r"CUDA error: uncorrectable ECC error",
        "a GPU's memory is faulty",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: misaligned address",
        EXCLUDE_NODE,
    ),
    fault(
        "gpu-xid",
        r"NVRM: Xid \([^()]{0,80}\): (?P<xid>\d+)",
        "the driver reported Xid {xid} on a GPU",
        "kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus.",
        "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        EXCLUDE_NODE,
        token=b"NVRM: Xid",
    ),
    fault(
        "gpu-access",
        r"CUDA error: an illegal memory access|CUDA error: device-side assert",
        "a kernel read or wrote outside its data (with packed data: sequence lengths that do not divide, PACK001)",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: no kernel image is available",
        "hcp check {launch} --select PACK,DCP",
        "run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    fault(
        "gpu-lost",
        r"CUDA error: (?:unknown error|unspecified launch failure|device not ready)|"
        r"CUDA-capable device\(s\) is/are busy|unhandled cuda error|ncclUnhandledCudaError",
        "a GPU stopped working",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: invalid argument",
        EXCLUDE_NODE,
    ),
    fault(
        "nan-loss",
        r"found (?:NaN|Inf) in local|Unexpected result (?:nan|inf)",
        "the loss or a gradient is not finite",
        "AssertionError: found NaN in local forward loss calculation. Device: 0, node: n1",
        "AssertionError: found no data in local cache",
        "start from the last checkpoint once: if it comes back at the same step, the data or the model is the cause, "
        "if not, suspect {node}",
    ),
)
