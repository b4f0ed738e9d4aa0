"""What a failing or full GPU says, and numbers that are not finite."""

from __future__ import annotations

from megatron_hcp.triage.course.kinds import METRIC
from megatron_hcp.triage.signatures.row import ERROR, EXCLUDE_NODE, Signature, fault, report
from megatron_hcp.triage.xids import OF_THE_PROGRAM, PASSED_ON

_NOT_FINITE = (
    "go back to a checkpoint from before that step; compare the data, the learning rate and the precision of the steps "
    "just before: does the same step fail again?"
)
_XID = r"NVRM: Xid \([^()]{0,80}\): "

GPU: tuple[Signature, ...] = (
    fault(
        "gpu-memory",
        r"(?:OutOfMemoryError: )?(?:CUDA|HIP|NPU|XPU|MUSA) out of memory|(?:CUDA|HIP) error: out of memory|"
        r"OutOfMemoryError: (?:Caught OutOfMemoryError|Allocation on device)|RESOURCE_EXHAUSTED: Out of memory|"
        r"OOM when allocating tensor|(?:UR_RESULT|PI)_ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)|"
        r"hipErrorOutOfMemory|cudaErrorMemoryAllocation|"
        r"Cuda failure (?:\d{1,4} )?'out of memory'|Failed to CUDA (?:calloc|malloc|host alloc)|"
        r"CUDA_ERROR_OUT_OF_MEMORY",
        "a GPU ran out of memory",
        "hcp plan {launch} --gpu GPU",
        "{memory}",
        tokens=(ERROR, b"NCCL WARN", b"NPU out of memory", b"_ERROR_OUT_OF_"),
    ),
    fault(
        "gpu-ecc",
        r"uncorrectable ECC error|(?:CUDA|HIP) error: (?:(?!CUDA)[\w ]){0,40}hardware|"
        r"(?:CUDA_ERROR_|cudaError)ECC_?UNCORRECTABLE|cudaErrorECCUncorrectable|hardware stack error",
        "a GPU's memory is faulty",
        EXCLUDE_NODE,
        again="machine",
    ),
    fault(
        "gpu-nvlink",
        r"uncorrectable NVLink error|CUDA_ERROR_NVLINK_UNCORRECTABLE|cudaErrorNvlinkUncorrectable|"
        r"nvswitch\d{0,3}: SXid \([^()]{0,80}\): \d{1,6}, Fatal",
        "an NVLink between GPUs of a node failed",
        EXCLUDE_NODE,
        "nvidia-smi nvlink -e on {node} counts its errors",
        tokens=(ERROR, b"NVLINK_UNCORRECTABLE", b"SXid"),
        again="machine",
    ),
    fault(
        "gpu-xid-app",
        rf"{_XID}(?P<xid>{OF_THE_PROGRAM})\b",
        "the driver reported Xid {xid}, an error in the program, not in the machine",
        "run again with CUDA_LAUNCH_BLOCKING=1; compute-sanitizer names the kernel",
        "hcp check {launch} --select PACK,DCP",
        tokens=(b"NVRM: ",),
    ),
    report(
        "gpu-xid-passed-on",
        rf"{_XID}(?P<xid>{PASSED_ON})\b",
        "the driver reported Xid {xid}, a consequence of another error",
        tokens=(b"NVRM: ",),
        role="echo",
    ),
    fault(
        "gpu-xid",
        rf"{_XID}(?P<xid>\d+)",
        "the driver reported Xid {xid} on a GPU",
        EXCLUDE_NODE,
        tokens=(b"NVRM: ",),
        again="machine",
    ),
    fault(
        "gpu-loss-range",
        r"Assertion `(?:input_val|target_val) >= zero",
        "a binary cross entropy got a value outside of 0 to 1: often a NaN, or logits without their sigmoid",
        "look for the first step whose outputs are NaN; binary_cross_entropy_with_logits takes logits as they are",
        tokens=(b"Assertion `",),
    ),
    fault(
        "gpu-assert",
        r"Assertion `[^`]{1,200}` failed|Error.{0,20}: device-side assert|error: device-side assert",
        "a check inside a kernel failed, nearly always of an index outside its table: a token ID beyond the "
        "vocabulary, a position beyond the maximum, or a label that is not a class",
        "compare the largest token id of the data with the padded vocabulary, and seq_length with "
        "max_position_embeddings",
        "run again with CUDA_LAUNCH_BLOCKING=1",
        tokens=(b"Assertion `", ERROR),
    ),
    fault(
        "gpu-access",
        r"(?:CUDA|HIP) error(?: \([^()]{0,200}\))?: (?:an illegal (?:memory access|instruction)|misaligned address)|"
        r"an illegal (?:memory access|instruction) was encountered|"
        r"(?:CUDA_ERROR_|cudaError)(?:ILLEGAL_|MISALIGNED_|Illegal|Misaligned)\w{4,20}|"
        r"^Memory access fault by GPU node",
        "a kernel read or wrote outside its data (with packed data: sequence lengths that are not divisible, PACK001)",
        "hcp check {launch} --select PACK,DCP",
        "run again with CUDA_LAUNCH_BLOCKING=1 (AMD: AMD_SERIALIZE_KERNEL=3)",
        tokens=(ERROR, b"Memory access fault by GPU", b"an illegal ", b"CUDA_ERROR_"),
        at_any_level=True,
    ),
    fault(
        "gpu-build",
        r"no kernel image is available|CUDA driver version is insufficient|driver on your system is too old|"
        r"(?:CUDA|HIP) error: invalid device (?:ordinal|function)|hipErrorNoBinaryForGpu|named symbol not found|"
        r"PTX was compiled with an unsupported toolchain|device kernel image is invalid|"
        r"API call is not supported in the installed CUDA driver|CUDA_ERROR_(?:NO_BINARY|INVALID_PTX|UNSUPPORTED_PTX)",
        "the program does not match this node's GPUs or driver: it was built for another architecture, the "
        "driver is too old, or there are fewer GPUs than ranks",
        "hcp facts, inside the container of the job, on {node}",
        tokens=(ERROR, b"no kernel image", b"PTX was compiled", b"CUDA driver", b"driver on your system"),
    ),
    fault(
        "gpu-driver",
        r"[Dd]river/library version mismatch|Found no NVIDIA driver|No CUDA GPUs are available|"
        r"CUDA unknown error - this may be due|unsupported display driver|"
        r"CUDA driver initialization failed|CUDA_ERROR_(?:NO_DEVICE|SYSTEM_NOT_READY|SYSTEM_DRIVER_MISMATCH)|"
        r"system not yet initialized|no CUDA-capable device is detected|forward compatibility was attempted on|"
        r"Cuda failure (?:\d{1,4} )?'(?:initialization error|no CUDA-capable device|system not yet)|"
        r"nvidia-container-cli: (?:initialization error|detection error)|"
        r"Error: (?:(?!Error: ).){0,80}?(?:\b[Nn]o (?!free |idle )(?:\w{1,20} ){0,3}(?:GPUs?|accelerators?) "
        r"(?:(?:is|are|was|were|devices?|or \w{1,8}) ){0,2}(?:found|available|detected|visible)|"
        r"(?:cannot|can't|could(?: not|n't)|did(?: not|n't)) (?:find|detect|see) (?:\w{1,12} ){0,3}"
        r"(?:GPUs?|accelerators?|CUDA devices?)\b|(?:needs?|requires?) an? (?:\w{1,20} )?(?:GPU|accelerator)"
        r"(?=$|[.,;:!)]| (?:to|but|and)\b))",
        "the program found no working GPU driver on this node",
        "nvidia-smi on {node}; does the job request GPUs, and does the container see them? after a driver "
        "update, restart the node; for Error 802, nvidia-fabricmanager must be running",
        EXCLUDE_NODE,
        tokens=(ERROR, b"NCCL WARN", b"ibrary version mismatch"),
        again="machine",
    ),
    fault(
        "gpu-busy",
        r"CUDA-capable device(?:\(s\) is/are|s are) busy",
        "another process holds the GPU, which takes one alone",
        "nvidia-smi on {node}: end what holds the GPU, or take another; nvidia-smi -c 0 lets several share it",
        tokens=(ERROR, b"NCCL WARN"),
    ),
    fault(
        "gpu-lost",
        r"(?:CUDA|HIP) error: (?:unknown error|device not ready)|unspecified launch failure|fallen off the bus|"
        r"the launch timed out and was terminated|CUDA_ERROR_LAUNCH_(?:FAILED|TIMEOUT)|GPU is lost|"
        r"Cuda failure (?:\d{1,4} )?'unknown error|"
        r"Unable to determine the device handle",
        "a GPU stopped working",
        EXCLUDE_NODE,
        tokens=(ERROR, b"NCCL WARN", b"NVRM: ", b"fallen off the bus", b"GPU is lost"),
        again="machine",
    ),
    fault(
        "nccl-cuda",
        r"Cuda failure (?:\d{1,4} )?'(?P<what>[^']{1,100})'",
        "a CUDA call inside NCCL failed: {what}",
        "do NCCL's CUDA version, the node's driver and the GPU's architecture match (hcp facts on {node})? run once "
        "with NCCL_CUMEM_ENABLE=0, and once with NCCL_P2P_DISABLE=1",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "nccl-cuda-unsaid",
        r"unhandled cuda error|ncclUnhandledCudaError",
        "a CUDA call inside NCCL failed; NCCL did not say which one",
        "restart with NCCL_DEBUG=INFO: it prints the call and CUDA's error",
        role="general",
        again="chance",
    ),
    fault(
        "cublas",
        r"CUBLAS_STATUS_(?P<status>NOT_INITIALIZED|ALLOC_FAILED)",
        "cuBLAS could not start ({status}): usually the GPU's memory is full, or an earlier kernel failed",
        "{memory}; do other processes hold memory on the GPU (nvidia-smi)?",
        "run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    fault(
        "cublas-call",
        r"CUBLAS_STATUS_(?P<status>[A-RT-Z]\w{1,40})|(?:cuBLAS|CUBLAS|Cublas) [Ee]rror: ?(?P<status2>.{1,200})",
        "a matrix product failed in cuBLAS: {status}{status2}",
        "does this GPU support these shapes and types? does LD_LIBRARY_PATH lead to another cuBLAS than PyTorch's?",
        "run again with CUDA_LAUNCH_BLOCKING=1",
        again="chance",
        role="general",
    ),
    fault(
        "kernel-resources",
        r"out of resource: (?P<what>[\w ]{1,40}), Required: (?P<need>\d+), Hardware limit: (?P<limit>\d+)",
        "a Triton kernel needs more {what} than this GPU has: {need}, limit {limit}",
        "use smaller blocks or fewer stages in that kernel, a newer Triton or package, or no torch.compile here",
        tokens=(b"out of resource: ",),
    ),
    fault(
        "kernel-compile",
        r"(?:torch\._dynamo\.exc\.)?BackendCompilerFailed(?:.{0,80} raised: (?P<text>.+))?|"
        r"InductorError|PTXAS error|^\S{0,20}CalledProcessError: Command .{0,300}?/ptxas'|"
        r"Internal Triton PTX codegen error|triton\.compiler\.errors\.\w{1,40}Error|torch\._dynamo\.exc\.\w{1,40}",
        "torch.compile or Triton could not compile a kernel: {text}",
        "does it pass once with TORCHDYNAMO_DISABLE=1? does the version of Triton match PyTorch's?",
        tokens=(ERROR, b"_dynamo.exc."),
    ),
    fault(
        "loss-nan",
        METRIC.pattern,
        "the training diverged, or its data or kernels are wrong: the {name} is not a number ({value})",
        _NOT_FINITE,
        tokens=(),
        at_any_level=True,
    ),
    fault(
        "grad-norm-nan",
        METRIC.pattern,
        "the training learns nothing any more: the {name} is not a number ({value})",
        _NOT_FINITE,
        "is the loss 0.0 beside it? the Trainer writes that for a loss that is no number (logging_nan_inf_filter)",
        tokens=(),
        again="chance",
        at_any_level=True,
    ),
    fault(
        "steps-skipped",
        r"\b(?P<what>step=\d{1,12}, skipped=\d{1,12})",
        "the training learns nothing: {what}",
        "the gradients overflow in each of them: is the loss finite before the first one? train in bf16, or lower the "
        "learning rate",
        tokens=(),
        role="general",
        at_any_level=True,
    ),
    fault(
        "loss-scale",
        r"OVERFLOW! (?:(?!OVERFLOW! ).){0,60}?[Rr]educing to (?P<scale>1[0-6]|\d|0?\.\d+|1e-\d+)(?:\.0)?$",
        "gradients overflow step after step: the loss scale fell to {scale}",
        "train in bf16, or lower the learning rate; is the loss finite before the first overflow?",
        tokens=(b"OVERFLOW!",),
        role="general",
        again="chance",
        at_any_level=True,
    ),
    fault(
        "nan-loss",
        r"found (?:NaN|Inf) in local|Unexpected result (?:nan|-?inf)|found NaN in (?:local )?(?:forward|grad)|"
        r"[Ll]oss is (?:nan|inf|NaN)\b|loss scale already at minimum|[Mm]inimum loss scale reached|"
        r"returned nan values in its",
        "the loss or a gradient is not finite",
        "start again from a checkpoint before it: if it fails at the same step, suspect the data, the learning rate or "
        "the model; if not, suspect {node}",
        tokens=(ERROR, b"Unexpected result ", b"loss scale already"),
    ),
)
