"""What a node says that lacks a port, memory, disk space or a file."""

from __future__ import annotations

from hcp.triage.signatures.row import SACCT, Signature, fault

NODE: tuple[Signature, ...] = (
    fault(
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
    fault(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "a file system is full",
        "OSError: [Errno 28] No space left on device: '/checkpoints/iter_0000100'",
        "OSError: [Errno 2] No such file or directory",
        "df -h and df -i on {node}, and the quota of the checkpoint folder",
    ),
    fault(
        "shared-memory",
        r"is killed by signal: Bus error|unable to (?:write|open) (?:to )?(?:file|shared memory)",
        "a data loader worker ran out of shared memory",
        "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "RuntimeError: DataLoader worker (pid 5) exited unexpectedly",
        "enlarge /dev/shm of the container",
    ),
    fault(
        "module-missing",
        r"(?:ModuleNotFoundError: No module named|ImportError: cannot import name)",
        "a Python package is missing or of another version on this node",
        "ModuleNotFoundError: No module named 'megatron'",
        "AttributeError: module has no attribute",
        "hcp facts, inside the container of the job",
    ),
    fault(
        "checkpoint-missing",
        r"FileNotFoundError: .{0,200}?(?:checkpoint|ckpt|iter_)",
        "a checkpoint path does not exist on this node",
        "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/iter_0000010/metadata.json'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.txt'",
        "hcp check {launch} --select SLURM005,SLURM012",
    ),
    fault(
        "host-memory",
        r"[Dd]etected \d+ oom[-_ ]kill event",
        "a node ran out of host memory and killed a process",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: execve(): hcp: No such file or directory",
        SACCT,
        "fewer data loader workers, or --mem=0",
        token=b"slurmstepd: error",
    ),
)
