"""Environment variables that must fit the configuration, and Bridge's evaluation with another CP size."""

from __future__ import annotations

from hcp.rules.hcp.view import (
    HIERARCHICAL,
    flat_fixes,
)
from hcp.rules.rule import Example, Fix, Problem, rule
from hcp.rules.upstream import (
    BRIDGE_CONFIG,
    BRIDGE_EVAL_CP,
    BRIDGE_LOAD_SAVE,
)
from hcp.rules.view import View


@rule(
    "LOAD002",
    severity="error",
    effect="crash",
    stage="training",
    source=(
        BRIDGE_CONFIG.says("DistributedInitConfig", "Requires use_decentralized_pg=True", ">=0.6", where="checkout"),
        BRIDGE_EVAL_CP.says("install_pg_collection", "module.cp_comm_type,", ">=0.6"),
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate", "is not divisible by eval model parallel size", ">=0.6", where="checkout"
        ),
    ),
    applies=lambda v: (
        v.dialect == "bridge"
        and v.get("eval_context_parallel_size") is not None
        and v.eval_context_parallel_size != v.get("cp")
    ),
    good=Example(
        "bridge",
        "model.context_parallel_size=4 model.cp_comm_type=p2p dist.eval_context_parallel_size=2 "
        "dist.use_decentralized_pg=true model.seq_length=4096 model.tensor_model_parallel_size=1 "
        "model.pipeline_model_parallel_size=1",
        "world_size=8",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 model.cp_comm_type=p2p dist.eval_context_parallel_size=3 "
        "dist.use_decentralized_pg=true model.seq_length=4096",
    ),
)
def evaluation_cp_has_groups(v: View) -> Problem | None:
    """Evaluation with another context-parallel size has groups to switch to.

    Bridge swaps the process groups for evaluation only where they are decentralized, and its layout must divide the
    ranks and the sequence as well.
    """
    size = v.eval_context_parallel_size
    message = "validation switches to its own CP groups"
    if not v.use_decentralized_pg:
        return Problem(
            message="the CP size of evaluation is ignored: only decentralized process groups are switched",
            found=f"dist.eval_context_parallel_size {size} without dist.use_decentralized_pg",
            wanted="dist.use_decentralized_pg=true",
            facts=("eval_context_parallel_size", "use_decentralized_pg"),
            fixes=(Fix({"eval_context_parallel_size": None}, "evaluation as in training"),),
            severity="warning",
            effect="silent",
            stage="never",
        )
    none = Fix({"eval_context_parallel_size": None}, "evaluation as in training")
    if "a2a+p2p" in v.comm_types:
        return Problem(
            message=f"{message}, one flat group for layers that stay a2a+p2p: the first evaluation stops",
            found=f"eval_context_parallel_size {size} with cp_comm_type a2a+p2p",
            wanted="a flat communication type",
            facts=("eval_context_parallel_size", "cp_comm_type"),
            fixes=(none,),
        )
    if "a2a" in v.comm_types and (v.heads_per_rank % size or v.kv_heads_per_rank % size):
        return Problem(
            message=f"{message}, and a2a cannot deal the heads to their ranks: the first evaluation stops",
            found=f"{v.heads_per_rank} query and {v.kv_heads_per_rank} KV heads per tensor-parallel rank at "
            f"eval_context_parallel_size {size}",
            wanted=f"both a multiple of {size}",
            facts=("eval_context_parallel_size", "kv_heads", "heads"),
            fixes=(none,),
        )
    length = v.seq_length
    if length and size > 1 and length % (2 * size):
        return Problem(
            message=f"{message}, and the sequence cannot be cut into their 2 x CP chunks",
            found=f"seq_length {length} at eval_context_parallel_size {size}",
            wanted=f"a multiple of {2 * size}",
            facts=("eval_context_parallel_size", "seq_length"),
            fixes=(none,),
        )
    shard = v.tp * v.pp * size
    if v.world_size % shard:
        return Problem(
            message="the ranks do not divide by the evaluation's layout: Bridge's validation stops",
            found=f"{v.world_size} ranks at tp x pp x eval_context_parallel_size {shard}",
            wanted=f"a multiple of {shard}",
            facts=("eval_context_parallel_size", "world_size"),
            fixes=(none,),
            stage="config",
        )
    return None


@rule(
    "LOAD001",
    severity="warning",
    effect="silent",
    stage="never",
    source=(
        BRIDGE_LOAD_SAVE.says(
            "load_megatron_model",
            "model_cfg.hierarchical_context_parallel_sizes = None",
            ">=0.3",
            absent="cp_comm_type",
        ),
    ),
    applies=lambda v: v.dialect == "bridge-provider" and v.get("cp") == 1,
    good=Example("bridge-provider", "model.context_parallel_size=1 model.cp_comm_type=p2p"),
    bad=Example(
        "bridge-provider",
        "model.context_parallel_size=1 model.cp_comm_type=a2a+p2p model.hierarchical_context_parallel_sizes=null",
    ),
)
def provider_at_cp_1_has_sizes(v: View) -> Problem | None:
    """A provider at CP size 1 does not keep a2a+p2p without sizes.

    Loading a checkpoint into a provider resets the CP size and clears the hierarchical sizes, but leaves
    cp_comm_type. An override that raises the CP size alone then gives a2a+p2p without groups: attention turns
    local, and no validation runs on this path.
    """
    if HIERARCHICAL not in v.comm_types or v.hcp_sizes:
        return None
    return Problem(
        message="harmless at CP size 1, but raising context_parallel_size alone turns context parallelism off silently",
        found="cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes, as loading a checkpoint leaves it",
        wanted="a flat type; or, in mp_overrides, hierarchical_context_parallel_sizes beside context_parallel_size",
        facts=("cp_comm_type", "cp"),
        fixes=tuple(flat_fixes(v)),
    )


RULES = (
    evaluation_cp_has_groups,
    provider_at_cp_1_has_sizes,
)
