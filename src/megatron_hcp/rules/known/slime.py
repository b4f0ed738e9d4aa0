"""Known bugs of slime and miles."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    MILES_ADVANTAGES,
    MILES_MODEL,
    SLIME_ACTOR,
    SLIME_DATA,
    SLIME_HF_ATTENTION,
    SLIME_LOSS,
    SLIME_MODEL,
    SLIME_PROVIDER,
    SLIME_QWEN3_NEXT,
    SLIME_WHITEN,
)

_JOB = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --num-steps-per-rollout 1 "
_CP = f"{_JOB}--context-parallel-size 2 "
_BRIDGE = "--megatron-to-hf-mode bridge "
_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")
_RECOMPUTED = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
_ROPE = "--position-embedding-type rope "
_SPEC = "--spec slime_plugins.models."


def _slime(options: str, assume: str = "") -> Example:
    return Example("slime", options.strip(), assume)


_NORMALIZING = Known(
    "KNOWN080",
    "slime",
    ">=0.2",
    when="normalize_advantages and cp > 1",
    title="Advantages are normalized over all tokens of a batch",
    why="distributed_masked_whiten reduces over the data-parallel group without context parallelism, although each "
    "CP rank holds only its slices of the answers. A rank without answer tokens skips the collective operation.",
    symptom="each CP rank silently normalizes its part of the answers by itself: the parts of one sequence get "
    "different advantages; a rank without answers hangs the others",
    issue="THUDM/slime#2235",
    outcome="warning silent never",
    source=(
        SLIME_LOSS.says("compute_advantages_and_returns", "dp_group = mpu.get_data_parallel_group()", ">=0.2,<=0.3.1"),
    ),
    launch=_slime(f"{_CP}--normalize-advantages"),
    good=_slime(f"{_JOB}--normalize-advantages", "slime=0.3.1"),
    instead="slime's main branch since August 2026, or no context parallelism",
    fixes=(_WITHOUT_CP,),
)
_LOGGING_MTP = Known(
    "KNOWN084",
    "slime",
    ">=0.2",
    when="mtp_training and mtp_layers > 1",
    title="The losses of several multi-token-prediction layers can be logged",
    why="After each step, train() calls .item() on the losses, one per layer.",
    symptom="the losses of several multi-token-prediction layers are read as one number: after the first step, a "
    "RuntimeError about a tensor that is no scalar",
    issue="THUDM/slime#2132",
    outcome="error crash training",
    source=(SLIME_MODEL.says("train", '(tracker["values"] * mtp_loss_scale).item()', ">=0.2,<=0.3.1"),),
    launch=_slime(f"{_JOB}--enable-mtp-training {_ROPE}--mtp-num-layers 2"),
    good=_slime(f"{_JOB}--enable-mtp-training {_ROPE}--mtp-num-layers 1", "slime=0.3.1"),
    instead="--mtp-num-layers 1",
    fixes=(Fix({"mtp_layers": 1}, "one multi-token-prediction layer"),),
)

ROWS: tuple[Known, ...] = (
    _NORMALIZING,
    Known(
        "KNOWN081",
        "slime",
        "<0.2",
        when="normalize_advantages and pp > 1",
        title="Only the ranks that have advantages take part in normalizing them",
        why="distributed_masked_whiten calls all_reduce on the default group, but only the last pipeline stage has "
        "advantages.",
        symptom="the last pipeline stage waits for the other stages in an all_reduce of the default group: the job "
        "hangs at the first advantages",
        issue="THUDM/slime#393",
        outcome="error hang training",
        source=(SLIME_WHITEN.says("distributed_masked_whiten", "dist.all_reduce(stats_tensor)", "<0.2"),),
        launch=_slime(f"{_JOB}--pipeline-model-parallel-size 2 --normalize-advantages", "slime=0.1"),
        fixes=(Fix({"pp": 1}, "no pipeline"),),
    ),
    Known(
        "KNOWN082",
        "slime",
        ">=0.2.3,<0.3.1",
        when="allgather_cp and cp > 1 and not routing_replay",
        title="Every rank of --allgather-cp takes part in the backward pass",
        why="A rank that holds no answer token of a micro-batch returns new zeros instead of a slice of its own "
        "log-probabilities: its backward pass skips collective operations that the other ranks call.",
        symptom="a rank whose piece of the row holds no answer token skips collective operations of the backward "
        "pass: training hangs at the first such micro-batch",
        issue="THUDM/slime#2123",
        outcome="warning hang training",
        source=(SLIME_LOSS.says("_allgather_cp_redistribute", "requires_grad=True", ">=0.2.3,<0.3.1"),),
        launch=_slime(f"{_CP}--allgather-cp"),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN083",
        "slime",
        ">=0.2.3,<0.3.1",
        when="allgather_cp and routing_replay and cp > 1",
        title="Replayed routes follow the layout of --allgather-cp",
        why="fill_routing_replay cuts the recorded routes as for zigzag slices, while --allgather-cp gives each rank "
        "one contiguous piece of the row.",
        symptom="recorded routes are cut into zigzag slices, but tokens into contiguous pieces: tokens silently go to "
        "other tokens' experts; the backward pass may hang (#2123)",
        issue="THUDM/slime#2175",
        outcome="error silent never",
        source=(
            SLIME_ACTOR.says(
                "MegatronTrainRayActor.fill_routing_replay", "slice_with_cp(r, pad_func)", ">=0.2.3,<0.3.1"
            ),
        ),
        launch=_slime(f"{_CP}--allgather-cp --use-rollout-routing-replay"),
        fixes=(_WITHOUT_CP,),
    ),
    _LOGGING_MTP,
    Known(
        "KNOWN085",
        "slime",
        ">=0.2,<0.2.4",
        when="spec names qwen35 qwen3next and cp > 1",
        title="Gathering for linear attention doesn't multiply gradients by the CP size",
        why="slime's linear attention gathers the whole sequence on each rank and computes it there; the backward pass "
        "of dist.nn.all_gather then adds up identical gradients.",
        symptom="the gradients that pass linear attention are silently multiplied by the CP size",
        issue="THUDM/slime#1748",
        outcome="error silent never",
        source=(SLIME_HF_ATTENTION.says("HuggingfaceAttention.forward", "dist.nn.all_gather(", ">=0.2,<0.2.4"),),
        launch=_slime(f"{_CP}{_SPEC}qwen3_5 get_qwen3_5_spec", "slime=0.2.3"),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN086",
        "slime",
        ">=0.2,<0.2.4",
        when="spec names qwen35 qwen3next and tp > 1 and sequence_parallel",
        title="Gathering for linear attention doesn't multiply gradients by the TP size",
        why="slime's linear attention isn't split by TP, but the backward pass of its gather adds up the identical "
        "gradients of all TP ranks.",
        symptom="the gradients that pass linear attention are silently multiplied by the TP size",
        issue="THUDM/slime#1748",
        outcome="error silent never",
        source=(
            SLIME_HF_ATTENTION.says(
                "HuggingfaceAttention.forward", absent="tensor_parallel_output_grad=False", versions=">=0.2,<0.2.4"
            ),
        ),
        launch=_slime(
            f"{_JOB}--tensor-model-parallel-size 2 --sequence-parallel {_SPEC}qwen3_5 get_qwen3_5_spec", "slime=0.2.3"
        ),
    ),
    Known(
        "KNOWN087",
        "slime",
        ">=0.2,<0.2.3",
        when="spec names qwen3next",
        title="Linear attention starts anew at each sequence of a packed row",
        why="chunk_gated_delta_rule is called without cu_seqlens.",
        symptom="the state of linear attention silently crosses the boundaries of packed sequences",
        issue="THUDM/slime#1686",
        outcome="error silent never",
        source=(SLIME_QWEN3_NEXT.says("Qwen3NextGatedDeltaNet.forward", "use_qk_l2norm_in_kernel", ">=0.2,<0.2.3"),),
        launch=_slime(f"{_JOB}{_SPEC}qwen3_next get_qwen3_next_spec"),
    ),
    Known(
        "KNOWN088",
        "slime",
        ">=0.2.2,<0.2.4",
        when="hf_mode = bridge and cp > 1",
        title="A model built by Megatron-Bridge knows the CP size",
        why="The provider gets the TP, PP and EP sizes of the command line, but not the CP size.",
        symptom="the model is built for CP 1 although its data are split: attention silently ends at the slices of a "
        "rank, or fails at cu_seqlens longer than its rows",
        issue="THUDM/slime#1715",
        outcome="error silent never",
        source=(
            SLIME_PROVIDER.says(
                "get_model_provider_func", absent="provider.context_parallel_size", versions=">=0.2.2,<0.2.4"
            ),
        ),
        launch=_slime(_CP + _BRIDGE),
        instead="--megatron-to-hf-mode raw",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN089",
        "slime",
        ">=0.2.2,<0.3.1",
        when="hf_mode = bridge and recompute_granularity = full",
        title="A model built by Megatron-Bridge recomputes activations",
        why="The provider gets the parallel sizes of the command line, but no recompute option.",
        symptom="the recompute options don't reach the model: all activations are kept, and memory runs out at long "
        "sequences",
        issue="THUDM/slime#2251; the same in miles: radixark/miles#1483",
        outcome="warning oom training",
        source=(
            SLIME_PROVIDER.says(
                "get_model_provider_func", absent="provider.recompute_granularity", versions=">=0.2.2,<0.3.0"
            ),
        ),
        launch=_slime(f"{_JOB}{_BRIDGE}{_RECOMPUTED}"),
        instead="--megatron-to-hf-mode raw",
    ),
    Known(
        "KNOWN090",
        "slime",
        "<0.2.1",
        when="calculate_per_token_loss and cp > 1",
        title="A loss per token isn't scaled like a loss per sample",
        why="Up to 0.2.0 the loss is multiplied by micro-batches x DP x CP / global batch size, right only per "
        "sample; 0.2.0.post1 leaves out the CP size instead.",
        symptom="the loss per token, and thus the gradient, silently gets a wrong factor that depends on the layout",
        issue="THUDM/slime#987, #990",
        outcome="warning silent never",
        source=(SLIME_LOSS.says("loss_function", "* num_microbatches", "<0.2.1"),),
        launch=_slime(f"{_CP}--calculate-per-token-loss", "slime=0.2"),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN114",
        "slime",
        ">=0.1",
        when="overlap_grad_reduce",
        title="Gradients are reduced during the backward pass in every rollout",
        why="train(), which each rollout calls, asserts that the model's config has no no_sync_func yet, and sets it.",
        symptom="the second rollout fails with an AssertionError: config.no_sync_func is set by the first",
        issue="THUDM/slime#2066, #1857",
        outcome="error crash training",
        source=(SLIME_MODEL.says("train", "assert config.no_sync_func is None", ">=0.1,<=0.3.1"),),
        launch=_slime(f"{_JOB}--overlap-grad-reduce"),
        good=_slime(_JOB, "slime=0.3.1"),
        instead="no --overlap-grad-reduce",
        fixes=(Fix({"overlap_grad_reduce": False}, "gradients are reduced after the backward pass"),),
    ),
    Known(
        "KNOWN115",
        "slime",
        ">=0.2.2,<0.2.3",
        when="qkv_format = bshd",
        title="Rows that aren't packed form a batch",
        why="get_batch sets packed_seq_params only for thd, and reads it for both layouts.",
        symptom="the first batch fails with an UnboundLocalError: packed_seq_params is never set with bshd",
        issue="THUDM/slime#1649",
        outcome="error crash training",
        source=(SLIME_DATA.says("get_batch", absent="packed_seq_params = None", versions=">=0.2.2,<0.2.3"),),
        launch=_slime(f"{_JOB}--qkv-format bshd --micro-batch-size 1"),
        fixes=(Fix({"qkv_format": "thd"}, "packed rows"),),
    ),
    _NORMALIZING._replace(
        id="KNOWN091",
        package="miles",
        versions=">=0.1",
        why="normalize_advantages reduces over effective_dp, which doesn't include the CP ranks, although each holds "
        "only its slices of the answers. A rank without answer tokens skips the collective operation.",
        issue="the same as THUDM/slime#2235",
        source=(
            MILES_ADVANTAGES.says("normalize_advantages", "dp_group = parallel_state.effective_dp.group", ">=0.1,<1"),
        ),
        good=_slime(f"{_JOB}--normalize-advantages", "miles=0.1"),
        instead="no context parallelism",
    ),
    _LOGGING_MTP._replace(
        id="KNOWN092",
        package="miles",
        versions=">=0.1",
        issue="the same as THUDM/slime#2132",
        source=(MILES_MODEL.says("train", '(tracker["values"] * mtp_loss_scale).item()', ">=0.1"),),
        good=_slime(f"{_JOB}--enable-mtp-training {_ROPE}--mtp-num-layers 1", "miles=0.1"),
    ),
)
register_rows(ROWS, __name__)
