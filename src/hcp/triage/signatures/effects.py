"""What ranks say because another rank failed."""

from __future__ import annotations

from hcp.triage.signatures.row import Signature, effect

EFFECTS: tuple[Signature, ...] = (
    effect(
        "nccl-id",
        r"ncclUniqueId",
        "rank 0 was gone before the rendezvous: this rank waited for its ncclUniqueId",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from "
        "[0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp",
        "look at the log of rank 0, before this time",
        rule="LOG003",
    ),
    effect(
        "collective-timeout",
        r"[Ww]atchdog caught collective operation timeout|collective operation timeout: WorkNCCL",
        "a collective waited in vain: a rank that did not report this is the one that stopped",
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.",
        "[Rank 3] Watchdog started",
        "compare the ranks that reported it with all ranks; look at the missing one",
        "TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 records who waited for whom",
        token=b"atchdog",
        rule="LOG003",
    ),
    effect(
        "peer-gone",
        r"[Cc]onnection (?:reset|closed) by (?:remote )?peer|Broken pipe|remote process exited|"
        r"Connection refused|Socket Timeout|socketStatusStr|NCCL error in|ncclRemoteError|ncclSystemError|"
        r"ncclInternalError|unhandled system error",
        "another rank had gone",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3456",
        "RuntimeError: Connection string is empty",
    ),
    effect(
        "rendezvous-timeout",
        r"(?:client socket has timed out|DistStoreError|RendezvousTimeoutError|"
        r"RendezvousConnectionError|RendezvousClosedError)",
        "the rendezvous never came together: a node or rank did not arrive",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to (n1, 29500).",
        "torch.distributed.DistNetworkError: The server socket has no name",
        "look at the node that is named first in the job: did its launcher start?",
        rule="LOG003",
    ),
    effect(
        "nccl-warning",
        r"NCCL WARN (?P<text>.*)",
        "NCCL: {text}",
        "n1:12345:12350 [3] NCCL WARN Call to recv from 10.0.0.2<1234> failed : Broken pipe",
        "n1:12345:12350 [3] NCCL INFO Channel 00/0",
        token=b"NCCL WARN",
    ),
    effect(
        "terminated",
        r"SignalException: (?:(?!SignalException: ).)* got signal: 15|"
        r"closing signal SIGTERM|SystemExit: 143|got signal: 1\b",
        "ended by the launcher after another failure",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 9",
        token=b"ignal",
    ),
    effect(
        "pipe-closed",
        r"^(?:EOFError|BrokenPipeError|ConnectionResetError|ConnectionRefusedError|"
        r"KeyboardInterrupt)\b",
        "a helper process lost its peer",
        "EOFError: Ran out of input",
        "TimeoutError: timed out",
    ),
    effect(
        "ray-wrapper",
        r"ray\.exceptions\.|ray::|ActorDiedError|RayTaskError",
        "Ray passes on a failure of a worker",
        "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run()",
        "ValueError: bad ray",
        "look at the worker's own lines, under the same pid",
    ),
    effect(
        "child-failed",
        r"ChildFailedError",
        "torchrun passes on a failure of a worker",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "ValueError: child failed",
    ),
)
