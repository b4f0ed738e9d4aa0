"""What a node says that lacks a port, memory, disk space or a file."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, SACCT, Signature, fault

NODE: tuple[Signature, ...] = (
    fault(
        "port-taken",
        r"EADDRINUSE|[Aa]ddress already in use|server socket has failed to listen on any local",
        "the rendezvous port is in use: two launchers on one node (SLURM004), or another job with the same port",
        "hcp check {launch} --select SLURM004",
        "derive the port from the job id, as `hcp render` does",
        tokens=(ERROR, b"socket has"),
        rule="SLURM004",
    ),
    fault(
        "shared-memory",
        r"is killed by signal: Bus error|Unexpected bus error encountered in worker|"
        r"unable to (?:write|open|mmap|allocate) (?:\d+ bytes (?:from|to) )?(?:to )?"
        r"(?:file|shared memory)|"
        r"Caught signal 7 \(Bus error|/dev/shm: No space left|No space left on device: '/dev/shm|"
        r"Error while creating shared memory segment|extend /dev/shm/",
        "a process ran out of shared memory (/dev/shm): a data loader's worker, or NCCL",
        "give the container a larger /dev/shm: docker run --shm-size=16g or --ipc=host; in a pod an emptyDir of medium "
        "Memory mounted at /dev/shm",
    ),
    fault(
        "loader-killed",
        r"DataLoader worker \(pid\(?s?\)? ?[\d, ]{1,200}\) (?:is killed by signal: (?:Killed|Aborted|Segmentation)|"
        r"exited unexpectedly)",
        "a data loader worker died; if it was killed without a message, the node usually ran out of memory (a"
        " dense mask for a long sequence, CP024; many workers)",
        "hcp check {launch} --select CP024",
        SACCT,
        "fewer data loader workers (--num-workers), or more memory (--mem=0)",
        rule="CP024",
    ),
    fault(
        "task-hung",
        r"\btask (?P<task>(?:python|pt_|ray)[^\s:]{0,30}:\d{1,9}) blocked for more than (?P<text>\d{1,5}) seconds",
        "the kernel saw process {task} stuck for {text} s in a call that nothing can interrupt, usually of a file "
        "system that froze; ranks that wait for it follow",
        "the call trace below it names the file system or driver: is that mount well on {node} (ls, df)? end the job, "
        "wait for it or exclude the node, and resume from the last checkpoint",
        tokens=(b" blocked for more than ",),
        role="general",
        again="chance",
        at_any_level=True,
    ),
    fault(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "a file system is full, or a quota is used up",
        "df -h and df -i on {node}, and the quota of the checkpoint folder",
    ),
    fault(
        "file-system",
        r"Stale file handle|^(?!(?:/\S{1,80}/)?[a-z]{2,8}: ).*?Read-only file system|"
        r"Transport endpoint is not connected|"
        r"^(?!.*\bUCX\b).*?(?:Input|Remote )/?(?:output|I/O) error|^PermissionError: ",
        "a file system failed, or does not let the job write",
        "touch a file in that folder on {node}, as the job's user, inside its container",
        "did two jobs or ranks remove or replace the same file?",
        tokens=(ERROR, b"Read-only file system"),
        again="chance",
    ),
    fault(
        "host-memory",
        r"[Dd]etected \d+ oom[-_ ]kill event|tasks? [\d,-]{1,2000}: Out Of Memory|"
        r"[Oo]ut of memory: Killed process (?P<victim>\d{1,9})|"
        r"oom-kill:constraint|TERM_(?:MEMLIMIT|SWAP)\b|job killed: \w{0,2}mem\w{0,5} \S{1,20} exceeded limit|"
        r"[Ee]xceeded (?:job|step) memory limit|\bOOMKilled\b|DefaultCPUAllocator: can't allocate memory|"
        r"(?<!, Error: )[Cc]annot allocate memory",  # libfabric's word is the network's
        "host memory ran out: a process was killed, or was refused what it asked for",
        SACCT,
        "fewer data loader workers, or --mem=0",
        tokens=(ERROR, b"illed", b"TERM_"),
    ),
)
