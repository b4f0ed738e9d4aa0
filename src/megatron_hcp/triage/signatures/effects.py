"""What ranks say because another rank failed."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, effect, fault

_WHO_WAITED = (
    "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 records who waited for whom; put the dumps beside the logs"
)

DONE = r"\[after training is done\]|[Tt]raining (?:is )?(?:done|completed?|finished)\b|'train_runtime'"
"""What training programs print at their end: Megatron-LM, others, Hugging Face's Trainer."""

EFFECTS: tuple[Signature, ...] = (
    effect(
        "hang-at-exit",
        r"watchdog got stuck for \d|[Ww]atchdog caught collective operation timeout|"
        r"due to ProcessGroupNCCL watchdog hang",
        "the training was done; its process groups hung while the processes shut down",
        "nothing is lost if the last checkpoint was written; call destroy_process_group() on all ranks at the end",
        tokens=(b"atchdog",),
        role="origin",
        context=DONE,
    ),
    effect(
        "nccl-id",
        r"ncclUniqueId",
        "rank 0 was gone before the rendezvous: this rank waited for its ncclUniqueId",
        "read the log of rank 0 before this time",
        rule="LOG003",
        role="origin",
    ),
    effect(
        "jax-peer",
        r"(?P<task>/job:[\w.-]{1,80}(?:/replica:\d{1,6})?/task:\d{1,6})? heartbeat timeout\. "
        r"This indicates that the remote task|JAX distributed service detected fatal errors|"
        r"tried to connect with a different incarnation|Gloo context initialization failed: DEADLINE",
        "JAX's coordination service lost another task {task}",
        "read that task's own log before this time",
        tokens=(b"JAX distributed service", b"heartbeat timeout. This", b"different incarnation", b"Gloo context init"),
    ),
    effect(
        "collective-timeout",
        r"[Ww]atchdog caught collective operation timeout|collective operation timeout: WorkNCCL|"
        r"(?:failure|timeout\)) detected by watchdog at work|Timeout at NCCL work: \d",
        "a collective timed out: the rank that stopped is one that did not report this",
        "compare the ranks that reported it with all ranks, and read the log of the missing one",
        _WHO_WAITED,
        tokens=(b"atchdog", b"last enqueued "),
        rule="LOG003",
        role="origin",
    ),
    effect(
        "dump-signal",
        r"[Rr]eceived a dump signal due to a (?P<what>[\w ]{1,60}?) from  ?rank (?P<who>\d{1,9})",
        "rank {who} had the others write their dumps, after a {what}",
        "read that rank's log: which rank did not come to its collective?",
        _WHO_WAITED,
        tokens=(b"dump signal due to",),
        rule="LOG003",
        role="origin",
    ),
    fault(
        "collective-mismatch",
        r"[Mm]ismatch between collective|Collectives differ in the following aspects",
        "the ranks ran different collectives, or gave them tensors of different shapes",
        "do all ranks see the same number of batches, and use the same parameters in each step (unused ones, "
        "branches that depend on the data)?",
        tokens=(b"between collective", b"Collectives differ"),
        again="same",
    ),
    effect(
        "watchdog-stuck",
        r"watchdog got stuck for \d|due to ProcessGroupNCCL watchdog hang|[Hh]eartbeat monitor timed out",
        "a rank hung in a CUDA or NCCL call, which blocked its watchdog; another rank may have ended before",
        "py-spy dump of the hanging rank shows the call; look for a rank that ended before this time",
        _WHO_WAITED,
        tokens=(b"atchdog",),
        rule="LOG003",
    ),
    effect(
        "rendezvous-closed",
        r"RendezvousClosedError",
        "the rendezvous was closed: another node's launcher gave up first",
        "read what that node's launcher wrote before this line",
        tokens=(ERROR,),
        rule="LOG003",
        role="echo",
    ),
    effect(
        "ft-heartbeat",
        r"Did not get (?:initial|subsequent) heartbeat|FT timeout elapsed",
        "a rank hung: ft_launcher's monitor got no heartbeat from it and killed it",
        "is the timeout longer than the longest step, evaluation or save (--ft-rank-heartbeat-timeout)?",
        _WHO_WAITED,
        tokens=(b"heartbeat. Waited", b"FT timeout elapsed"),
        role="origin",
    ),
    effect(
        "monitored-barrier",
        r"Ranks? (?P<who>\d[\d, ]{0,200}) failed to pass monitoredBarrier",
        "rank {who} did not come to a barrier in time: it had ended, or was busy (data, a download, a save)",
        "read that rank's log; if it was busy, do the long work before init_process_group, or raise its timeout",
        tokens=(b"monitoredBarrier",),
        rule="LOG003",
        role="origin",
    ),
    effect(
        "monitored-barrier-left",
        r"reached monitoredBarrier, but received errors while waiting for send/recv from rank (?P<who>\d{1,9})",
        "rank {who} was not at a barrier: it had ended, was busy, or gave up because another rank did not come",
        "read that rank's log: where it gave up, it names the rank that did not come",
        tokens=(b"monitoredBarrier",),
        rule="LOG003",
    ),
    effect(
        "rendezvous-absent",
        r"DistStoreError: wait timeout after \d{1,12} ?ms, keys: \S{0,200}//\w{1,20}//\d{1,9}/(?P<absent>\d{1,9})$",
        "the process group was not built: rank {absent} of it did not come",
        "read that rank's log, from its start: did its process start, and did it end or wait before this time?",
        tokens=(ERROR,),
        rule="LOG003",
        role="origin",
    ),
    effect(
        "rendezvous-timeout",
        r"client socket has (?:timed out|failed to connect)|DistStoreError|RendezvousTimeoutError|"
        r"connect\(\) timed out\. Original timeout|"
        r"RendezvousConnectionError|Timed out initializing process group in store based barrier|"
        r"Timed out after \d{1,9} seconds waiting for clients|TCPStore(?:(?!TCPStore).)*?[Tt]imed? ?out",
        "the rendezvous did not complete: a node or rank did not arrive",
        "look at the job's first node: did its launcher start?",
        "can the other nodes reach its address and port (firewall, container network, host name)?",
        tokens=(ERROR, b"socket has"),
        rule="LOG003",
        role="origin",
    ),
    effect(
        "rendezvous-refused",
        r"^(?:[A-Za-z_]\w*\.)*\w{1,40}Error: .{0,300}?"
        r"(?P<text>[Cc]onnection (?:refused|reset|closed|was (?:likely )?closed)|Broken pipe|[Ff]ailed to recv|"
        r"[Ss]top_waiting response is expected|Interrupted system call)",
        "the rank could not reach the rendezvous of rank 0 ({text}): rank 0 was not there yet, or had ended",
        "is the address that of the first node, and did its launcher start?",
        "does a firewall or another program answer on that port?",
        rule="LOG003",
        role="origin",
        context=r"_create_c10d_store|_create_tcp_store|_tcp_rendezvous_handler|_env_rendezvous_handler|TCPStore\(",
    ),
    effect(
        "gloo-start",
        r"gloo/transport/\w{1,10}/\w{1,30}\.\w{1,3}:\d{1,5}\]? "
        r"(?P<text>(?:Read error|Connection|writev|Timed out) .{1,200})|"
        r"^\w{1,40}Error: (?P<text2>Application timeout caused pair closure|Socket Timeout|Connection reset by peer)",
        "Gloo lost another rank while the process groups were being set up ({text}{text2}): that rank had ended, was "
        "late, or its node cannot be reached",
        "look for a rank or node that ended, or never arrived, before this time",
        "do all nodes share the interface of that address? set GLOO_SOCKET_IFNAME to it",
        rule="LOG003",
        role="origin",
        context=r"in (?:init_process_group|_?new_\w{0,20}group\w{0,20}|create_group|initialize_model_parallel|"
        r"initialize_megatron|_?initialize_distributed|_?init_distributed|_compile_dependencies)\b",
    ),
    effect(
        "gloo-timeout",
        r"gloo/transport/\w{1,10}/\w{1,30}\.\w{1,3}:\d{1,5}\] (?P<text>Timed out waiting \d{1,10}ms for \w{1,10}) "
        r"operation|Application timeout caused pair closure",
        "another rank did not come to a Gloo collective or barrier in time ({text}): it had ended, or was busy "
        "(data, a download, a save)",
        "which rank's log stops before the others'? its last lines say what it did",
        "if it was busy, raise the group's timeout (--distributed-timeout-minutes)",
        rule="LOG003",
        role="origin",
    ),
    fault(
        "exception-service",
        r"^(?P<exc>(?:[A-Za-z_]\w*\.)*(?!(?:RuntimeError|(?:BrokenPipe|EOF)Error|"
        r"\w*(?:Dist|NCCL|Nccl|Gloo|Xla|MPI|Rpc|Ray|Rendezvous|Store|Unavailable|Actor|Worker|Engine)\w*):)"
        r"(?!Connection\w{5,7}Error: \[Errno \d{1,3}\] [\w ]{1,40}$)[A-Z]\w*(?:Error|Exception|Timeout)): "
        r"(?P<text>(?!.*(?:[Gg]loo|NCCL|nccl|TCPStore|[Rr]endezvous|[Cc]oordination|UCX|libfabric))"
        r".*?(?:[Cc]onnection (?:was )?(?:likely )?(?:reset|closed|refused)|Broken pipe).*)$",
        "the program raised {exc}: {text}",
        "does the service that it talks to (a tracker, a store of data, a hub) run, and does the node reach it?",
        role="general",
        again="chance",
    ),  # what ranks talk to each other through raises RuntimeError, or an error of its own
    effect(
        "peer-gone",
        r"[Cc]onnection (?:was )?(?:likely )?(?:reset|closed)|Broken pipe|remote process exited|"
        r"Connection refused|Socket Timeout|[Ff]ailed to recv, got 0 bytes|"
        r"socketStatusStr|ncclRemoteError|NCCL communicator was aborted",
        "another rank had died or left",
        "which rank's log ends first? read what stands there before this time",
        "if none ended: do the nodes share the interface of that address (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), and "
        "does a firewall stand between them?",
        tokens=(ERROR, b"recvValue failed on", b"sendBytes failed on"),
    ),
    effect(
        "nccl-failed",
        r"NCCL error in|NCCL Error \d|NCCL failure|ncclSystemError|ncclInternalError|unhandled system error",
        "NCCL failed; these lines don't say why (often another rank had died)",
        "restart with NCCL_DEBUG=WARN: NCCL then prints its reason",
        tokens=(ERROR, b"NCCL failure"),
    ),
    fault(
        "nccl-said",
        r"^(?P<text>[A-Za-z].{8,})$",
        "NCCL failed; its last error was: {text}",
        "restart with NCCL_DEBUG=INFO: it prints the topology and the calls before",
        tokens=(b"Last error:",),
        role="general",
        again="chance",
        context=r"Last error:\s*\Z",
    ),
    effect(
        "nccl-proxy",
        r"NCCL WARN (?:\[Proxy Service \d{1,9}\] Failed to execute operation (?!Close)|"
        r"Proxy Call to rank \d{1,9} failed|NET/Socket : socket progress error)",
        "a thread of NCCL passes on that a call of another one failed",
        tokens=(b"NCCL WARN",),
        role="echo",
    ),
    effect(
        "nccl-warning",
        r"NCCL WARN (?!.*falling back to|Failed to open libibverbs|NET/Plugin|\[Service thread\]|"
        r"\[Proxy Service \d+\] Failed to execute "
        r"operation Close|NCCL_\w+ set by|Missing|No module|Unable to (?:open|find) lib)(?P<text>.*)",
        "NCCL: {text}",
        tokens=(b"NCCL WARN",),
    ),
)
