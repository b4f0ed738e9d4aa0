"""Fact names: how layers are assigned to pipeline stages."""

from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec, field_spec

STAGE_FACTS: tuple[FactSpec, ...] = (
    field_spec(
        "first_stage_layers",
        "int",
        "num_layers_in_first_pipeline_stage",
        None,
        "layers of the first pipeline stage; null = like the others",
        mlm=("decoder_first_pipeline_num_layers",),
        kept=True,
    ),
    field_spec(
        "last_stage_layers",
        "int",
        "num_layers_in_last_pipeline_stage",
        None,
        "layers of the last pipeline stage; null = like the others",
        mlm=("decoder_last_pipeline_num_layers",),
        kept=True,
    ),
    field_spec(
        "embedding_counts",
        "bool",
        "account_for_embedding_in_pipeline_split",
        False,
        "the embedding counts as a layer of the pipeline",
        kept=True,
    ),
    field_spec(
        "loss_counts",
        "bool",
        "account_for_loss_in_pipeline_split",
        False,
        "the loss counts as a layer of the pipeline",
        kept=True,
    ),
    field_spec(
        "pipeline_layout",
        "any",
        "pipeline_model_parallel_layout",
        None,
        "which layers each pipeline stage holds, as text or a list of lists; null = all stages alike",
        kept=True,
    ),
    FactSpec(
        "layers_per_virtual_stage",
        "size",
        "Megatron-LM: layers per virtual pipeline stage",
        mlm=("num_layers_per_virtual_pipeline_stage",),
        default=UNKNOWN,
        defaults={"mlm": None},
    ),
    FactSpec(
        "virtual_stages_per_rank",
        "size",
        "Megatron-LM: virtual pipeline stages per rank",
        mlm=("num_virtual_stages_per_pipeline_rank",),
        default=UNKNOWN,
        defaults={"mlm": None},
    ),
    FactSpec(
        "overlap_p2p_comm",
        "bool",
        "Megatron-LM: pipeline communication overlaps with computation",
        mlm_not=("no_overlap_p2p_communication",),
        default=UNKNOWN,
        defaults={"mlm": True},
    ),
)

STAGE_NAMES = tuple(spec.name for spec in STAGE_FACTS if spec.name != "overlap_p2p_comm")
"""The facts that describe stages."""
