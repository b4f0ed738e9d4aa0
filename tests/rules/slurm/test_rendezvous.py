"""SLURM rules about where the nodes meet, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_SCRIPT = "pretrain_gpt.py --context-parallel-size 2"


def started(options: str, before: str = "") -> str:
    return f"{before}torchrun --nproc-per-node 8 {options} {_SCRIPT}\n\n"


_C10D = "--nnodes 4 --rdzv-backend c10d --rdzv-endpoint"
_DEFAULT = "${MASTER_ADDR:-localhost}"
_USES = "--nnodes 4 --master-addr $A"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("SLURM013", "mlm", started("--nnodes 1"), "", "not concerned"),
    ("SLURM013", "mlm", started("--standalone"), "nodes=4", "not concerned"),
    ("SLURM013", "mlm", started("--nnodes 4"), "", "error hang init"),
    ("SLURM013", "mlm", started("--nnodes 2"), "", "error hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr localhost"), "", "error hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr 127.0.0.1"), "", "error hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master_addr node7"), "", "fine"),
    ("SLURM013", "mlm", started(f"{_C10D} node7:29500"), "", "fine"),
    ("SLURM013", "mlm", started(f"{_C10D} node7"), "", "fine"),
    ("SLURM013", "mlm", started(f"{_C10D} LOCALHOST:29500"), "", "error hang init"),
    ("SLURM013", "mlm", started(f"{_C10D} localhost"), "", "error hang init"),
    ("SLURM013", "mlm", started(f"{_C10D} [::1]:29500"), "", "error hang init"),
    ("SLURM013", "mlm", started(f"{_C10D} $HEAD:29500"), "", "fine"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr $(hostname)"), "", "fine"),
    ("SLURM013", "mlm", started("--nnodes 4 $MORE"), "", "fine"),
    # torchrun reads PET_…, not MASTER_ADDR.
    ("SLURM013", "mlm", started("--nnodes 4", "export PET_MASTER_ADDR=node7\n"), "", "fine"),
    ("SLURM013", "mlm", started("--nnodes 4", "export MASTER_ADDR=node7\n"), "", "error hang init"),
    # Whoever starts the script on each node may export the variable whose default localhost is.
    ("SLURM013", "mlm", started(f"--nnodes 4 --master-addr {_DEFAULT}"), "", "warning hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr ${MASTER_ADDR:=127.0.0.1}"), "", "warning hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr ${HEAD-localhost}"), "", "warning hang init"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr ${1:-localhost}"), "", "warning hang init"),
    ("SLURM013", "mlm", started(f"{_C10D}={_DEFAULT}:29500"), "", "warning hang init"),
    ("SLURM013", "mlm", started("--nnodes 4", f"export PET_MASTER_ADDR={_DEFAULT}\n"), "", "warning hang init"),
    ("SLURM013", "mlm", started("$RUN", f'A={_DEFAULT}\nRUN="--nnodes 4 --master_addr $A"\n'), "", "warning hang init"),
    (
        "SLURM013",
        "mlm",
        started("${RUN[@]}", f"A={_DEFAULT}\nRUN=(--nnodes 4 --master_addr $A)\n"),
        "",
        "warning hang init",
    ),
    ("SLURM013", "mlm", started(_USES, '[ -z "$A" ] && A=localhost\n'), "", "warning hang init"),
    ("SLURM013", "mlm", started(_USES, 'if [[ $A == "" ]]; then export A=localhost; fi\n'), "", "warning hang init"),
    # The script itself sets it, whatever its environment has.
    ("SLURM013", "mlm", started(_USES, "A=localhost\nA=${A:-node7}\n"), "", "error hang init"),
    ("SLURM013", "mlm", started(_USES, "unset A\nA=${A:-localhost}\n"), "", "error hang init"),
    ("SLURM013", "mlm", started(_USES, "A=node7\nA=${A:-localhost}\n"), "", "fine"),
    # What is assumed of the environment settles it.
    ("SLURM013", "mlm", started(f"--nnodes 4 --master-addr {_DEFAULT}"), "env.MASTER_ADDR=node7", "fine"),
    (
        "SLURM013",
        "mlm",
        started(f"--nnodes 4 --master-addr {_DEFAULT}"),
        "env.MASTER_ADDR=localhost",
        "error hang init",
    ),
    # Slurm starts them all from one script, and nobody knows the node's name before the job runs.
    ("SLURM013", "mlm", f"srun {started(f'--nnodes 4 --master-addr {_DEFAULT}')}", "", "error hang init"),
    ("SLURM013", "mlm", started(f"--nnodes 4 --master-addr {_DEFAULT}", "#SBATCH --nodes=4\n"), "", "error hang init"),
    (
        "SLURM013",
        "mlm",
        started(f"--nnodes 4 --master-addr {_DEFAULT}", "#SBATCH --nodes=1\n"),
        "",
        "warning hang init",
    ),
    ("SLURM013", "mlm", started("--nnodes $N"), "", "needs nodes"),
    ("SLURM013", "mlm", "--context-parallel-size 2", "start=torchrun nodes=4", "not concerned"),
    ("SLURM013", "mlm", f"srun python {_SCRIPT}\n\n", "nodes=4 torchrun.nnodes=4", "not concerned"),
    ("SLURM014", "mlm", started("--nnodes 1"), "", "not concerned"),
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7"), "", "error hang init"),
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7 --rdzv-backend static"), "", "error hang init"),
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7 --rdzv-backend c10d"), "", "not concerned"),
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7 --node-rank $NODE"), "", "fine"),
    # Under srun a number is the same on every node, a variable need not be.
    (
        "SLURM014",
        "mlm",
        f"export PET_NODE_RANK=$SLURM_NODEID\nsrun {started('--nnodes 4 --master-addr node7')}",
        "",
        "fine",
    ),
    # A person starts it on each node, with another number.
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7 --node-rank 0"), "", "fine"),
    ("SLURM014", "mlm", f"srun {started('--nnodes 4 --master-addr node7 --node-rank 0')}", "", "error hang init"),
    ("SLURM014", "mlm", started("--nnodes 4 --master-addr node7", "export PET_NODE_RANK=1\n"), "", "fine"),
    ("SLURM014", "mlm", f"ft_launcher --nnodes 4 {_SCRIPT}\n\n", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("SLURM013", "mlm", started("--nnodes 4"), "", "found: 4 nodes with no --rdzv-endpoint and no --master-addr"),
    ("SLURM013", "mlm", started("--nnodes 4 --master-addr localhost"), "", "found: 4 nodes with the address localhost"),
    (
        "SLURM013",
        "mlm",
        started(f"--nnodes 4 --master-addr {_DEFAULT}"),
        "",
        "message: if nothing sets $MASTER_ADDR where the script is started: every node waits",
    ),
    (
        "SLURM013",
        "mlm",
        started(f"--nnodes 4 --master-addr {_DEFAULT}"),
        "",
        "wanted: HOST:29500, or $MASTER_ADDR set there, which --assume env.MASTER_ADDR=HOST states",
    ),
    (
        "SLURM014",
        "mlm",
        started("--nnodes 4 --master-addr node7"),
        "",
        "found: 4 nodes with no --node-rank, which is 0",
    ),
    (
        "SLURM014",
        "mlm",
        f"srun {started('--nnodes 4 --master-addr node7 --node-rank 0')}",
        "",
        "found: 4 nodes with --node-rank 0 on each",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SLURM013", "mlm", started("--nnodes 4"), "", ()),
    ("SLURM014", "mlm", started("--nnodes 4"), "", ()),
]
