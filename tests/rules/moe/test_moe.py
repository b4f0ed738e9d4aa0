"""MOE rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_EP = "--expert-model-parallel-size"
_PLAIN = "--bf16 --disable-bias-linear --num-experts 8"
_OVERLAP = f"--overlap-moe-expert-parallel-comm {_PLAIN} {_EP} 4 --moe-token-dispatcher-type"
_WIDTH = "--num-experts 8 --moe-shared-expert-intermediate-size 512"
_SHARED = f"{_WIDTH} --moe-shared-expert-overlap --moe-token-dispatcher-type"

_BRIDGES_OVERLAP = (
    "comm_overlap.overlap_moe_expert_parallel_comm=true model.recompute_granularity=selective "
    "model.recompute_modules=[moe]"
)

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MOE001", "mlm", "", "", "not concerned"),
    ("MOE001", "mlm", f"{_EP} 2", "", "error crash config"),
    ("MOE001", "mlm", f"{_EP} 2 --num-experts 4", "", "fine"),
    ("MOE001", "bridge", "model.expert_model_parallel_size=2", "", "needs num_experts"),
    ("MOE001", "bridge", "model.expert_model_parallel_size=2 model.num_moe_experts=null", "", "error crash config"),
    ("MOE001", "verl", "", "ep=2 num_experts=null", "error crash config"),
    ("MOE001", "bridge", "model.num_moe_experts=null", "", "not concerned"),
    ("MOE003", "bridge", "model.num_moe_experts=4", "", "not concerned"),
    ("MOE002", "mlm", f"{_EP} 2", "", "not concerned"),
    ("MOE002", "mlm", "--num-experts 3", "", "not concerned"),
    ("MOE002", "mlm", f"{_EP} 2 --num-experts 3", "", "error crash config"),
    ("MOE002", "mlm", f"{_EP} 2 --num-experts 4", "", "fine"),
    ("MOE002", "bridge", "", "ep=2 num_experts=3", "error crash init"),
    ("MOE003", "mlm", "--tensor-model-parallel-size 2", "", "not concerned"),
    ("MOE003", "mlm", "--num-experts 4", "", "not concerned"),
    ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2", "", "error crash first-forward"),
    ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2 --sequence-parallel", "", "fine"),
    ("MOE003", "bridge", "model.num_moe_experts=4 model.tensor_model_parallel_size=2", "", "needs sequence_parallel"),
    # Only training stops.
    *(
        ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2", f"script={script}", said)
        for script, said in (
            ("tools/run_text_generation_server.py", "not concerned"),
            ("examples/inference/advanced/gpt_static_inference.py", "not concerned"),
            ("examples/post_training/modelopt/generate.py", "not concerned"),
            ("mmlu.py", "not concerned"),
            ("examples/post_training/modelopt/validate.py", "not concerned"),
            ("examples/post_training/modelopt/offline_feature_extract.py", "not concerned"),
            ("generated/pretrain_gpt.py", "error crash first-forward"),
            ("examples/post_training/modelopt/finetune.py", "error crash first-forward"),
        )
    ),
    ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2 --skip-train", "", "not concerned"),
    ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2 --inference-max-requests 4", "", "not concerned"),
    (
        "MOE003",
        "mlm",
        "--num-experts 4 --tensor-model-parallel-size 2 --inference-max-requests 4 --perform-rl-step",
        "",
        "error crash first-forward",
    ),
    ("MOE004", "mlm", f"{_EP} 4 --num-experts 8", "", "not concerned"),
    ("MOE004", "mlm", f"{_OVERLAP} alltoall", "", "fine"),
    ("MOE004", "mlm", f"{_OVERLAP} flex", "", "fine"),
    ("MOE004", "mlm", f"{_OVERLAP} allgather", "", "error crash config"),
    ("MOE004", "mlm", f"{_OVERLAP} alltoall {_EP} 1", "", "error crash config"),
    ("MOE004", "mlm", f"{_OVERLAP} alltoall --pipeline-model-parallel-size 2", "", "error crash config"),
    (
        "MOE004",
        "mlm",
        f"{_OVERLAP} alltoall --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        "",
        "fine",
    ),
    (
        "MOE004",
        "mlm",
        f"{_OVERLAP} alltoall --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t|t|tL",
        "",
        "fine",
    ),
    ("MOE004", "bridge", "model.overlap_moe_expert_parallel_comm=true", "", "needs ep"),
    ("MOE006", "mlm", f"{_EP} 4 --num-experts 8 --recompute-granularity full", "", "not concerned"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall", "mcore=0.17", "fine"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-granularity full", "mcore=0.19.0 mcore_branch=dev", "fine"),
    ("MOE006", "bridge", _BRIDGES_OVERLAP, "mcore=0.17", "error crash config"),  # whatever shared experts do
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-granularity full", "mcore=0.14", "error crash config"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --moe-shared-expert-overlap", "mcore=0.14", "error crash config"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --mtp-num-layers 1", "mcore=0.17", "fine"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --mtp-num-layers 2", "mcore=0.17", "error crash config"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-modules core_attn moe", "mcore=0.17", "error crash config"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-modules moe", "mcore=0.16.1", "fine"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-modules moe_act", "mcore=0.17", "fine"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-modules moe", "", "needs mcore"),
    ("MOE005", "mlm", _WIDTH, "", "not concerned"),
    ("MOE005", "mlm", f"{_SHARED} alltoall", "", "fine"),
    ("MOE005", "mlm", f"{_SHARED} allgather", "", "error crash config"),
    ("MOE005", "mlm", f"{_WIDTH} --moe-shared-expert-overlap", "", "error crash config"),
    ("MOE005", "mlm", "--moe-shared-expert-overlap", "", "fine"),
    ("MOE005", "mlm", f"{_SHARED} flex", "mcore=0.17.1", "error crash config"),
    ("MOE005", "mlm", f"{_SHARED} flex", "mcore=0.18.0", "fine"),
    ("MOE005", "mlm", f"{_SHARED} flex", "", "needs mcore"),
    ("MOE005", "bridge", "model.moe_shared_expert_overlap=true", "", "needs moe_shared_expert_intermediate_size"),
    ("MOE005", "verl", "", "moe_token_dispatcher_type=allgather", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("MOE001", "mlm", f"{_EP} 2", "", "| no expert parallelism"),
    # Two ranks hold a grid of two experts' ranks, and none of more; eight stages or shards leave one each.
    ("MOE002", "bridge", "", "ep=4 num_experts=6 world_size=2 etp=1", "| expert parallelism over 2 ranks"),
    ("MOE002", "bridge", "", "ep=4 num_experts=6 world_size=2 pp=1", "| expert parallelism over 2 ranks"),
    ("MOE002", "bridge", "", "ep=4 num_experts=6 world_size=8 etp=1 pp=8", "| no expert parallelism"),
    ("MOE002", "bridge", "", "ep=4 num_experts=6 world_size=8 etp=8 pp=1", "| no expert parallelism"),
    ("MOE001", "mlm", f"{_EP} 2", "", "found: expert_model_parallel_size 2 for a dense model"),
    ("MOE002", "mlm", f"{_EP} 2 --num-experts 3", "", "found: 3 experts over 2 ranks"),
    (
        "MOE003",
        "mlm",
        "--num-experts 4 --tensor-model-parallel-size 2",
        "",
        "found: 4 experts at tensor_model_parallel_size 2 without sequence_parallel",
    ),
    ("MOE004", "mlm", f"{_OVERLAP} alltoall {_EP} 1", "", "found: expert_model_parallel_size 1"),
    ("MOE004", "mlm", f"{_OVERLAP} allgather", "", "found: moe_token_dispatcher_type allgather"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --recompute-modules moe", "mcore=0.17", "with recompute_modules moe"),
    ("MOE006", "mlm", f"{_OVERLAP} alltoall --mtp-num-layers 2", "mcore=0.17", "with mtp_num_layers 2"),
    (
        "MOE004",
        "mlm",
        f"{_OVERLAP} alltoall --pipeline-model-parallel-size 2",
        "",
        "found: 2 pipeline stages without virtual ones",
    ),
    (
        "MOE005",
        "mlm",
        f"{_SHARED} allgather",
        "",
        "found: moe_shared_expert_overlap with moe_token_dispatcher_type allgather",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("MOE001", "mlm", f"{_EP} 2", "", ("expert_model_parallel_size=1",)),
    (
        "MOE002",
        "mlm",
        f"{_EP} 4 --num-experts 6",
        "",
        ("expert_model_parallel_size=3", "expert_model_parallel_size=6"),
    ),
    # 3 ranks of 8 would be no whole expert grid.
    ("MOE002", "mlm", f"{_EP} 4 --num-experts 6", "world_size=8", ("expert_model_parallel_size=2",)),
    ("MOE002", "mlm", f"{_EP} 4 --num-experts 6", "world_size=8 pp=8 num_layers=8", ("expert_model_parallel_size=1",)),
    ("MOE003", "mlm", "--num-experts 4 --tensor-model-parallel-size 2", "", ("sequence_parallel=true",)),
    (
        "MOE004",
        "mlm",
        f"{_OVERLAP} allgather",
        "",
        ("moe_token_dispatcher_type=alltoall", "overlap_moe_expert_parallel_comm=false"),
    ),
    ("MOE004", "mlm", f"{_OVERLAP} alltoall {_EP} 1", "", ("overlap_moe_expert_parallel_comm=false",)),
    (
        "MOE006",
        "mlm",
        # Upstream wants a pipeline for the overlap with prediction layers, and rotary positions for these.
        f"{_OVERLAP} alltoall --mtp-num-layers 2 --position-embedding-type rope --num-layers 8 "
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
        "mcore=0.17",
        ("mtp_num_layers=1", "overlap_moe_expert_parallel_comm=false"),
    ),
    (
        "MOE005",
        "mlm",
        f"{_SHARED} allgather",
        "",
        ("moe_token_dispatcher_type=alltoall", "moe_shared_expert_overlap=false"),
    ),
]
