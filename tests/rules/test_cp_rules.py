"""Truth tables of the rules on CP, packing, loss, models and environment that no upstream function can judge here.

Each row: a launch, what is assumed, and what the rule says: a severity, "" for nothing, or the fact that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcp.launch.fact import Launch
from hcp.rules.engine import check_launch
from hcp.rules.registry import BY_ID

CP = "--context-parallel-size 2 "
FSDP = "dist.use_megatron_fsdp=true "
TREE = "env.NCCL_ALGO=Tree env.NVTE_ALLOW_NONDETERMINISTIC_ALGO=0"
PACKED = "dataset.offline_packing_specs.packed_sequence_size=4096 "
EVAL = (
    "model.context_parallel_size=4 dist.eval_context_parallel_size=2 model.cp_comm_type=p2p model.seq_length=4096 "
    "model.pipeline_model_parallel_size=1 "
)
VERL = "actor_rollout_ref.actor.megatron."

TABLE: list[tuple[str, str, str, str, str]] = [
    # rule, dialect, launch, assumed, verdict
    ("CP001", "mlm", CP + "--seq-length 4094", "", "error"),
    ("CP001", "mlm", CP, "", "needs seq_length"),
    ("CP001", "mlm", "--seq-length 4095", "", ""),
    ("CP001", "bridge-provider", "model.context_parallel_size=2 model.seq_length=4094", "", "warning"),
    ("CP001", "verl", VERL + "context_parallel_size=3", "", ""),
    # Twice the CP size divides, tensor x context parallelism does not.
    ("CP002", "mlm", CP + "--tensor-model-parallel-size 8 --sequence-parallel --seq-length 4104", "", "error"),
    ("CP002", "mlm", CP + "--tensor-model-parallel-size 8 --sequence-parallel --seq-length 4112", "", ""),
    ("CP002", "mlm", CP + "--tensor-model-parallel-size 8 --seq-length 4104", "", ""),
    ("CP002", "mlm", CP + "--tensor-model-parallel-size 8 --sequence-parallel --seq-length 4104 --sft", "", ""),
    ("CP003", "mlm", CP + "--fp8-format hybrid --fp8-recipe mxfp8 --seq-length 4128 --micro-batch-size 1", "", "error"),
    ("CP003", "mlm", CP + "--fp8-format hybrid --fp8-recipe mxfp8 --seq-length 4128 --micro-batch-size 2", "", ""),
    ("CP003", "mlm", CP + "--fp8-format hybrid --fp8-recipe delayed --seq-length 4128 --micro-batch-size 1", "", ""),
    ("CP003", "mlm", CP + "--fp8-format hybrid --seq-length 4128", "", "needs micro_batch_size"),
    ("CP004", "mlm", CP + "--cp-comm-type ulysses", "", "error"),
    ("CP004", "mlm", CP + "--cp-comm-type p2p", "", ""),
    ("CP004", "bridge", "model.context_parallel_size=2 model.cp_comm_type=allgather", "", "needs attention_variant"),
    ("CP006", "mlm", CP + "--spec local", "", "error"),
    ("CP006", "mlm", CP + "--attention-backend local --spec local", "", "error"),
    ("CP006", "mlm", CP + "--transformer-impl local --spec some.module some_spec", "", ""),
    ("CP012", "mlm", CP, "attention_mask=arbitrary", "error"),
    ("CP012", "mlm", CP, "attention_mask=padding", "error"),
    ("CP012", "mlm", CP, "attention_mask=padding thd=true", ""),
    ("CP013", "mlm", CP + "--attention-backend flash --flash-attention-version 4", "", "needs te"),
    ("CP013", "mlm", CP + "--attention-backend flash --flash-attention-version 4", "te=2.17", ""),
    ("CP013", "mlm", CP + "--attention-backend flash --flash-attention-version 4", "te=2.18", "error"),
    (
        "CP013",
        "mlm",
        CP + "--attention-backend flash --flash-attention-version 4 --cp-comm-type a2a+p2p "
        "--hierarchical-context-parallel-sizes 1 2",
        "te=2.20",
        "error",
    ),
    ("CP014", "mlm", CP + "--fp8-format hybrid --fp8-recipe custom --fp8-multi-head-attention", "te=2.16", "error"),
    ("CP014", "mlm", CP + "--fp8-format hybrid --fp8-recipe custom --fp8-multi-head-attention", "te=2.15", ""),
    ("CP015", "mlm", CP + "--multi-latent-attention", "", "needs te"),
    ("CP015", "mlm", CP + "--multi-latent-attention --cp-comm-type a2a --sft", "te=2.10 mcore=0.18", ""),
    (
        "CP015",
        "mlm",
        CP + "--multi-latent-attention --cp-comm-type a2a --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 192",
        "te=2.4",
        "",
    ),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.16", "needs env.NVTE_ALLOW_NONDETERMINISTIC_ALGO"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19", ""),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.19 env.NCCL_ALGO=Tree", "error"),
    ("CP017", "mlm", "--deterministic-mode", "mcore=0.18 " + TREE, ""),
    ("CP017", "bridge", "model.deterministic_mode=true", TREE, ""),
    ("CP018", "mlm", CP + "--batch-invariant-mode", "mcore=0.18", ""),
    ("CP018", "mlm", CP + "--batch-invariant-mode", "", "needs mcore"),
    ("CP020", "mlm", CP + "--pipeline-model-parallel-comm-backend ucc", "arch=sm90", "error"),
    ("CP020", "mlm", CP + "--pipeline-model-parallel-comm-backend ucc", "arch=sm100", ""),
    ("CP020", "bridge", "model.context_parallel_size=2 model.pipeline_model_parallel_comm_backend=ucc", "", ""),
    ("CP024", "mlm", CP + "--seq-length 131072 --dataloader-inter-document-masking", "", ""),
    ("CP024", "mlm", CP + "--seq-length 131072 --no-create-attention-mask-in-dataloader", "", ""),
    (
        "CP024",
        "bridge",
        "model.context_parallel_size=2 model.seq_length=65536 dataset.skip_getting_attention_mask_from_dataset=false",
        "",
        "warning",
    ),
    ("CP026", "mlm", CP + "--mtp-num-layers 1", "", "needs mcore"),
    ("ENV001", "mlm", CP, "", ""),
    ("ENV001", "mlm", CP, "env.OTHER=1", "needs env.CUDA_DEVICE_MAX_CONNECTIONS"),
    ("ENV001", "mlm", CP, "env.CUDA_DEVICE_MAX_CONNECTIONS=8", "needs arch"),
    ("ENV001", "mlm", CP, "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm100", ""),
    ("ENV001", "mlm", CP + "--overlap-moe-expert-parallel-comm", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90", ""),
    ("ENV001", "mlm", CP + "--use-torch-fsdp2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    ("ENV001", "bridge", FSDP + "model.context_parallel_size=2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    ("ENV001", "bridge", "model.context_parallel_size=2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90", ""),
    ("ENV003", "mlm", "--apply-query-key-layer-scaling", "", "needs env.NVTE_APPLY_QK_LAYER_SCALING"),
    ("ENV003", "mlm", "--transformer-impl local", "env.NVTE_APPLY_QK_LAYER_SCALING=1", ""),
    ("LOAD002", "bridge", EVAL + "dist.use_decentralized_pg=false", "", "warning"),
    (
        "LOAD002",
        "bridge",
        EVAL + "dist.use_decentralized_pg=true model.tensor_model_parallel_size=3",
        "world_size=16",
        "error",
    ),
    ("LOSS001", "mlm", CP + "--sft", "", "warning"),
    ("LOSS001", "mlm", "--sft", "", ""),
    ("LOSS001", "bridge", "model.context_parallel_size=2 " + PACKED, "", "needs calculate_per_token_loss"),
    (
        "LOSS001",
        "bridge",
        "model.context_parallel_size=2 model.calculate_per_token_loss=true " + PACKED,
        "",
        "needs average_in_collective",
    ),
    ("LOSS001", "bridge", "model.context_parallel_size=2 model.calculate_per_token_loss=false", "finetune=false", ""),
    ("LOSS002", "verl", VERL + "override_transformer_config.calculate_per_token_loss=True", "", "needs verl"),
    (
        "LOSS005",
        "mlm",
        "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2 --ddp-average-in-collective",
        "",
        "",
    ),
    ("MODEL001", "mlm", CP + "--hybrid-layer-pattern *-*-", "", ""),
    ("MODEL001", "mlm", CP + "--hybrid-layer-pattern M*", "", "needs hidden_size"),
    (
        "MODEL001",
        "mlm",
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 "
        "--hybrid-layer-pattern M* --hidden-size 1024",
        "",
        "warning",
    ),
    ("MODEL002", "mlm", CP + "--cp-comm-type allgather --experimental-attention-variant dsa", "mcore=0.18", "error"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa --position-embedding-type rope", "", "error"),
    ("MODEL002", "mlm", "--experimental-attention-variant dsa", "", ""),  # learned positions: no rotary embedding
    ("MODEL003", "mlm", CP + "--experimental-attention-variant gdn", "", "needs mcore"),
    ("MODEL003", "mlm", CP + "--experimental-attention-variant gated_delta_net", "mcore=0.17", "error"),
    ("MODEL004", "mlm", CP + "--pipeline-model-parallel-size 2", "script=pretrain_gpt.py", ""),
    (
        "PACK001",
        "bridge",
        PACKED + "model.context_parallel_size=2 model.tensor_model_parallel_size=3 model.sequence_parallel=true",
        "",
        "error",
    ),
    ("PACK001", "bridge", PACKED + "model.context_parallel_size=2 model.sequence_parallel=false", "", ""),
    ("PACK002", "bridge", PACKED + "model.context_parallel_size=2", "", "needs pad_seq_to_mult"),
    (
        "PACK002",
        "bridge",
        PACKED + "model.context_parallel_size=2 dataset.offline_packing_specs.pad_seq_to_mult=null",
        "",
        "error",
    ),
    (
        "PACK002",
        "bridge",
        PACKED + "model.context_parallel_size=1 dataset.offline_packing_specs.pad_seq_to_mult=1",
        "",
        "",
    ),
    ("PACK003", "bridge", "dataset.packing_buffer_size=64 train.micro_batch_size=2", "", "needs bridge"),
    ("PACK003", "bridge", "dataset.packing_buffer_size=64 train.micro_batch_size=2", "bridge=0.6", ""),
    ("PACK003", "bridge", "dataset.enable_in_batch_packing=true train.micro_batch_size=1", "", "error"),
    ("PACK004", "bridge", PACKED + "model.context_parallel_size=2", "mcore=0.18", ""),
    ("PACK004", "bridge", PACKED + "model.context_parallel_size=2", "mcore=0.17 bridge=0.5", ""),
    (
        "PACK005",
        "bridge",
        PACKED + "model.attention_backend=flash dataset.offline_packing_specs.pad_seq_to_mult=4",
        "te=2.18",
        "needs flash_attn",
    ),
    ("PACK006", "mlm", CP + "--dataloader-inter-document-masking --sft", "", ""),
    ("PACK008", "mlm", CP + "--sft --position-embedding-type rope", "te=1.11", "error"),
    ("PACK008", "mlm", CP + "--sft", "te=1.11", ""),  # learned positions
    ("PACK010", "verl", VERL + "context_parallel_size=2 " + VERL + "use_remove_padding=False", "verl=0.7.1", "error"),
    (
        "PACK010",
        "verl",
        VERL + "context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False",
        "verl=0.7.1",
        "",
    ),
    ("PACK012", "mlm", CP + "--cp-partition-mode contiguous --experimental-attention-variant gdn", "", "error"),
    (
        "PACK012",
        "bridge",
        "model.context_parallel_size=2 model.cp_partition_mode=contiguous "
        "model.experimental_attention_variant=dsv4_hybrid",
        "",
        "",
    ),
    ("PACK013", "mlm", "--sft", "mcore=0.15", ""),
    ("PERF001", "mlm", "--context-parallel-size 4 --seq-length 4096", "", ""),
]


@pytest.mark.parametrize(
    ("rule_id", "kind", "text", "assume", "expected"),
    TABLE,
    ids=[f"{row[0]}-{number}" for number, row in enumerate(TABLE)],
)
def test_the_table_holds(
    rule_id: str, kind: str, text: str, assume: str, expected: str, launch_of: Callable[..., Launch]
) -> None:
    report = check_launch(launch_of(kind, text, assume), (BY_ID[rule_id],), fixes=False)
    said = [finding.severity for finding in report.findings]
    said += [f"needs {name}" for item in report.not_checked for name in item.needs]
    assert said == ([expected] if expected else [])


def test_a_rounded_length_fits_cp_and_tp_in_model_and_dataset(launch_of: Callable[..., Launch]) -> None:
    launch = launch_of(
        "bridge",
        "model.context_parallel_size=4 model.seq_length=5001 dataset.seq_length=5001 "
        "model.sequence_parallel=true model.tensor_model_parallel_size=3 model.num_attention_heads=6",
    )
    fix = check_launch(launch, (BY_ID["CP001"],)).findings[0].fixes[0]
    assert fix.overrides == ("model.seq_length=5016", "dataset.seq_length=5016")  # 5016 = 209 x lcm(8, 12)


def test_a_misspelt_type_in_a_list_is_mended_where_it_stands(launch_of: Callable[..., Launch]) -> None:
    launch = launch_of("mlm", "--context-parallel-size 2 --num-layers 3 --cp-comm-type p2p allgather a2a")
    fix = check_launch(launch, (BY_ID["CP004"],)).findings[0].fixes[0]
    assert fix.cli == ("--cp-comm-type", "p2p", "all_gather", "a2a")


@pytest.mark.parametrize(
    ("rule_id", "text", "assume", "kept"),
    [
        ("MODEL002", "--experimental-attention-variant dsa --cp-comm-type a2a+p2p", "mcore=0.19", "all_gather"),
        ("CP023", "--num-layers 2 --cp-comm-type a2a a2a+p2p", "te=1.9", "p2p"),
    ],
)
def test_a_fix_that_leaves_the_levels_drops_their_sizes(
    rule_id: str, text: str, assume: str, kept: str, launch_of: Callable[..., Launch]
) -> None:
    sizes = "--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2 "
    report = check_launch(launch_of("mlm", sizes + text, assume), (BY_ID[rule_id], BY_ID["HCP006"]))
    (finding,) = report.findings
    assert dict(finding.fixes[0].edits) == {"cp_comm_type": kept, "hcp_sizes": None}
