"""How Slurm, and the checks of the job itself, end a job."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import EXCLUDE_NODE, SACCT, Signature, ended, fault, report

JOB: tuple[Signature, ...] = (
    ended(
        "time-limit",
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|DUE TO TIME LIMIT \*\*\*|"
        r"\bTERM_(?:RUN|CPU)LIMIT\b|^TERM_(?:DEADLINE|WINDOW)\b|"  # LSF
        r"job killed: (?:walltime|cput) \S{1,20} exceeded limit|"  # PBS
        r"\bjob \S{1,40} exceeded (?:hard|soft) wallclock time|"  # Grid Engine
        r"[Jj]ob exceeded (?:its )?wall ?(?:clock|time) limit",
        "the job reached its time limit",
        "submit again, with --signal and --requeue so that it continues by itself (`hcp render --requeue N`)",
        tokens=(
            b"CANCELLED",
            b"TIME LIMIT",
            b"TERM_",
            b"exceeded limit",
            b"exceeded hard",
            b"exceeded soft",
            b"ob exceeded",
        ),
    ),
    ended(
        "preempted",
        r"CANCELLED AT \S+ DUE TO PREEMPTION|DUE TO JOB REQUEUE|"
        r"^TERM_(?:PREEMPT|REQUEUE_(?:OWNER|ADMIN)|RC_RECLAIM|LOAD|BUCKET_KILL)\b|"  # LSF
        r"^004 \([\d.]{5,40}\) .{0,40}Job was evicted",  # HTCondor
        "the job was preempted or requeued",
        "squeue -j {job}",
        tokens=(b"CANCELLED", b"JOB REQUEUE", b"TERM_", b"Job was evicted"),
    ),
    ended(
        "preempted-in-order",
        r"^\[?exiting program after receiving SIG[A-Z0-9]+|"  # Megatron-LM and Bridge
        r"^Handling auto-requeue signal: |^(?:Requeued (?:SLURM )?job|requeu?ing job)\b|"  # Lightning, submitit
        r"^Preemption detected, saving|"  # NeMo
        r"DRAIN_NODE_REASON_PREEMPTION|killed by a spot preemption|"  # Ray
        r"[Dd]raining node (?:(?!raining node ).){0,200}(?i:preempt|spot)|"  # Ray
        r"\b(?:job|node|instance|worker|VM|host|pod) (?:\S{1,80} )?(?:is|was|is being|will be|got|has been) "
        r"preempted\b|"
        r"\b(?i:received|caught|got) (?i:an? |the )?(?:(?i:preemption|termination) (?:notice|signal|request)\b|"
        r"(?:signal )?SIG(?:TERM|USR1|USR2|CONT)\b.{0,80}(?i:sav(?:e|ing)|checkpoint|gracefull?y?|requeu))",
        "the job was preempted, or told that it must end soon; its framework saw the signal and ended it in order",
        "was a checkpoint of its last step written? the next attempt continues from there",
        tokens=(b"exiting program after", b"equeu", b"requeing job", b"reempt", b"PREEMPTION", b" SIG"),
    ),
    ended(
        "hang-up",
        r"got signal: 1\b|Received 1 death signal|(?:closing|via) signal SIGHUP",
        "the launcher lost its session (SIGHUP): the terminal or ssh connection that it ran in was closed",
        "start it with sbatch or inside tmux",
        tokens=(b"got signal: ", b"SIGHUP", b"1 death signal"),
    ),
    fault(
        "node-failure",
        r"DUE TO NODE FAILURE|^Node failure on (?P<host>\S+)|ABORTED ON NODE FAILURE",
        "a node failed",
        EXCLUDE_NODE,
        again="machine",
    ),
    fault(
        "program-missing",
        r"execve\(\): (?P<program>(?:(?!execve\(\): ).)*?): (?:No such file or directory|Permission denied)",
        "a node could not start {program}",
        "is it there and executable (chmod +x)? is the environment (module, venv, container) available on every node?",
    ),
    fault(
        "program-unknown",
        r"^(?:\S{1,200}: )?(?:(?:line )?\d{1,6}: )?(?P<program>torchrun|python[\d.]*|deepspeed|accelerate|srun|mpirun|"
        r"mpiexec|ray|swift|megatron|llamafactory-cli): (?:command )?not found|"
        r"^\S{0,200}python\S{0,20}: can't open file (?P<program2>'[^']{1,300}')|"
        r"^\S{0,100}sh: (?:(?:line )?\d{1,6}: )?(?P<program3>/\S{0,300}/(?:torchrun|python[\d.]*|deepspeed)): "
        r"No such file or directory|"
        r"^(?:/\S{1,80}/)?(?:nice|ionice|env|timeout|nohup|setsid|stdbuf|numactl|taskset|time): "
        r"(?:[a-z][a-z ]{1,60}:? )?[‘'\"`]?(?P<program4>[^\s‘’'\":]{1,300})[’'\"]?: No such file or directory$|"
        r"\\?\"(?P<program5>[^\"\\]{1,300})\\?\": executable file not found in \$PATH|"  # container runtimes
        r"^mpirun was unable to find the specified executable",
        "the shell or Python did not find the program to start: {program}{program2}{program3}{program4}{program5}",
        "is the environment (module, venv, container) active in the job, on every node?",
        tokens=(b"not found", b"can't open file", b"sh: ", b": No such file or dir", b"find the specified executable"),
    ),
    ended(
        "job-cancelled",
        r"\*\*\* JOB \S+ (?:ON \S+ )?CANCELLED AT [^ ]+(?: (?:BY|DUE to SIGNAL) [^*]{0,80})? \*\*\*|"
        r"^TERM_(?:FORCE_)?(?:OWNER|ADMIN)\b|"  # LSF
        r"^009 \([\d.]{5,40}\) .{0,40}Job was aborted",  # HTCondor
        "somebody cancelled the job",
        SACCT,
        tokens=(b"CANCELLED", b"TERM_", b"Job was aborted"),
    ),
    report(
        "cancelled",
        r"\*\*\* STEP \S+ (?:ON \S+ )?(?:CANCELLED AT|KILLED AT|FAILED) [^*]{0,120}\*\*\*|^forcing job termination",
        "the step was cancelled: by somebody, or by Slurm after one of its tasks had failed",
        SACCT,
        tokens=(b"CANCELLED", b"KILLED AT", b"forcing job"),
        role="echo",
    ),
    fault(
        "hcp-check",
        r"^\S.*?: error (?P<rule>[A-Z]{2,12}[0-9]{3}) (?P<text>.+)$",
        "hcp check stopped the job in phase 0: {text}",
        "hcp explain {rule}",
        "the lines below it give the override that fixes it",
    ),
    fault(
        "hcp-stalled",
        r"hcp-job: {\"event\": ?\"stalled\"[^{}]{0,200}\"reason\": ?\"(?P<reason>[^\"]{0,300})\"",
        "the training hung and its watchdog stopped it: {reason}",
        "each rank printed where it was when it was aborted; find the one that was somewhere else",
        tokens=(b"hcp-job: ",),
        role="origin",
        again="chance",
    ),
    fault(
        "hcp-renamed",
        r"hcp-job: {\"event\": ?\"stopped\"[^{}]{0,200}\"reason\": ?\"hcp could not run"
        r"[^\"]{0,300}No module named '?hcp\b",
        "its script was rendered before the package was renamed, and calls `-m hcp`, which is no longer there",
        "render it again with `hcp render`",
        tokens=(b"hcp-job: ",),
    ),
    fault(
        "hcp-stopped",
        r"hcp-job: {\"event\": ?\"stopped\"[^{}]{0,200}\"reason\": ?\"(?P<reason>[^\"]{0,300})\"",
        "the job's own checks stopped it: {reason}",
        "read the lines above it in the job's log",
        tokens=(b"hcp-job: ",),
    ),
)
