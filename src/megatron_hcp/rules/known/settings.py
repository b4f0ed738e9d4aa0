"""Settings that each work alone, and packages beside the frameworks, that don't work together in some releases."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    BRIDGE_EVAL_CP,
    BRIDGE_PACKED_SEQUENCE,
    MILES_ACTOR,
    MS_SWIFT_TEMPLATE_3,
    MS_SWIFT_UTILS,
    SLIME_ACTOR,
    TE_FUSED_ATTN,
    VERL_MCORE_UTIL,
    VERL_MEGATRON_ACTOR,
)

_ACTOR = "actor_rollout_ref.actor"
_VERL = f"model_engine=megatron {_ACTOR}.use_dynamic_bsz=True {_ACTOR}.ppo_max_token_len_per_gpu=8192 "
_VLM = f"{_VERL}actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.model.path=Qwen/Qwen3-VL-8B-Instruct"
_SLIME = "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --calculate-per-token-loss --use-rollout-logprobs"
_EVAL = "dist.use_decentralized_pg=true dist.use_gloo_process_groups=false model.seq_length=4096 model.cp_comm_type=p2p"
_PACKED = "dataset.packed_sequence_specs.packed_sequence_size=4096 train.micro_batch_size=1"
_CHAT = f"{_PACKED} dataset.dataset_kwargs.chat=true dataset.packed_sequence_specs.pad_seq_to_mult="
_SWIFT = "--model Qwen/Qwen3-8B"
_AS_IN_TRAINING = Fix({"eval_context_parallel_size": None}, "evaluation uses the layout of training")
_LAYERS = {
    "gated_delta_net": "model.experimental_attention_variant=gated_delta_net",
    "mamba": "model.hybrid_override_pattern=M*M-",
}


def _evaluated(layers: str, cp: int, assume: str = "") -> Example:
    text = f"{_EVAL} model.context_parallel_size=1 dist.eval_context_parallel_size={cp} {_LAYERS[layers]}"
    return Example("bridge", text, assume)


_UNRECORDED = Known(
    "KNOWN138",
    "slime",
    ">=0.2",
    when="own_routing_replay and rollout_logprobs and not routing_replay and not mismatch_metrics",
    title="Routes are replayed that the old actor's log-probabilities recorded",
    why="Routes are recorded where the old log-probabilities are computed. --use-rollout-logprobs leaves that out, "
    "unless --get-mismatch-metrics wants both; then training takes routes from an empty list.",
    symptom="no routes are recorded: the first training step fails with an IndexError",
    issue="THUDM/slime, actor.py and routing_replay.py",
    outcome="error crash training",
    source=(
        SLIME_ACTOR.says(
            "MegatronTrainRayActor.train_actor",
            "not self.args.use_rollout_logprobs or self.args.get_mismatch_metrics",
            ">=0.2",
        ),
    ),
    launch=Example("slime", f"{_SLIME} --use-routing-replay"),
    good=Example("slime", _SLIME, "slime=0.3.1"),
    instead="--use-rollout-routing-replay, or no --use-rollout-logprobs",
    fixes=(Fix({"rollout_logprobs": False}, "the old log-probabilities are computed"),),
)
ROWS: tuple[Known, ...] = (
    _UNRECORDED,
    Known(
        "KNOWN139",
        "verl",
        ">=0.9",
        when="pad_to_length = true and use_remove_padding and model_name names qwen2vl qwen25vl qwen3vl qwen35 glm4v",
        title="The packed rows of vision models aren't padded to a bucket",
        why="Labels and boundaries are padded to pad_to_length_bucket. A vision model packs its rows itself.",
        symptom="the vision model's packed row is shorter than its boundaries and labels: the first forward pass fails",
        issue="verl-project/verl#7948",
        outcome="error crash first-forward",
        source=(VERL_MCORE_UTIL.says("build_vlm_attn_mask_thd", absent="bucket", versions=">=0.9"),),
        launch=Example("verl", f"{_VLM} {_ACTOR}.megatron.pad_to_length=True"),
        good=Example("verl", f"{_VLM} {_ACTOR}.megatron.pad_to_length=False", "verl=0.9"),
        instead="no pad_to_length",
        fixes=(Fix({"pad_to_length": False}, "rows of any length"),),
    ),
    Known(
        "KNOWN140",
        "te",
        "<2.6",
        when="cudnn >= 9.10 and cudnn < 9.10.2 and attention_backend in fused auto",
        title="cuDNN 9.10.0 and 9.10.1 aren't used for attention",
        why="Their attention has bugs: Transformer Engine 2.6 no longer selects it, older releases do.",
        symptom="this Transformer Engine still selects the attention of cuDNN 9.10.0 and 9.10.1, which later ones "
        "exclude for its bugs",
        issue="NVIDIA/TransformerEngine#1937",
        outcome="warning silent never",
        source=(
            TE_FUSED_ATTN.says("", "9.10.0/9.10.1: known bugs with SDPA F16", ">=2.6"),
            TE_FUSED_ATTN.says("", absent="known bugs with SDPA F16", versions="<2.6", branches=()),
        ),
        launch=Example("mlm", "--attention-backend fused", "cudnn=9.10.1 arch=sm90"),
        instead="another cuDNN",
    ),
    Known(
        "KNOWN141",
        "bridge",
        ">=0.5",
        when="use_decentralized_pg and eval_context_parallel_size <> cp and attention_variant in gated_delta_net gdn",
        title="Gated delta nets are evaluated with the CP size of training",
        why="Evaluation swaps the process groups. Gated delta nets keep the CP size with which they were built.",
        symptom="gated delta nets keep the CP size of training: the first evaluation fails, or its loss is wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge#5624, #5631",
        outcome="warning silent never",
        source=(
            BRIDGE_EVAL_CP.says("install_pg_collection", absent="GatedDeltaNet", versions=">=0.5,<=0.6.2", branches=()),
        ),
        launch=_evaluated("gated_delta_net", 4, "bridge=0.6"),
        good=_evaluated("gated_delta_net", 1, "bridge=0.6"),
        instead="Megatron-Bridge's main branch since 2026-08-21, or the layout of training",
        fixes=(_AS_IN_TRAINING,),
    ),
    Known(
        "KNOWN142",
        "bridge",
        ">=0.5",
        when="use_decentralized_pg and eval_context_parallel_size <> cp and hybrid_pattern has M",
        title="Mamba layers are evaluated with the CP size of training",
        why="Evaluation swaps the groups of modules. A Mamba layer's MambaContextParallel is none, and keeps its own.",
        symptom="Mamba layers exchange over the CP group of training: the validation loss is silently wrong",
        issue="NVIDIA-NeMo/Megatron-Bridge, eval_context_parallel_rebinding.py",
        outcome="warning silent never",
        source=(BRIDGE_EVAL_CP.says("install_pg_collection", absent="MambaContextParallel", versions=">=0.5"),),
        launch=_evaluated("mamba", 4, "bridge=0.6"),
        good=_evaluated("mamba", 1, "bridge=0.6"),
        instead="the layout of training",
        fixes=(_AS_IN_TRAINING,),
    ),
    Known(
        "KNOWN143",
        "bridge",
        ">=0.3,<0.6",
        when="chat and packing = offline and pad_seq_to_mult > 1",
        title="Packed conversations are padded to a multiple",
        why="Conversations are tensors, to which a list of padding is added.",
        symptom="packing the conversations fails with a TypeError (tensor + list), unless the data is already packed",
        issue="NVIDIA-NeMo/Megatron-Bridge#2610, #4056",
        outcome="warning crash init",
        source=(
            BRIDGE_PACKED_SEQUENCE.says(
                "tokenize_dataset",
                "val = val + [pad_id] * (max_length_to_pad - len(val) + 1)",
                ">=0.3,<0.6",
                branches=(),
            ),
        ),
        launch=Example("bridge", f"{_CHAT}4"),
        instead="data packed by 0.6",
    ),
    Known(
        "KNOWN144",
        "ms_swift",
        "<3.11",
        when="cp > 1 and cached_dataset != null",
        title="A cached dataset is used without context parallelism",
        why="Sequences are padded for CP where they are tokenized. The documentation excludes CP; nothing checks it.",
        symptom="sequences of the cached dataset aren't padded for CP: splitting them fails with an invalid shape",
        issue="modelscope/ms-swift#6195, #6561",
        outcome="error crash first-forward",
        source=(
            MS_SWIFT_TEMPLATE_3.says(
                "Template._encode_truncated", "TODO: fix cp_size & cached_dataset", ">=3.9,<3.11", branches=()
            ),
        ),
        launch=Example(
            "ms-swift",
            f"{_SWIFT} --cached_dataset there --context_parallel_size 2",
            "gpus_per_node=8 nodes=1 ms_swift=3.9.3",
        ),
        good=Example(
            "ms-swift",
            f"{_SWIFT} --cached_dataset there --context_parallel_size 2",
            "gpus_per_node=8 nodes=1 ms_swift=3.11",
        ),
        instead="no context parallelism",
        fixes=(Fix({"cp": 1}, "no context parallelism"),),
    ),
    Known(
        "KNOWN145",
        "ms_swift",
        "<4.4.3",
        when="flash_attn >= 4 and thd and attention_backend in flash auto",
        title="FlashAttention 4 gets the length of the longest sequence as a number",
        why="It finds compiled kernels by what that length decides. ms-swift passes a tensor, another one each time.",
        symptom="FlashAttention 4 compiles its backward kernels for every micro-batch: steps take 35 times as long",
        issue="modelscope/ms-swift#9798",
        outcome="warning slow never",
        source=(
            MS_SWIFT_UTILS.says(
                "get_packed_seq_params", absent="isinstance(max_seqlen_q", versions=">=4.4,<4.4.3", branches=()
            ),
        ),
        launch=Example("ms-swift", _SWIFT, "gpus_per_node=8 nodes=1 flash_attn=4.0.0 ms_swift=4.4.0"),
        good=Example("ms-swift", _SWIFT, "gpus_per_node=8 nodes=1 flash_attn=4.0.0 ms_swift=4.4.3"),
        instead="FlashAttention 2 or 3",
    ),
    Known(
        "KNOWN146",
        "verl",
        "<0.8",
        when="loss_agg_mode = token-mean and use_dynamic_bsz and legacy_worker != disable",
        title="token-mean is a mean over the tokens of a mini-batch",
        why="The legacy workers, PPO's default before 0.8, take it of each micro-batch, whatever its tokens.",
        symptom="PPO's legacy workers average token-mean per micro-batch: the gradient depends on how a mini-batch is "
        "split",
        issue="verl-project/verl#5863, #5867",
        outcome="warning silent never",
        source=(
            VERL_MEGATRON_ACTOR.says(
                "MegatronPPOActor.forward_backward_batch",
                absent="batch_num_tokens",
                versions=">=0.7.1,<0.8",
                branches=(),
            ),
        ),
        launch=Example("verl", f"{_VERL}{_ACTOR}.loss_agg_mode=token-mean", "verl=0.7.1"),
        good=Example("verl", f"{_VERL}{_ACTOR}.loss_agg_mode=token-mean", "verl=0.8"),
        instead="trainer.use_legacy_worker_impl=disable",
        fixes=(Fix({"legacy_worker": "disable"}, "the engine averages over the mini-batch"),),
    ),
    _UNRECORDED._replace(
        id="KNOWN137",
        package="miles",
        versions=">=0.1",
        issue="radixark/miles, actor.py and replay_base.py",
        source=(
            MILES_ACTOR.says(
                "MegatronTrainRayActor.train_actor",
                "not self.args.use_rollout_logprobs or self.args.get_mismatch_metrics",
                ">=0.1",
            ),
        ),
        good=_UNRECORDED.good and _UNRECORDED.good._replace(assume="miles=0.1"),
    ),
)

register_rows(ROWS, __name__)
