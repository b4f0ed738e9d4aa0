"""Fact names: how checkpoints are written and read."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec

CHECKPOINT_FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        "checkpoint_save",
        "any",
        "where checkpoints are written",
        mlm=("save",),
        bridge=("checkpoint.save",),
        verl=("trainer.default_local_dir",),
    ),
    FactSpec(
        "ckpt_format",
        "str",
        "checkpoint format: torch, torch_dist, torch_dcp, fsdp_dtensor",
        mlm=("ckpt_format",),
        bridge=("checkpoint.ckpt_format",),
        default=UNKNOWN,
        defaults={"mlm": "torch_dist", "bridge": "torch_dist"},
    ),
    FactSpec("checkpoint_load", "any", "where checkpoints are loaded from", mlm=("load",), bridge=("checkpoint.load",)),
    FactSpec(
        "async_save",
        "bool",
        "Megatron-LM: checkpoints are written in the background",
        mlm=("async_save",),
        default=UNKNOWN,
        defaults={"mlm": False},
    ),
    FactSpec(
        "persistent_ckpt_worker",
        "bool",
        "Megatron-LM: by a process that stays",
        mlm=("use_persistent_ckpt_worker",),
        default=UNKNOWN,
        defaults={"mlm": False},
    ),
)
