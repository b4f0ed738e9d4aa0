"""Context parallelism: how a list of communication types reaches the layers."""

from __future__ import annotations

from hcp.rules.comm import uses_cp
from hcp.rules.rule import Example, Fix, Problem, View, rule
from hcp.rules.upstream import TRANSFORMER_LAYER


def _one_type(v: View, kind: str) -> dict[str, object]:
    drop = {"hcp_sizes": None} if v.get("hcp_sizes") and kind != "a2a+p2p" else {}
    return {"cp_comm_type": kind, **drop}


@rule(
    "CP027",
    severity="error",
    effect="crash",
    stage="init",
    source=(
        TRANSFORMER_LAYER.says("TransformerLayer.__init__", "config.cp_comm_type[self.layer_number]", ">=0.12,<0.17"),
        TRANSFORMER_LAYER.says("TransformerLayer.__init__", "self.layer_number - 1", ">=0.17", where="checkout"),
    ),
    applies=lambda v: v.get("cp") != 1 and isinstance(v.cp_comm_type, tuple) and uses_cp(v),
    good=Example(
        "bridge", "model.num_layers=2 model.context_parallel_size=2 model.cp_comm_type=[p2p,all_gather]", "mcore=0.17.0"
    ),
    bad=Example(
        "bridge", "model.num_layers=2 model.context_parallel_size=2 model.cp_comm_type=[p2p,all_gather]", "mcore=0.16.1"
    ),
)
def comm_type_per_layer_is_supported(v: View) -> Problem | None:
    """A communication type per layer needs megatron-core 0.17 or newer.

    Up to 0.16 megatron-core looks the type up under the layer's number, which counts from 1, in a list that counts
    from 0. The constructor demands exactly one entry per layer, so the last layer always misses; corrected in 0.17.
    """
    if v.at_least("mcore", "0.17"):
        return None
    return Problem(
        message="building the last layer stops with IndexError; each layer before it gets the type of the next one",
        found=f"cp_comm_type as a list of {len(v.cp_comm_type)} with megatron-core {v.mcore}",
        wanted="one type for all layers, or megatron-core 0.17 or newer",
        facts=("cp_comm_type", "mcore"),
        fixes=tuple(Fix(_one_type(v, kind), f"{kind} on every layer") for kind in v.comm_types),
    )


RULES = (comm_type_per_layer_is_supported,)
