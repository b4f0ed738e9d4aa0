"""Models with special training: a vision tower, multi-token prediction."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import layer_types, under_cp
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import PRETRAIN_VLM, TRANSFORMER_LAYER
from megatron_hcp.rules.view import View


@rule(
    "MODEL004",
    "error crash init",
    source=(PRETRAIN_VLM.says("model_provider", "PP+CP is not yet supported by this script", ">=0.12"),),
    applies=under_cp(lambda v: str(v.get("script") or "").endswith("pretrain_vlm.py")),
    good=Example("mlm", "--context-parallel-size 2", "script=pretrain_vlm.py"),
    bad=Example("mlm", "--context-parallel-size 2 --pipeline-model-parallel-size 2", "script=pretrain_vlm.py"),
)
def vision_script_uses_cp_or_pp(v: View) -> Problem | None:
    """The vision script uses context or pipeline parallelism, not both.

    pretrain_vlm.py asserts this while building the model: its data lacks the shapes that a pipeline needs.
    """
    if v.pp == 1:
        return None
    return Problem(
        message="the vision script rejects context parallelism together with pipeline parallelism: building the model "
        "fails",
        found=f"context_parallel_size {v.cp} and pipeline_model_parallel_size {v.pp} with {v.script}",
        wanted="one of the two",
        facts=("cp", "pp", "script"),
        fixes=(Fix({"cp": 1}, "no context parallelism"), Fix({"pp": 1}, "no pipeline")),
    )


@rule(
    "MODEL006",
    "info note never",
    source=(TRANSFORMER_LAYER.says("TransformerLayer.__init__", "config.cp_comm_type[", ">=0.12"),),
    applies=under_cp(lambda v: bool(v.get("mtp_layers")) and isinstance(v.get("cp_comm_type"), tuple)),
    good=Example(
        "mlm",
        "--context-parallel-size 2 --num-layers 2 --cp-comm-type p2p p2p --mtp-num-layers 1 "
        "--position-embedding-type rope",
        "mcore=0.17",
    ),
    bad=Example(
        "mlm",
        "--context-parallel-size 2 --num-layers 2 --cp-comm-type p2p all_gather --mtp-num-layers 1 "
        "--position-embedding-type rope",
        "mcore=0.17",
    ),
)
def mtp_takes_the_first_comm_types(v: View) -> Problem | None:
    """The list of communication types suits multi-token prediction.

    A list has one entry per layer of the main model. The inner layers of multi-token prediction are numbered 1, 2, …
    and so read the first entries.
    """
    types = layer_types(v)
    if len(set(types)) == 1:
        return None
    return Problem(
        message="the layers of multi-token prediction are numbered from 1 again, so they use the first entries of the "
        "list",
        found=f"{v.mtp_layers} prediction layers with cp_comm_type {' '.join(types[: v.mtp_layers])}",
        wanted="the types for these layers as the first entries of the list",
        facts=("cp_comm_type", "mtp_layers"),
    )
