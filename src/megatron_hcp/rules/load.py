"""Loading and evaluating with a CP size other than that of training."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import HIERARCHICAL, comm_types, heads_per_rank, kv_heads_per_rank
from megatron_hcp.rules.hcp.view import flat_fixes
from megatron_hcp.rules.rule import Example, Fix, Problem, Stage, rule
from megatron_hcp.rules.upstream import BRIDGE_CONFIG, BRIDGE_EVAL_CP, BRIDGE_LOAD_SAVE
from megatron_hcp.rules.view import View

_AS_IN_TRAINING = Fix({"eval_context_parallel_size": None}, "evaluation uses the layout of training")
_SWITCHES = "validation switches to its own CP groups"


def _ignores(size: int) -> Problem:
    """The problem if the process groups aren't decentralized."""
    return Problem(
        message="the evaluation CP size is ignored: only decentralized process groups are switched",
        found=f"dist.eval_context_parallel_size {size} without dist.use_decentralized_pg",
        wanted="dist.use_decentralized_pg=true",
        facts=("eval_context_parallel_size", "use_decentralized_pg"),
        fixes=(_AS_IN_TRAINING,),
        severity="warning",
        effect="silent",
        stage="never",
    )


def _stops(message: str, found: str, wanted: str, *facts: str, stage: Stage | None = None) -> Problem:
    """The problem of an evaluation that fails or never starts."""
    return Problem(message, found, wanted, ("eval_context_parallel_size", *facts), (_AS_IN_TRAINING,), stage=stage)


def _does_not_divide_ranks(v: View, size: int) -> Problem | None:
    """The problem of an evaluation whose layout doesn't divide the ranks; Bridge requires that of every launch."""
    shard = v.tp * v.pp * size
    if v.world_size % shard == 0:
        return None
    return _stops(
        "the number of ranks isn't divisible by the evaluation layout: Bridge's validation fails",
        f"{v.world_size} ranks for tp x pp x eval_context_parallel_size {shard}",
        f"a multiple of {shard}",
        "world_size",
        stage="config",
    )


@rule(
    "LOAD002",
    "error crash training",
    source=(
        BRIDGE_CONFIG.says("DistributedInitConfig", "Requires use_decentralized_pg=True", ">=0.5", where="checkout"),
        BRIDGE_EVAL_CP.says("install_pg_collection", "module.cp_comm_type,", ">=0.5"),
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
        "dist.use_decentralized_pg=true dist.use_gloo_process_groups=false model.seq_length=4096 "
        "model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=1",
        "world_size=8",
    ),
    bad=Example(
        "bridge",
        "model.context_parallel_size=2 model.cp_comm_type=p2p dist.eval_context_parallel_size=3 "
        "dist.use_decentralized_pg=true dist.use_gloo_process_groups=false model.seq_length=4096",
    ),
)
def evaluation_cp_has_groups(v: View) -> Problem | None:
    """Evaluation with another CP size has valid groups to switch to.

    Bridge switches process groups for evaluation only if they are decentralized, and the evaluation layout must divide
    the ranks and the sequence, too. From 0.6 on its validation checks the ranks even if nothing is switched.
    """
    size = v.eval_context_parallel_size
    if not v.use_decentralized_pg:
        is_checked = v.known("bridge", "world_size", "tp", "pp") and v.at_least("bridge", "0.6")
        return (_does_not_divide_ranks(v, size) if is_checked else None) or _ignores(size)
    types = comm_types(v)
    if HIERARCHICAL in types:
        return _stops(
            f"{_SWITCHES}, a flat one for layers that stay a2a+p2p: the first evaluation fails",
            f"eval_context_parallel_size {size} with cp_comm_type a2a+p2p",
            "a flat communication type",
            "cp_comm_type",
        )
    if "a2a" in types and (heads_per_rank(v) % size or kv_heads_per_rank(v) % size):
        return _stops(
            f"{_SWITCHES}, and a2a cannot split the heads over their ranks: the first evaluation fails",
            f"{heads_per_rank(v)} query and {kv_heads_per_rank(v)} KV heads per tensor-parallel rank at "
            f"eval_context_parallel_size {size}",
            f"both a multiple of {size}",
            "kv_heads",
            "heads",
        )
    length = v.seq_length
    if length and size > 1 and length % (2 * size):
        return _stops(
            f"{_SWITCHES}, and the sequence cannot be split into their 2 x CP chunks",
            f"seq_length {length} at eval_context_parallel_size {size}",
            f"a multiple of {2 * size}",
            "seq_length",
        )
    return _does_not_divide_ranks(v, size)


@rule(
    "LOAD003",
    "error crash config",
    source=(
        BRIDGE_CONFIG.says(
            "ConfigContainer.validate",
            "Gloo process groups are not supported when use_decentralized_pg=True",
            ">=0.3",
        ),
    ),
    applies=lambda v: v.dialect == "bridge" and bool(v.get("use_decentralized_pg")),
    good=Example("bridge", "dist.use_decentralized_pg=true dist.use_gloo_process_groups=false"),
    bad=Example("bridge", "dist.use_decentralized_pg=true dist.use_gloo_process_groups=true"),
)
def decentralized_groups_exclude_gloo(v: View) -> Problem | None:
    """Decentralized process groups are used without Gloo.

    Bridge creates decentralized groups over NCCL only and rejects use_gloo_process_groups, which is on by default.
    """
    if not v.use_gloo_process_groups:
        return None
    return Problem(
        message="decentralized process groups support NCCL only: Bridge's validation fails",
        found="dist.use_decentralized_pg with dist.use_gloo_process_groups",
        wanted="dist.use_gloo_process_groups=false",
        facts=("use_gloo_process_groups", "use_decentralized_pg"),
        fixes=(Fix({"use_gloo_process_groups": False}, "groups over NCCL only"),),
    )


@rule(
    "LOAD001",
    "warning silent never",
    source=(
        BRIDGE_LOAD_SAVE.says(
            "load_megatron_model",
            "model_cfg.hierarchical_context_parallel_sizes = None",
            ">=0.2",
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
def provider_drops_hierarchy_with_its_sizes(v: View) -> Problem | None:
    """A provider at CP size 1 doesn't keep a2a+p2p without sizes.

    Loading a checkpoint into a provider resets the CP size and clears the hierarchical sizes, but leaves cp_comm_type.
    An override that raises only the CP size then leaves a2a+p2p without groups: attention becomes local, and no
    validation runs on this path.
    """
    if HIERARCHICAL not in comm_types(v) or v.hcp_sizes:
        return None
    return Problem(
        message="harmless at CP size 1, but raising only context_parallel_size silently turns context parallelism off",
        found="cp_comm_type a2a+p2p without hierarchical_context_parallel_sizes, as loading a checkpoint leaves it",
        wanted="a flat type; or, in mp_overrides, hierarchical_context_parallel_sizes together with "
        "context_parallel_size",
        facts=("cp_comm_type", "cp"),
        fixes=tuple(flat_fixes(v)),
    )
