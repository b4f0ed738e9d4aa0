"""TOPO rules, as tables."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Dialect
from megatron_hcp.rules.registry import rules_for
from support.rules import FixRow, Row, launch, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

SHARDS, EXPERT_SHARDS = "--tensor-parallel-num-weight-shards", "--expert-tensor-parallel-num-weight-shards"
INSTANCES = "--num-distributed-optimizer-instances"
INNER_WORDS = "--use-tp-pp-dp-mapping --pipeline-model-parallel-size 2"
EXPERTS_OVER_8 = (
    "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=1 model.context_parallel_size=2 "
    "model.expert_model_parallel_size=8 model.num_moe_experts=64 model.expert_tensor_parallel_size=null "
)
INNER_PIPELINE = f"{EXPERTS_OVER_8}model.pipeline_model_parallel_size=2 dist.use_tp_pp_dp_mapping=true "
TWO_INSTANCES = (
    f"{EXPERTS_OVER_8}model.context_parallel_size=1 model.expert_model_parallel_size=2 "
    "ddp.num_distributed_optimizer_instances=2"
)

NO_TP = "tp=1 cp=2 pp=1 ep=1 etp=1 world_size=4 rank_order=cp-ep-pp-dp"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("TOPO003", "verl", "", "tp=2 world_size=1", "error crash init"),
    ("TOPO003", "verl", "", "", "not concerned"),
    ("TOPO003", "mlm", "", "cp=4 world_size=3", "error crash config"),
    ("TOPO003", "bridge-provider", "", "tp=2 cp=4 world_size=2 pp=1", "error crash init"),
    # Megatron-Bridge, _set_moe_expert_tensor_parallel_default: 1 where experts are parallel.
    ("TOPO004", "bridge", EXPERTS_OVER_8, "world_size=8 bridge=0.6.0", "fine"),
    ("TOPO004", "bridge", EXPERTS_OVER_8, "world_size=8 bridge=0.5.1", "error crash init"),
    ("TOPO004", "bridge", EXPERTS_OVER_8, "world_size=8", "needs etp"),
    ("TOPO004", "bridge-provider", EXPERTS_OVER_8, "world_size=8 bridge=0.6.0", "fine"),
    ("TOPO004", "bridge", f"{EXPERTS_OVER_8}model.expert_tensor_parallel_size=4", "world_size=8 bridge=0.6", "error"),
    ("TOPO004", "bridge", f"{EXPERTS_OVER_8}model.expert_model_parallel_size=1", "world_size=8", "not concerned"),
    ("TOPO004", "bridge", f"{EXPERTS_OVER_8}model.tensor_model_parallel_size=1", "world_size=8", "fine"),
    ("TOPO005", "bridge", f"{INNER_PIPELINE}model.expert_model_parallel_size=8", "world_size=16 bridge=0.6", "fine"),
    ("TOPO005", "bridge", f"{INNER_PIPELINE}model.expert_model_parallel_size=2", "world_size=16 bridge=0.6", "error"),
    ("TOPO005", "bridge", f"{INNER_PIPELINE}model.expert_model_parallel_size=2", "world_size=16 bridge=0.5", "fine"),
    ("TOPO006", "bridge", TWO_INSTANCES, "world_size=24 bridge=0.6", "fine"),
    ("TOPO006", "bridge", TWO_INSTANCES, "world_size=24 bridge=0.5", "error crash init"),
    ("TOPO004", "mlm", "", "tp=null etp=1", "needs tp"),
    ("TOPO004", "mlm", "", "ep=2", "needs world_size"),
    ("TOPO004", "mlm", "", "", "not concerned"),
    ("TOPO005", "verl", "", "pp=2 cp=2 use_tp_pp_dp_mapping=true world_size=2", "fine"),
    ("TOPO005", "bridge-provider", "", "", "not concerned"),
    ("TOPO005", "bridge", "", "use_tp_pp_dp_mapping=true", "needs pp"),
    ("TOPO005", "verl", "", "pp=2 use_tp_pp_dp_mapping=true world_size=8", "fine"),
    ("TOPO005", "verl", "", "pp=2 use_tp_pp_dp_mapping=true world_size=8 etp=6", "fine"),
    ("TOPO005", "bridge-provider", "", "tp=1 cp=1 pp=2 ep=1 etp=1 world_size=4 rank_order=tp-cp-pp-ep-dp", "fine"),
    (
        "TOPO005",
        "bridge-provider",
        "",
        "tp=1 cp=2 pp=2 ep=2 etp=1 world_size=8 rank_order=tp-cp-pp-ep-dp",
        "error crash init",
    ),
    (
        "TOPO005",
        "bridge-provider",
        "",
        "tp=1 cp=2 pp=2 ep=1 etp=1 world_size=8 rank_order=tp-pp-cp-ep-dp",
        "error crash init",
    ),
    (
        "TOPO005",
        "bridge-provider",
        "",
        "tp=1 cp=1 pp=2 ep=1 etp=1 world_size=4 rank_order=tp-cp-ep-dp",
        "fine",
    ),  # TOPO007
    ("TOPO006", "verl", "", "", "not concerned"),
    ("TOPO006", "mlm", "", "num_distributed_optimizer_instances=2 world_size=8 ep=8", "error crash init"),
    ("TOPO006", "mlm", "", "num_distributed_optimizer_instances=2 world_size=8 ep=8 mcore=0.12.3", "fine"),
    ("TOPO006", "mlm", "", "num_distributed_optimizer_instances=2 world_size=8 ep=8 mcore=0.13", "error crash init"),
    ("TOPO006", "mlm", "", "num_distributed_optimizer_instances=3 world_size=8 mcore=0.12.3", "error crash init"),
    ("TOPO006", "verl", "", "cp=2 num_distributed_optimizer_instances=3 world_size=9", "fine"),
    ("TOPO006", "verl", "", "num_distributed_optimizer_instances=4 world_size=8 gtp=4", "error crash init"),
    # Weight shards of experts are an axis of their own in the expert grid (initialize_model_parallel of 0.19).
    ("TOPO004", "mlm", f"{EXPERT_SHARDS} 4", "world_size=2", "error crash init"),
    ("TOPO004", "mlm", f"{EXPERT_SHARDS} 4", "world_size=4", "fine"),
    ("TOPO004", "mlm", f"--expert-tensor-parallel-size 2 {EXPERT_SHARDS} 4", "world_size=4", "fine"),
    ("TOPO005", "mlm", f"{INNER_WORDS} --context-parallel-size 2 {EXPERT_SHARDS} 2", "world_size=8", "fine"),
    ("TOPO005", "mlm", f"{INNER_WORDS} {EXPERT_SHARDS} 2", "world_size=8", "error crash init"),
    ("TOPO005", "mlm", f"{INNER_WORDS} {SHARDS} 2 {EXPERT_SHARDS} 2", "world_size=8", "fine"),
    ("TOPO008", "mlm", f"--tensor-model-parallel-size 2 {SHARDS} 3", "", "error crash config"),
    ("TOPO008", "mlm", f"--tensor-model-parallel-size 4 {SHARDS} 2", "", "error crash config"),
    ("TOPO008", "mlm", f"--tensor-model-parallel-size 2 {SHARDS} 8", "", "fine"),
    ("TOPO008", "mlm", f"--tensor-model-parallel-size 2 {EXPERT_SHARDS} 3", "", "error crash config"),
    ("TOPO008", "mlm", "--tensor-model-parallel-size 2", "", "not concerned"),
    ("TOPO009", "mlm", f"{SHARDS} 2 {INSTANCES} 2", "", "error crash init"),
    ("TOPO009", "mlm", f"{EXPERT_SHARDS} 2 {INSTANCES} 2", "", "error crash init"),
    ("TOPO009", "mlm", f"--tensor-model-parallel-size 2 {SHARDS} 2 {INSTANCES} 2", "", "fine"),
    ("TOPO007", "bridge", "", "", "not concerned"),
    ("TOPO007", "verl", "", "rank_order=tp-cp-ep-pp-dp", "not concerned"),
    ("TOPO007", "verl", "", "etp=2 world_size=6 rank_order=cp-dp", "error crash init"),
    (
        "TOPO007",
        "bridge-provider",
        "",
        "tp=1 cp=4 pp=1 ep=1 etp=1 world_size=4 rank_order=tp-cp-ep-pp",
        "error crash init",
    ),
    # From 0.19 on tp has to be named at size 1 too: `RankGenerator` finds its letters in gtp_remat.
    *(
        ("TOPO007", "bridge-provider", "", f"{NO_TP} {mcore}", said)
        for mcore, said in (
            ("mcore=0.18.2", "fine"),
            ("mcore=0.19.0", "error crash init"),
            ("mcore=0.20.0", "error crash init"),
            ("mcore=0.19.0 mcore_branch=dev", "fine"),
            ("", "needs mcore"),
        )
    ),
    # TOPO007 has what is not named.
    ("TOPO005", "bridge-provider", "", f"{NO_TP.replace('pp=1', 'pp=2')} mcore=0.19.0", "fine"),
    ("TOPO005", "bridge-provider", "", f"{NO_TP.replace('pp=1', 'pp=2')} mcore=0.18.2", "error crash init"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("TOPO003", "mlm", "", "world_size=1 gtp=2", "1 rank for tp"),
    ("TOPO003", "mlm", "", "tp=2 cp=2 world_size=6", "context parallelism over 3 ranks"),
    ("TOPO003", "mlm", "", "pp=6 world_size=16", "pipeline parallelism over 4 ranks"),
    ("TOPO003", "mlm", "", "tp=2 gtp=2 world_size=6", "x weight shards 2 = 4"),
    ("TOPO005", "verl", "", "pp=2 cp=2 use_tp_pp_dp_mapping=true world_size=8", "cp = 2 and etp"),
    ("TOPO006", "mlm", "", "num_distributed_optimizer_instances=2 world_size=8 ep=8", "| one instance"),
    (
        "TOPO006",
        "mlm",
        "",
        "cp=2 num_distributed_optimizer_instances=3 world_size=8",
        "| 2 instances | 4 instances",
    ),
]


FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("TOPO003", "mlm", "", "tp=2 cp=2 world_size=6", ("context_parallel_size=3", "tensor_model_parallel_size=3")),
    (
        "TOPO003",
        "mlm",
        "",
        "tp=4 cp=4 hcp_sizes=8 gpus_per_node=1 nodes=8",
        ("nodes=16", "tensor_model_parallel_size=2"),
    ),
    (
        "TOPO003",
        "mlm",
        "",
        "cp=6 gpus_per_node=4 nodes=8",
        (
            "nodes=9",
            "context_parallel_size=4",
            "context_parallel_size=8",
        ),
    ),
    (
        "TOPO003",
        "mlm",
        "",
        "world_size=16 hcp_sizes=3,2 pp=6",
        ("pipeline_model_parallel_size=4", "pipeline_model_parallel_size=8"),
    ),
    (
        "TOPO003",
        "mlm",
        "",
        "cp=8 start=torchrun nodes=1 gpus_per_node=1",
        ("gpus_per_node=8", "nodes=8", "context_parallel_size=1"),
    ),
    (
        "TOPO003",
        "mlm",
        "",
        "cp=9 start=torchrun nodes=1 gpus_per_node=1",
        ("nodes=9", "context_parallel_size=1"),
    ),
    ("TOPO003", "mlm", "", "cp=16 start=torchrun nodes=1 gpus_per_node=8", ("nodes=2", "context_parallel_size=8")),
    (
        "TOPO004",
        "mlm",
        "",
        "ep=3 num_experts=12 world_size=8",
        ("expert_model_parallel_size=2", "expert_model_parallel_size=4"),
    ),
    ("TOPO004", "mlm", "", "ep=3 num_experts=6 world_size=8", ("expert_model_parallel_size=2",)),
    # A dense model (MOE001): only one rank is right.
    ("TOPO004", "mlm", "", "ep=3 world_size=8", ("expert_model_parallel_size=1",)),
    ("TOPO004", "mlm", "", "etp=8 world_size=6", ("expert_tensor_parallel_size=1",)),
    # Expert sizes that fit the ranks come before more nodes: alone, or both together.
    (
        "TOPO004",
        "verl",
        "",
        "tp=4 etp=4 ep=16 pp=2 num_experts=128 nodes=1 gpus_per_node=8",
        (
            "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 "
            "actor_rollout_ref.actor.megatron.expert_model_parallel_size=4",
            "trainer.nnodes=16",
            "actor_rollout_ref.actor.megatron.expert_model_parallel_size=1",
        ),
    ),
    (
        "TOPO004",
        "mlm",
        "--tensor-model-parallel-size 2 --expert-model-parallel-size 8 --num-experts 8 --sequence-parallel",
        "nodes=1 gpus_per_node=8",
        ("expert_tensor_parallel_size=1", "expert_model_parallel_size=4", "nodes=2"),
    ),
    (
        "TOPO005",
        "mlm",
        "",
        "pp=2 use_tp_pp_dp_mapping=true num_experts=4 ep=2 world_size=8 mcore=0.16.1",
        (
            "use_tp_pp_dp_mapping=false",
            "expert_model_parallel_size=1",
        ),
    ),
    ("TOPO005", "mlm", "", "pp=2 cp=2 use_tp_pp_dp_mapping=true world_size=8", ("use_tp_pp_dp_mapping=false",)),
]


@pytest.mark.parametrize(
    ("dialect", "words", "assumed"),
    [
        (
            "ms-swift",
            "--model Qwen/Qwen3-8B --dataset data --tensor_model_parallel_size 4 --context_parallel_size 4 "
            "--global_batch_size 8",
            "ms_swift=4.5.2 nodes=1 gpus_per_node=4",
        ),
        (
            "bridge",
            "model.tensor_model_parallel_size=4 model.context_parallel_size=4 model.pipeline_model_parallel_size=1",
            "bridge=0.6.0 nodes=1 gpus_per_node=8",
        ),
    ],
)
def test_topo003_stands_for_what_the_start_up_says_of_the_ranks(dialect: Dialect, words: str, assumed: str) -> None:
    report = check_launch(launch(dialect, words, assumed), rules_for, fixes=False)
    found = {item.id.partition("/")[0] for item in report.findings if item.severity == "error"}
    assert "TOPO003" in found and not {name for name in found if name.startswith("START")}
