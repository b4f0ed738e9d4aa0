"""What NCCL, Gloo and InfiniBand say about interfaces and links."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, EXCLUDE_NODE, Signature, fault, report

_LINK = "ibstat and perfquery on both nodes: is the port active, and are its error counters rising?"
_ONE_NODE = "one node: which rank ended before this time, or in the attempt before?"
_SEVERAL_NODES = (
    "several: set GLOO_SOCKET_IFNAME to the interface that connects them (a single name; Gloo does not support "
    "NCCL's ^)"
)
_VERB = (
    r"Call to ibv_(?:modify_qp|create_\w{1,20}|open_\w{1,20}|alloc_pd|query_\w{1,20}|get_async_event|poll_cq|"
    r"post_\w{1,10})"
)
_NO_NAME = "the name of the rendezvous host cannot be resolved on this node: {text}"
_NAME_KNOWN = (
    "getent hosts NAME on that node: is the name right, and does its service (the headless one of pods) exist?"
)
_NOT_REACHED = (
    r"client socket has (?:timed out after \d{1,9}ms while trying to connect to|failed to connect to any network "
    r"address of) \((?P<text>\S{1,253}), \d{1,5}\)"
)

NETWORK: tuple[Signature, ...] = (
    fault(
        "ib-port",
        r"Got async (?:fatal )?event ?: ?(?:port error|link down|device fatal)",
        "an InfiniBand or RoCE port went down: its link flaps",
        _LINK,
        EXCLUDE_NODE,
        tokens=(b"NCCL WARN",),
        again="machine",
    ),
    fault(
        "ib-completion",
        r"NET/OFI Request (?:(?!NET/OFI Request ).){0,60}?completed with error|"
        r"(?:status=|with error )(?P<status>\d{1,4}),? opcode|vendor err \d",
        "InfiniBand, RoCE or EFA did not deliver a message ({status}): the network cards cannot reach each other, or a "
        "link failed",
        "status 12: retries exceeded; 5: flushed after an earlier error; 13: the receiver was not ready",
        _LINK,
        "do all nodes use the same GID index and traffic class (NCCL_IB_GID_INDEX, NCCL_IB_TC), and is the "
        "routing between them right?",
        tokens=(b"NCCL WARN",),
        again="link",
    ),
    fault(
        "ib-memory",
        r"ibv_reg_(?:dmabuf_)?mr(?:_iova2?)?(?:\(\))? failed|fi_mr_reg\w{0,10} failed|"
        r"NET/OFI Unable to register memory",
        "InfiniBand could not register memory: locked memory is limited, or the GPU's memory cannot be registered "
        "(nvidia-peermem, expandable segments)",
        "does ulimit -l say unlimited inside the job? is nvidia_peermem loaded?",
        "run once without PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "fabric-device",
        rf"NCCL WARN (?P<text>{_VERB} failed[^_]{{0,60}}(?:No such device|Invalid argument).{{0,200}})",
        "the container lacks the network card that NCCL chose, or its GID index: {text}",
        "ibv_devinfo inside the container, on every node: set NCCL_IB_HCA and NCCL_IB_GID_INDEX to what it shows",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "fabric-memory",
        r"NCCL WARN (?P<text>Call to ibv_(?:create|alloc)_\w{1,20} failed"
        r"(?:$|[^_]{0,60}(?:Cannot allocate|errno 12).{0,200}))",
        "a network card could not lock memory for the job: {text}",
        "ulimit -l inside the job, on every node: it must be unlimited (containers: --ulimit memlock=-1)",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "fabric-local",
        r"libfabric:\d{1,10}:(?:(?!libfabric:).){0,200}?<warn> (?P<text>Unable to (?:create|open) .{1,300})|"
        r"NCCL WARN (?P<text2>NET/OFI (?:Couldn't open|Failed to initialize).{0,300}|"
        rf"{_VERB} failed.{{0,300}}|"
        r"(?:(?!NCCL WARN).){0,60}\basync (?:fatal )?event\b(?:(?!NCCL WARN).){0,120}\b"
        r"(?:error|violation|fatal).{0,200})",
        "a network card of this node failed, or refused a call: {text}{text2}",
        _LINK,
        "110 (timed out): the two cards cannot reach each other: NCCL_IB_GID_INDEX, NCCL_IB_HCA and the routing",
        "ulimit -l inside the job: locked memory must be unlimited",
        tokens=(b"NCCL WARN", b"libfabric:"),
        again="link",
    ),
    fault(
        "nccl-interface",
        r"no socket interface found|ncclSocketInit: connecting to address\s{1,4}with family",
        "NCCL found no network interface: NCCL_SOCKET_IFNAME matches none on this node",
        "ip -br addr on {node}: set NCCL_SOCKET_IFNAME to an interface that every node has, or leave it out",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "rendezvous-name",
        _NOT_REACHED,
        _NO_NAME,
        _NAME_KNOWN,
        tokens=(ERROR, b"socket has"),
        context=r"cannot be retrieved \(gai error: -[25] ",
    ),
    fault(
        "rendezvous-name-told",
        _NOT_REACHED + r"\. .{0,300}?\(gai error: -[25] ",
        _NO_NAME,
        _NAME_KNOWN,
        tokens=(ERROR, b"socket has"),
    ),
    fault(
        "rendezvous-name-now",
        _NOT_REACHED + r"\. .{0,300}?\(gai error: -3 ",
        "no name server told this node where the rendezvous host is: {text}",
        "getent hosts NAME on that node, inside the container: does DNS work there?",
        tokens=(ERROR, b"socket has"),
        again="chance",
    ),
    fault(
        "host-unresolved",
        r"network addresses of \((?P<name>[^()]{1,200})\) cannot be retrieved \(gai error: (?P<text>[^()]{1,100})\)",
        "the ranks never met: the address {name} cannot be resolved ({text}), again and again",
        "is it the name of one node? a list such as n[1,5] must be expanded (scontrol show hostnames)",
        tokens=(b"gai error",),
        role="stall",
        at_any_level=True,
    ),
    fault(
        "nccl-connect",
        r"socket\w{0,20}Connect: [Cc]onnect to (?P<at>\S{1,100}) (?:returned|failed)(?: :)? (?:Connection timed out|"
        r"Operation (?:timed out|now in progress)).{0,40}exceeded",
        "a rank of another node did not answer NCCL at {at}, again and again",
        "is it an address of the interface that all nodes share? set NCCL_SOCKET_IFNAME to that",
        "which node is it? had its rank ended before, and does a firewall stand between them?",
        tokens=(b"NCCL WARN", b"Connect: "),
        again="link",
    ),
    fault(
        "nccl-algorithm",
        r"no algorithm/protocol available|does not loop back",
        "NCCL finds no algorithm, or no ring: one of its variables, or a plugin's tuner, leaves none",
        "unset NCCL_ALGO, NCCL_PROTO, NCCL_HOSTID and NCCL_TOPO_FILE; are all its variables alike on all nodes?",
        tokens=(b"NCCL WARN", b"no algorithm/protocol"),
    ),
    fault(
        "nccl-rank",
        r"Invalid rank requested ?: ?(?P<rank>\d+)/(?P<ranks>\d+)",
        "rank {rank} of {ranks} does not exist: the ranks do not match the world size",
        "do all nodes have the same WORLD_SIZE, and each its own RANK (or node rank, from 0)?",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "nccl-rank-twice",
        r"rank (?P<rank>\d{1,9}) of (?P<ranks>\d{1,9}) ranks has already checked in",
        "two processes are rank {rank} of {ranks}",
        "does each process get its own RANK? does a job that was not ended still use this address and port?",
        tokens=(b"NCCL WARN",),
    ),
    fault(
        "nccl-duplicate-gpu",
        r"Duplicate GPU detected(?: : (?P<who>rank \d{1,7} and rank \d{1,7}))?",
        "two ranks use the same GPU ({who})",
        "does each rank call torch.cuda.set_device(LOCAL_RANK)? are there as many ranks on a node as GPUs?",
        tokens=(b"NCCL WARN", ERROR),
    ),
    fault(
        "nccl-route",
        r"^(?!.*(?:\[Errno|HTTPS?Connection|urllib3|requests\.)).*?"
        r"(?:No route to host|Network is unreachable|Connect to fe80:|Software caused connection abort|"
        r"Address family not supported by protocol)",
        "the nodes cannot reach each other over this interface (NCCL or Gloo chose one that they do not share)",
        "ip -br addr on both nodes: set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that they share",
        "do firewalls let the nodes' ports through?",
        tokens=(ERROR, b"NCCL WARN"),
    ),
    fault(
        "gloo-loopback",
        r"Gloo connectFullMesh failed(?:(?!Gloo connectFullMesh).)*?remote=\[?(?:127\.|::1)",
        "Gloo could not connect to a rank at 127.0.0.1: on one node that rank had ended; on several, the host name "
        "resolves to loopback",
        _ONE_NODE,
        _SEVERAL_NODES,
    ),
    fault(
        "gloo-connect",
        r"gloo/transport/tcp/\w{1,20}\.\w{1,3}:\d+\] (?:connect \[?(?P<at>[\w.:%-]{1,60})\]?:\d+: |Connect timeout|"
        r"timed out connecting)",
        "Gloo could not connect to another rank {at}: the nodes do not share the interface of its address, or"
        " that rank had already ended",
        "set GLOO_SOCKET_IFNAME to the interface that connects the nodes",
        "look for a rank that ended before this time",
        again="chance",
    ),
    fault(
        "gloo-interface",
        r"Unable to find address for: |Gloo connectFullMesh failed|makeDeviceFor\w{1,20}\(\): unsupported gloo device|"
        r"ifa != nullptr",
        "Gloo could not connect all ranks: GLOO_SOCKET_IFNAME names no working interface, or a limit (open "
        "files) was reached",
        _ONE_NODE,
        _SEVERAL_NODES,
        "ulimit -n: every rank holds a connection to every other",
    ),
    fault(
        "ssh",
        r"^ssh: connect to host (?P<text>\S{1,253} port \d{1,5}: .{1,200})|"
        r"^(?P<text2>\S{1,253}: Permission denied \((?:publickey|password|gssapi|keyboard).{0,100})|"
        r"(?P<text3>Host key verification failed)|host=(?P<text4>[^\s=]{1,253} was not reachable via ssh)",
        "the launcher could not log in to another node: {text}{text2}{text3}{text4}",
        "does ssh NODE hostname work from the first node, without a password, inside the same container?",
        tokens=(ERROR, b"ssh: ", b"Permission denied (", b"Host key"),
    ),
    report(
        "mpi-node-lost",
        r"\b[OP]RTE has lost communication with a remote daemon|"
        r"An (?:ORTE|PRTE) daemon has unexpectedly failed after launch",
        "mpirun lost its daemon on a node: the node or its pod ended, or the network to it failed",
        "read the state and the log of the node that the lines below it name",
        tokens=(b"RTE has lost", b"RTE daemon has"),
    ),
    fault(
        "mpi",
        r"Fatal error in (?P<text>(?:internal_|P?MPIR?_)\w{1,60}: .{1,200})|"
        r"An error occurred in (?P<text2>MPI_\w{1,40})|"
        r"[OP]RTE (?P<text5>was unable to (?:reliably start|start|launch) .{1,100})|"
        r"Reason:\s{1,10}(?P<text3>Before MPI_INIT completed)|It looks like (?P<text4>MPI_INIT failed)",
        "MPI failed: {text}{text2}{text3}{text4}{text5}",
        "does a program that only calls MPI_Init run on these nodes? does srun --mpi=list show the kind that MPI was "
        "built for?",
        tokens=(ERROR, b"MPI_INIT", b"RTE was unable"),
        role="general",
        again="chance",
    ),
)
