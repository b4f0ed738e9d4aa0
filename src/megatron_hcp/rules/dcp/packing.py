"""The scheduler that packs sequences on megatron-core's dev branch, also without dynamic CP."""

from __future__ import annotations

from megatron_hcp.rules.dcp.view import is_dev, tokens_per_rank
from megatron_hcp.rules.rule import Example, Fix, Problem, rule
from megatron_hcp.rules.upstream import ARGUMENTS, TRANSFORMER_CONFIG
from megatron_hcp.rules.view import View

_ON_DEV = "world_size=8 mcore=0.19.0 mcore_branch=dev te=2.14"
_PACKS = "--context-parallel-size 2 --sequence-packing-scheduler dp_balanced"


def _packs_without_dynamic_cp(v: View) -> bool:
    """Whether a scheduler is used without dynamic CP; with dynamic CP, DCP006 and DCP017 report the same."""
    return v.dialect == "mlm" and v.get("sequence_packing_scheduler") is not None and not is_dev(v)


@rule(
    "DCP029",
    "error crash config",
    source=(ARGUMENTS.says("validate_args", "Packed sequence buffer size (", ">=0.19", branches=("dev",)),),
    applies=_packs_without_dynamic_cp,
    good=Example("mlm", f"{_PACKS} --seq-length 4096 --max-seqlen-per-dp-cp-rank 2048", _ON_DEV),
    bad=Example("mlm", f"{_PACKS} --seq-length 4096 --max-seqlen-per-dp-cp-rank 1024", _ON_DEV),
)
def buffer_of_the_scheduler_holds_a_sequence(v: View) -> Problem | None:
    """The ranks that share a packed row have room for the longest sequence.

    With dp_balanced these are the CP ranks, with default_dynamic_cp the DP x CP ranks. Each holds
    max_seqlen_per_dp_cp_rank tokens; if that is unset, the command line derives it from seq_length.
    """
    room = tokens_per_rank(v)
    if room is None or v.seq_length is None:
        return None
    ranks = v.cp if v.sequence_packing_scheduler == "dp_balanced" else v.dp * v.cp
    if ranks * room >= v.seq_length:
        return None
    enough = -(-v.seq_length // ranks)
    return Problem(
        message="argument validation fails: a packed row has no room for the longest sequence",
        found=f"seq_length {v.seq_length}, and max_seqlen_per_dp_cp_rank {room} x {ranks} ranks",
        wanted=f"max_seqlen_per_dp_cp_rank of at least {enough}",
        facts=("max_seqlen_per_dp_cp_rank", "seq_length", "cp"),
        fixes=(Fix({"max_seqlen_per_dp_cp_rank": enough}, f"{enough} tokens on each rank"),),
    )


@rule(
    "DCP030",
    "error crash config",
    source=(
        TRANSFORMER_CONFIG.says(
            "TransformerConfig.__post_init__",
            "sequence_packing only supports moe_token_dispatcher_type in ",
            ">=0.19",
            where="checkout",
            branches=("dev",),
        ),
    ),
    applies=lambda v: _packs_without_dynamic_cp(v) and bool(v.get("num_experts")),
    good=Example("mlm", f"{_PACKS} --num-experts 8 --moe-token-dispatcher-type alltoall", _ON_DEV),
    bad=Example("mlm", f"{_PACKS} --num-experts 8 --moe-token-dispatcher-type allgather", _ON_DEV),
)
def packed_tokens_reach_their_experts(v: View) -> Problem | None:
    """With a packing scheduler, the MoE token dispatcher is alltoall or flex.

    Packed rows differ in length from rank to rank; the allgather dispatcher, the default, needs equal lengths.
    """
    dispatcher = v.moe_token_dispatcher_type
    if dispatcher in ("alltoall", "flex"):
        return None
    return Problem(
        message="the model config is rejected: this dispatcher needs rows of equal length on all ranks",
        found=f"moe_token_dispatcher_type {dispatcher} with sequence_packing_scheduler {v.sequence_packing_scheduler}",
        wanted="alltoall or flex",
        facts=("moe_token_dispatcher_type", "sequence_packing_scheduler", "num_experts"),
        fixes=(Fix({"moe_token_dispatcher_type": "alltoall"}, "tokens reach their experts through an all-to-all"),),
    )
