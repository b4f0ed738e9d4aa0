"""LOSS rules: what a loss is divided by, as tables."""

from __future__ import annotations

from support.launches import ACTOR, CP, HYBRID, ON_MAIN, OVERRIDE, PACKED, PROVIDER, VERL
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

AVERAGED = "cp=2 packing=null finetune=true calculate_per_token_loss=true average_in_collective=true"

TE_LOSS = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("LOSS007", "mlm", f"{TE_LOSS} te", "mcore=0.18.2", "error crash config"),
    ("LOSS007", "mlm", f"{TE_LOSS} te", "mcore=0.19.2", "error crash config"),
    ("LOSS007", "mlm", f"{TE_LOSS} te", "mcore=0.18.1", "fine"),  # merged into the branch after that release
    ("LOSS007", "mlm", f"{TE_LOSS} te", "", "needs mcore"),
    ("LOSS007", "mlm", f"{TE_LOSS} native", "mcore=0.19.2", "not concerned"),
    ("LOSS007", "mlm", "--cross-entropy-loss-fusion", "mcore=0.19.2", "not concerned"),  # native is the default
    ("LOSS007", "mlm", "--cross-entropy-fusion-impl te", "mcore=0.19.2", "not concerned"),
    # Megatron-Bridge's own recipes ask for it: megatron-core itself only warns.
    (
        "LOSS007",
        "bridge",
        "",
        "mcore=0.19.2 cross_entropy_fusion=true cross_entropy_fusion_impl=te",
        "not concerned",
    ),
    ("LOSS001", "mlm", f"{CP} 2 --sft", "", "warning"),
    ("LOSS001", "mlm", f"{CP} 2 --sft", "mcore=0.14.0", "warning"),
    ("LOSS001", "mlm", f"{CP} 2 --sft", "mcore=0.15.0", "warning"),
    ("LOSS001", "mlm", f"{CP} 2 --sft --mtp-num-layers 1", "mcore=0.16.0", "warning"),
    ("LOSS001", "mlm", f"{CP} 2 --sft --mtp-num-layers 1", "mcore=0.17.0", "warning"),
    ("LOSS001", "mlm", "--sft", "", "not concerned"),
    ("LOSS001", "bridge", "model.context_parallel_size=2 " + PACKED, "", "needs calculate_per_token_loss"),
    (
        "LOSS001",
        "bridge",
        "model.context_parallel_size=2 model.calculate_per_token_loss=true " + PACKED,
        "",
        "needs average_in_collective",
    ),
    (
        "LOSS001",
        "bridge",
        "model.context_parallel_size=2 model.calculate_per_token_loss=false",
        "finetune=false",
        "not concerned",
    ),
    ("LOSS001", "mlm", f"{CP} 2 --sft", "", "warning silent never"),
    ("LOSS001", "mlm", f"{CP} 2 --sft --calculate-per-token-loss --ddp-average-in-collective", "", "fine"),
    (
        "LOSS001",
        "bridge",
        "",
        "cp=2 packing=offline finetune=false calculate_per_token_loss=false",
        "error crash config",
    ),
    (
        "LOSS001",
        "bridge",
        "",
        "cp=2 packing=energon finetune=true calculate_per_token_loss=false",
        "error crash config",
    ),
    # Diffusion packs as Energon does: the dataset's class decides, and it may be hidden.
    ("LOSS001", "bridge", "", "cp=2 packing=energon calculate_per_token_loss=false", "needs finetune"),
    # Bridge 0.6.2: WanDatasetConfig, which ConfigContainer.validate takes for no fine-tuning.
    ("LOSS001", "bridge", "", "cp=2 packing=energon finetune=false calculate_per_token_loss=false", "not concerned"),
    ("LOSS001", "bridge", "", "cp=2 packing=null finetune=true calculate_per_token_loss=false", "error crash config"),
    # Bridge 0.3 to 0.7 switch the average off for Megatron-FSDP v1 first, where buffers are registered symmetrically.
    ("LOSS001", "bridge", "", f"{AVERAGED} fsdp=true symmetric_registration_off=false", "fine"),
    ("LOSS001", "bridge", "", f"{AVERAGED} fsdp=true", "fine"),  # no recipe switches the registration off
    ("LOSS001", "bridge", "", f"{AVERAGED} fsdp=false", "error crash config"),
    ("LOSS001", "bridge", "", f"{AVERAGED} fsdp=true symmetric_registration_off=true", "error crash config"),
    ("LOSS001", "bridge", "", f"{AVERAGED} fsdp=true fsdp_version=2", "error crash config"),
    (
        "LOSS001",
        "bridge",
        "",
        "cp=2 finetune=true calculate_per_token_loss=true average_in_collective=true fsdp=false",
        "error crash config",
    ),
    ("LOSS001", "bridge", "", "finetune=true calculate_per_token_loss=true average_in_collective=false", "needs cp"),
    ("LOSS001", "verl", "", "cp=2 packing=offline finetune=true calculate_per_token_loss=false", "not concerned"),
    ("LOSS002", "verl", f"{ACTOR}override_transformer_config.calculate_per_token_loss=True", "", "needs verl"),
    ("LOSS002", "mlm", "--calculate-per-token-loss", "verl=0.8", "not concerned"),
    ("LOSS002", "verl", f"{OVERRIDE}calculate_per_token_loss=True", "verl=0.8", "error silent never"),
    ("LOSS002", "verl", f"{OVERRIDE}calculate_per_token_loss=True", "verl=0.9", "fine"),
    (
        "LOSS005",
        "mlm",
        "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2 --ddp-average-in-collective",
        "",
        "not concerned",
    ),
    (
        "LOSS005",
        "mlm",
        "--expert-tensor-parallel-num-weight-shards 2 --ddp-average-in-collective",
        "",
        "error crash config",
    ),
    ("LOSS005", "mlm", "--expert-tensor-parallel-num-weight-shards 2", "", "fine"),
    ("LOSS005", "bridge", "ddp.average_in_collective=true", "", "not concerned"),
    (
        "LOSS006",
        "bridge-provider",
        f"{PROVIDER} model.calculate_per_token_loss=false",
        "mcore=0.16.1 te=2.14",
        "all: LOSS006",
    ),
    ("LOSS006", "bridge-provider", f"{PROVIDER}", "mcore=0.16.1 te=2.14", "fine"),
    (
        "LOSS006",
        "mlm",
        f"{HYBRID.replace('--calculate-per-token-loss', '')}",
        ON_MAIN,
        "not concerned",
    ),  # the command line asks
    ("LOSS006", "verl", f"{VERL}", "verl=0.7 mcore=0.19.0 mcore_branch=dev", "fine"),  # DCP020
    ("LOSS006", "verl", f"{VERL}", "verl=0.8 mcore=0.19.0 mcore_branch=dev", "error silent never"),
    ("LOSS006", "verl", f"{VERL}", "verl=0.9 mcore=0.19.0 mcore_branch=dev", "fine"),
    ("LOSS006", "verl", f"{VERL} trainer.n_gpus_per_node=1", "verl=0.8", "fine"),
    ("LOSS006", "verl", f"{VERL} trainer.n_gpus_per_node=2", "verl=0.8", "error silent never"),
]

TEXTS: list[Row] = [
    ("LOSS001", "mlm", f"{CP} 2 --sft", "mcore=0.14.0", "and NaN where a rank has none"),
    ("LOSS001", "mlm", f"{CP} 2 --sft --mtp-num-layers 1", "mcore=0.16.1", "and NaN where a rank has none"),
    ("LOSS001", "mlm", f"{CP} 2 --sft", "", "before megatron-core 0.15: NaN where a rank has none"),
    # rule, dialect, launch, assumed, what the finding says
    ("LOSS001", "mlm", f"{CP} 2 --sft", "mcore=0.15.3", "gradients are silently biased | fine-tuning"),
    (
        "LOSS001",
        "bridge",
        "",
        "cp=2 finetune=true calculate_per_token_loss=false",
        "Bridge's validation fails; without it, ranks",
    ),
]
