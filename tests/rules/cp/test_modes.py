"""CP rules on other modes of a run: determinism, batch invariance, FSDP, token prediction."""

from __future__ import annotations

from support.launches import CP
from support.rules import Row, test_verdict

__all__ = ["test_verdict"]

DETERMINISTIC = "env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"
TREE = f"env.NCCL_ALGO=Tree {DETERMINISTIC}"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.16", "needs env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19", "fine"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19 env.NCCL_ALGO=Tree", "error"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.18 " + TREE, "fine"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.18 " + TREE.replace("Tree", "Ring,Tree"), "error crash init"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.18 " + TREE.replace("Tree", "null"), "error crash init"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19 " + TREE.replace("Tree", "null"), "fine"),
    ("CP017", "bridge", "model.deterministic_mode=true", TREE, "fine"),
    # Bridge compares the whole variable with its list, and wants it set.
    ("CP017", "bridge", "model.deterministic_mode=true", TREE.replace("Tree", "Ring,Tree"), "error crash config"),
    ("CP017", "bridge", "model.deterministic_mode=true", TREE.replace("Tree", "null"), "error crash config"),
    ("CP017", "bridge", "model.deterministic_mode=true env_vars.NCCL_ALGO=Ring", DETERMINISTIC, "fine"),
    ("CP017", "bridge", "model.deterministic_mode=true", DETERMINISTIC, "needs env.NCCL_ALGO"),
    ("CP017", "bridge-provider", "model.deterministic_mode=true", DETERMINISTIC, "fine"),
    ("CP017", "mlm", "--deterministic-mode --transformer-impl local", "mcore=0.16", "fine"),
    (
        "CP017",
        "bridge-provider",
        "",
        "deterministic=true env.NCCL_ALGO=Tree",
        "needs env.NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    ),
    ("CP017", "mlm", "", "", "not concerned"),
    ("CP017", "mlm", "", "deterministic=true mcore=0.18", "needs env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"),
    ("CP017", "bridge", "", "deterministic=true env.NCCL_ALGO=NVLS", "error crash config"),
    ("CP017", "mlm", "", "deterministic=true env.NCCL_ALGO=NVLS", "error crash init"),
    ("CP017", "mlm", "", "deterministic=true mcore=0.19 env.NCCL_ALGO=Ring,CollnetDirect,CollnetChain,^NVLS", "fine"),
    ("CP028", "mlm", f"{CP} 2 --experimental-attention-variant dsv4_hybrid", "", "error crash config"),
    ("CP028", "mlm", f"{CP} 1 --experimental-attention-variant dsv4_hybrid", "", "not concerned"),
    ("CP028", "mlm", f"{CP} 2 --experimental-attention-variant dsa", "", "not concerned"),
    ("CP028", "mlm", f"{CP} 2 --hybrid-layer-pattern MCMH", "mcore_branch=dev", "error crash config"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "mcore=0.19.0 mcore_branch=dev", "fine"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "mcore=0.18", "fine"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "", "needs mcore"),
    ("CP018", "mlm", f"{CP} 2 --batch-invariant-mode", "mcore=0.19", "error crash config"),
    ("CP020", "mlm", f"{CP} 2 --pipeline-model-parallel-comm-backend ucc", "arch=sm90", "error"),
    ("CP020", "mlm", f"{CP} 2 --pipeline-model-parallel-comm-backend ucc", "arch=sm100", "fine"),
    ("CP020", "bridge", "model.context_parallel_size=2 model.pipeline_model_parallel_comm_backend=ucc", "", "fine"),
    # Decentralized groups are made without the assertion.
    (
        "CP020",
        "bridge",
        "model.pipeline_model_parallel_comm_backend=ucc dist.use_decentralized_pg=true",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=1",
        "not concerned",
    ),
    ("CP020", "mlm", "", "pipeline_comm_backend=ucc tp=null", "fine"),
    ("CP020", "mlm", "", "cp=2 pipeline_comm_backend=ucc torch_fsdp2=true", "fine"),
    ("CP020", "mlm", "", "pipeline_comm_backend=ucc tp=2", "needs arch"),
    ("CP020", "mlm", "", "cp=null pipeline_comm_backend=ucc", "fine"),
    ("CP020", "mlm", "", "cp=4 pipeline_comm_backend=ucc fsdp=true", "fine"),
    ("CP020", "mlm", "", "cp=2 pipeline_comm_backend=ucc overlap_moe_expert_parallel_comm=true", "fine"),
    ("CP021", "bridge", "", "fsdp_version=2", "not concerned"),
    ("CP021", "mlm", "", "fsdp=true fsdp_version=2", "not concerned"),
    ("CP026", "mlm", f"{CP} 2 --mtp-num-layers 1", "", "needs mcore"),
    ("CP026", "bridge", "", "mtp_layers=1", "not concerned"),
    ("CP026", "mlm", "", "mtp_layers=1", "not concerned"),
    ("CP026", "mlm", "", "cp=null mtp_layers=1", "needs cp"),
    ("CP026", "mlm", f"{CP} 2 --mtp-num-layers 1", "mcore=0.13", "error crash config"),
    ("CP026", "mlm", f"{CP} 2 --mtp-num-layers 1", "mcore=0.14", "fine"),
]
