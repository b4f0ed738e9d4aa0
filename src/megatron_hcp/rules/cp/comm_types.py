"""The communication type: spelled for Transformer Engine, passed on to it, one per layer where layers differ."""

from __future__ import annotations

from megatron_hcp.core.releases import TE_COMM_TYPE
from megatron_hcp.rules.cp.view import (
    COMM_TYPES,
    comm_types,
    is_dsa,
    layer_types,
    switch_types,
    type_fixes,
    under_cp,
    uses_cp,
)
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import (
    ARGUMENTS,
    EXTENSION_TE,
    TE_CONTEXT_PARALLEL,
    TRANSFORMER_CONFIG,
    TRANSFORMER_LAYER,
)
from megatron_hcp.rules.view import View


@rule(
    "CP004",
    "error crash first-forward",
    source=(
        TE_CONTEXT_PARALLEL.says("attn_forward_func_with_cp", "Unsupported communication type", ">=2.3"),
        ARGUMENTS.says("_add_distributed_args", "p2p, a2a, allgather or a2a+p2p", ">=0.12"),
    ),
    applies=uses_cp,
    good=Example(
        "mlm",
        "--context-parallel-size 2 --cp-comm-type allgather --experimental-attention-variant dsa "
        "--disable-bias-linear --no-rope-fusion",
        "mcore=0.20",
    ),
    bad=Example("mlm", "--context-parallel-size 2 --cp-comm-type allgather"),
)
def comm_type_is_spelled_correctly(v: View) -> Problem | None:
    """The communication type is spelled as Transformer Engine spells it.

    megatron-core passes any string on. Transformer Engine compares it exactly in the first forward pass: 'allgather',
    which Megatron-LM's help text suggests, is rejected; the correct spelling is 'all_gather'.
    """
    wrong = tuple(kind for kind in comm_types(v) if kind not in COMM_TYPES)
    if not wrong:
        return None
    if all(kind.replace("_", "").lower() == "allgather" for kind in wrong) and is_dsa(v):
        return None  # DSA exchanges KV by itself and accepts both spellings
    meant = {kind.replace("_", "").replace("-", "").lower(): kind for kind in COMM_TYPES}
    near = meant.get(wrong[0].replace("_", "").replace("-", "").lower())
    value = v.cp_comm_type
    names = tuple(near if kind in wrong and near else kind for kind in layer_types(v))
    fixes = []
    if near and len(wrong) == 1:
        fixes.append(Fix({"cp_comm_type": names if isinstance(value, tuple) else near}, "the spelling that it accepts"))
    return Problem(
        message="Transformer Engine doesn't know this communication type: the first forward pass fails"
        + ("; the help text of --cp-comm-type is wrong here" if v.dialect == "mlm" and "allgather" in wrong else ""),
        found=f"cp_comm_type {' '.join(wrong)}",
        wanted="one of " + ", ".join(COMM_TYPES),
        facts=("cp_comm_type",),
        fixes=(*fixes, *type_fixes(v, "p2p")),
    )


@rule(
    "CP005",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__", "len(self.cp_comm_type) == self.num_layers", ">=0.12"
        ),
    ),
    applies=under_cp(lambda v: isinstance(v.cp_comm_type, tuple)),
    good=Example("mlm", "--context-parallel-size 2 --num-layers 2 --cp-comm-type p2p all_gather"),
    bad=Example("mlm", "--context-parallel-size 2 --num-layers 4 --cp-comm-type p2p all_gather"),
)
def comm_type_list_matches_layers(v: View) -> Problem | None:
    """A list of communication types has one entry per layer.

    The config constructor asserts this, but only if the context-parallel size is above 1.
    """
    types = v.cp_comm_type
    if len(types) == v.num_layers:
        return None
    return Problem(
        message="the model config is rejected: a list must give one communication type per layer",
        found=f"{len(types)} entries in cp_comm_type for {v.num_layers} layers",
        wanted=f"one type, or {v.num_layers} entries",
        facts=("cp_comm_type", "num_layers"),
        fixes=tuple(Fix(switch_types(v, kind), f"{kind} in every layer") for kind in comm_types(v)[:1]),
    )


@rule(
    "CP023",
    "error silent never",
    source=(EXTENSION_TE.says("TEDotProductAttention.__init__", 'if is_te_min_version("1.10.0"):', ">=0.12"),),
    applies=under_cp(lambda v: any(kind in ("a2a", "all_gather") for kind in comm_types(v))),
    good=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather", "te=1.12"),
    bad=Example("mlm", "--context-parallel-size 2 --cp-comm-type all_gather", "te=1.9"),
)
def comm_type_reaches_transformer_engine(v: View) -> Problem | None:
    """Transformer Engine is new enough to receive the communication type.

    Before Transformer Engine 1.10 megatron-core doesn't pass the type on: every layer runs the p2p ring.
    """
    if v.at_least("te", TE_COMM_TYPE):
        return None
    return Problem(
        message="the communication type is silently dropped and a plain ring runs",
        found=f"cp_comm_type {' '.join(comm_types(v))} with Transformer Engine {v.te}",
        wanted="Transformer Engine 1.10 or newer",
        facts=("cp_comm_type", "te"),
        fixes=(Fix(switch_types(v, "p2p"), "what runs in any case"),),
    )


@rule(
    "CP027",
    "error crash init",
    source=(
        TRANSFORMER_LAYER.says("TransformerLayer.__init__", "config.cp_comm_type[self.layer_number]", ">=0.12,<0.17"),
        TRANSFORMER_LAYER.says("TransformerLayer.__init__", "self.layer_number - 1", ">=0.17", where="checkout"),
    ),
    applies=under_cp(lambda v: isinstance(v.cp_comm_type, tuple)),
    good=Example(
        "bridge", "model.num_layers=2 model.context_parallel_size=2 model.cp_comm_type=[p2p,all_gather]", "mcore=0.17.0"
    ),
    bad=Example(
        "bridge", "model.num_layers=2 model.context_parallel_size=2 model.cp_comm_type=[p2p,all_gather]", "mcore=0.16.1"
    ),
)
def comm_type_per_layer_is_supported(v: View) -> Problem | None:
    """A communication type per layer needs megatron-core 0.17 or newer.

    Up to 0.16 megatron-core looks the type up under the layer's number, which counts from 1, in a list that counts from
    0. The constructor requires exactly one entry per layer, so the lookup for the last layer is always out of range;
    fixed in 0.17.
    """
    if v.at_least("mcore", "0.17"):
        return None
    return Problem(
        message="building the last layer fails with IndexError; each layer before it gets the type of the next one",
        found=f"cp_comm_type as a list of {len(v.cp_comm_type)} with megatron-core {v.mcore}",
        wanted="one type for all layers, or megatron-core 0.17 or newer",
        facts=("cp_comm_type", "mcore"),
        fixes=tuple(Fix(switch_types(v, kind), f"{kind} on every layer") for kind in comm_types(v)),
    )
