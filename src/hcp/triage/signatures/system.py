"""Signatures of what is no matter of the layout: machines, launchers, and what follows a failure."""

from __future__ import annotations

from hcp.triage.signatures.table import Signature

_SACCT = "sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS"
_EXCLUDE = "take {node} out of the next job (sbatch --exclude={node}) and tell the administrators"


def _row(
    id: str,
    pattern: str,
    cause: str,
    example: str,
    near: str,
    *steps: str,
    token: bytes = b"Error",
    rule: str = "",
    generic: bool = False,
) -> Signature:
    return Signature(id, rule, "cause", token, pattern, cause, steps, example, near, generic)


def _effect(
    id: str,
    pattern: str,
    cause: str,
    example: str,
    near: str,
    *,
    token: bytes = b"Error",
    rule: str = "",
    steps: tuple[str, ...] = (),
) -> Signature:
    return Signature(id, rule, "effect", token, pattern, cause, steps, example, near)


def _report(
    id: str, pattern: str, cause: str, example: str, near: str, *, token: bytes, steps: tuple[str, ...] = ()
) -> Signature:
    return Signature(id, "", "report", token, pattern, cause, steps, example, near)


SYSTEM: tuple[Signature, ...] = (
    _row(
        "gpu-memory",
        r"(?:OutOfMemoryError: )?CUDA out of memory|CUDA error: out of memory",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB",
        "RuntimeError: CUDA error: invalid device ordinal",
        "raise context_parallel_size or lower the micro-batch, or turn on activation recomputation",
        "hcp check {launch} --select CP024",
    ),
    _row(
        "port-taken",
        r"EADDRINUSE|[Aa]ddress already in use",
        "the rendezvous port is taken: two launchers on one node (SLURM004) or another job with the same port",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "torch.distributed.DistNetworkError: The server socket has failed to resolve the name",
        "hcp check {launch} --select SLURM004",
        "derive the port from the job id, as `hcp render` does",
        rule="SLURM004",
    ),
    _row(
        "gpu-ecc",
        r"CUDA error: uncorrectable ECC error",
        "a GPU's memory is faulty",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: misaligned address",
        _EXCLUDE,
    ),
    _row(
        "gpu-xid",
        r"NVRM: Xid \([^)]*\): (?P<xid>\d+)",
        "the driver reported Xid {xid} on a GPU",
        "kernel: NVRM: Xid (PCI:0000:4b:00): 79, pid=1234, GPU has fallen off the bus.",
        "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        _EXCLUDE,
        token=b"NVRM: Xid",
    ),
    _row(
        "gpu-access",
        r"CUDA error: an illegal memory access|CUDA error: device-side assert",
        "a kernel read or wrote outside its data (with packed data: sequence lengths that do not divide, PACK001)",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: no kernel image is available",
        "hcp check {launch} --select PACK,DCP",
        "run again with CUDA_LAUNCH_BLOCKING=1",
    ),
    _row(
        "gpu-lost",
        r"CUDA error: (?:unknown error|unspecified launch failure|device not ready)|"
        r"CUDA-capable device\(s\) is/are busy|unhandled cuda error|ncclUnhandledCudaError",
        "a GPU stopped working",
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: invalid argument",
        _EXCLUDE,
    ),
    _row(
        "nan-loss",
        r"found (?:NaN|Inf) in local|Unexpected result (?:nan|inf)",
        "the loss or a gradient is not finite",
        "AssertionError: found NaN in local forward loss calculation. Device: 0, node: n1",
        "AssertionError: found no data in local cache",
        "start from the last checkpoint once: if it comes back at the same step, the data or the model is the cause, "
        "if not, suspect {node}",
    ),
    _row(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "a file system is full",
        "OSError: [Errno 28] No space left on device: '/checkpoints/iter_0000100'",
        "OSError: [Errno 2] No such file or directory",
        "df -h and df -i on {node}, and the quota of the checkpoint folder",
    ),
    _row(
        "shared-memory",
        r"is killed by signal: Bus error|unable to (?:write|open) (?:to )?(?:file|shared memory)",
        "a data loader worker ran out of shared memory",
        "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "RuntimeError: DataLoader worker (pid 5) exited unexpectedly",
        "enlarge /dev/shm of the container",
    ),
    _row(
        "module-missing",
        r"(?:ModuleNotFoundError: No module named|ImportError: cannot import name)",
        "a Python package is missing or of another version on this node",
        "ModuleNotFoundError: No module named 'megatron'",
        "AttributeError: module has no attribute",
        "hcp facts (inside the job's container)",
    ),
    _row(
        "checkpoint-missing",
        r"FileNotFoundError: .*(?:checkpoint|ckpt|iter_)",
        "a checkpoint path does not exist on this node",
        "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/iter_0000010/metadata.json'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.txt'",
        "hcp check {launch} --select SLURM005,SLURM012",
    ),
    _row(
        "host-memory",
        r"[Dd]etected \d+ oom[-_ ]kill event",
        "a node ran out of host memory and killed a process",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: execve(): hcp: No such file or directory",
        _SACCT,
        "fewer data loader workers, or --mem=0",
        token=b"slurmstepd: error",
    ),
    _row(
        "time-limit",
        r"CANCELLED AT \S+ DUE TO TIME LIMIT",
        "the job reached its time limit",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "submit again: with --signal and --requeue (`hcp render --requeue N`) it would have gone on by itself",
        token=b"slurmstepd: error",
    ),
    _row(
        "preempted",
        r"CANCELLED AT \S+ DUE TO PREEMPTION|DUE TO JOB REQUEUE",
        "the job was preempted or requeued",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "squeue -j {job}",
        token=b"slurmstepd: error",
    ),
    _row(
        "node-failure",
        r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|Job credential expired",
        "a node failed",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO NODE FAILURE, "
        "SEE SLURMCTLD LOG FOR DETAILS ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        _EXCLUDE,
        token=b"slurmstepd: error",
    ),
    _row(
        "program-missing",
        r"execve\(\): (?P<program>.*): (?:No such file or directory|Permission denied)",
        "a node cannot start {program}",
        "slurmstepd: error: execve(): torchrun: No such file or directory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.",
        "is the environment (module, venv, container) there on every node?",
        token=b"slurmstepd: error",
    ),
    _row(
        "cancelled",
        r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [^ ]+ \*\*\*",
        "the job or step was cancelled",
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***",
        "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 DUE TO TIME LIMIT ***",
        _SACCT,
        token=b"slurmstepd: error",
        generic=True,
    ),
    _row(
        "hcp-check",
        r"^\S.*?: error (?P<rule>[A-Z]+\d{3}) (?P<text>.+)$",
        "hcp check stopped the job in phase 0: {text}",
        "<command line>: error HCP002 start-up stops with an AssertionError that has no text (found: 3 x 2)",
        "srun: error: n1: task 0: Exited with exit code 1",
        "hcp explain {rule}",
        "the lines below it give the override that mends it",
        token=b": error ",
    ),
    _row(
        "hcp-stopped",
        r"hcp-job: .*\"event\": ?\"stopped\".*\"reason\": ?\"(?P<reason>[^\"]*)\"",
        "the job's own checks stopped it: {reason}",
        'hcp-job: {"event": "stopped", "phase": 0, "reason": "hcp check found errors in the launch"}',
        'hcp-job: {"event": "phase", "phase": 3}',
        "read the lines above it in the job's log",
        token=b"hcp-job: ",
    ),
)
"""Causes outside the layout."""

EFFECTS: tuple[Signature, ...] = (
    _effect(
        "nccl-id",
        r"ncclUniqueId",
        "rank 0 was gone before the rendezvous: this rank waited for its ncclUniqueId",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from "
        "[0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp",
        rule="LOG003",
        steps=("look at the log of rank 0, before this time",),
    ),
    _effect(
        "collective-timeout",
        r"[Ww]atchdog caught collective operation timeout|collective operation timeout: WorkNCCL",
        "a collective waited in vain: a rank that did not report this is the one that stopped",
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
        "[Rank 3] Watchdog started",
        token=b"atchdog",
        rule="LOG003",
        steps=(
            "compare the ranks that reported it with all ranks; look at the missing one",
            "TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 records who waited for whom",
        ),
    ),
    _effect(
        "peer-gone",
        r"[Cc]onnection (?:reset|closed) by (?:remote )?peer|Broken pipe|remote process exited|"
        r"Connection refused|Socket Timeout|socketStatusStr|NCCL error in|ncclRemoteError|ncclSystemError|"
        r"ncclInternalError|unhandled system error",
        "another rank had gone",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3456",
        "RuntimeError: Connection string is empty",
    ),
    _effect(
        "rendezvous-timeout",
        r"(?:client socket has timed out|DistStoreError|RendezvousTimeoutError|"
        r"RendezvousConnectionError|RendezvousClosedError)",
        "the rendezvous never came together: a node or rank did not arrive",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to (n1, 29500).",
        "torch.distributed.DistNetworkError: The server socket has no name",
        rule="LOG003",
        steps=("look at the node that is named first in the job: did its launcher start?",),
    ),
    _effect(
        "nccl-warning",
        r"NCCL WARN (?P<text>.*)",
        "NCCL: {text}",
        "n1:12345:12350 [3] NCCL WARN Call to recv from 10.0.0.2<1234> failed : Broken pipe",
        "n1:12345:12350 [3] NCCL INFO Channel 00/0",
        token=b"NCCL WARN",
    ),
    _effect(
        "terminated",
        r"SignalException: .* got signal: 15|closing signal SIGTERM|SystemExit: 143|got signal: 1\b",
        "ended by the launcher after another failure",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 9",
        token=b"ignal",
    ),
    _effect(
        "pipe-closed",
        r"^(?:EOFError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|"
        r"KeyboardInterrupt)\b",
        "a helper process lost its peer",
        "EOFError: Ran out of input",
        "TimeoutError: timed out",
    ),
    _effect(
        "ray-wrapper",
        r"ray\.exceptions\.|ray::|ActorDiedError|RayTaskError",
        "Ray passes on a failure of a worker",
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()",
        "ValueError: bad ray",
        steps=("look at the worker's own lines, under the same pid",),
    ),
    _effect(
        "child-failed",
        r"ChildFailedError",
        "torchrun passes on a failure of a worker",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "ValueError: child failed",
    ),
)
"""What ranks say because another one failed."""

GENERAL: tuple[Signature, ...] = (
    _report(
        "srun-task",
        r"^srun: error: (?P<host>[^:\s]+): tasks? (?P<tasks>[\d,-]+): (?P<how>.+)$",
        "srun saw task {tasks} on {host} end: {how}",
        "srun: error: n2: task 5: Killed",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        token=b"srun: error",
        steps=(_SACCT,),
    ),
    _report(
        "torchrun-worker",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)",
        "torchrun saw local rank {local} end with exit code {code}",
        "E0822 10:00:00.123000 12345 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: -9) "
        "local_rank: 1 (pid: 12360) of binary: /usr/bin/python",
        "I0822 exitcode is 0",
        token=b"exitcode",
        steps=(_SACCT,),
    ),
    _report(
        "torchrun-root",
        r"Root Cause \(first observed failure\):",
        "torchrun's own account of the first failure",
        "Root Cause (first observed failure):",
        "Other Failures:",
        token=b"Root Cause (first",
    ),
    _row(
        "srun-step",
        r"^srun: error: (?P<why>Unable to (?:create step|confirm allocation).*|Task launch .* failed.*|"
        r"Application launch failed.*|Job step aborted.*)",
        "srun could not start the step: {why}",
        "srun: error: Unable to create step for job 12: Requested node configuration is not available",
        "srun: error: n2: task 5: Killed",
        _SACCT,
        token=b"srun: error",
        generic=True,
    ),
    _row(
        "exception",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "ValueError: could not load the tokenizer",
        "Errors: 0",
        "read the traceback above this line",
        generic=True,
    ),
    _row(
        "exception-class",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*\w*Exception): (?P<text>.+)$",
        "the program raised {exc}: {text}",
        "Exception: the data are not there",
        "no Exception: all is well",
        "read the traceback above this line",
        token=b"Exception: ",
        generic=True,
    ),
    _row(
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
"""Launchers' reports, and any exception that no row above knows."""
