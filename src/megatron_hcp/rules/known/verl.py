"""Known bugs in verl with context parallelism."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    MAMBA_MIXER,
    VERL_ENGINE,
    VERL_MCORE_PATCH,
    VERL_MCORE_UTIL,
    VERL_MODEL_FORWARD,
    VERL_QWEN25_VL,
    VERL_REGISTRY,
)

_CP = (
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=True "
    "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000 "
)
_PATH = "actor_rollout_ref.model.path="
_MBRIDGE = "actor_rollout_ref.actor.megatron.use_mbridge="
_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN022",
        "verl",
        ">=0.6,<0.7",
        when="cp > 1",
        title="verl's engine rolls labels across slice edges and scales its loss once",
        why="The engine (fine-tuning, and PPO with use_legacy_worker_impl=disable) rolls labels within each slice, "
        "and divides the loss by the CP size although the schedule no longer multiplies by it.",
        symptom="when the engine trains (not the legacy workers), CP in the mcore backend silently makes the label "
        "roll wrong at slice edges and the loss scale 1/CP",
        issue="verl-project/verl#4250",
        outcome="warning silent never",
        source=(
            VERL_ENGINE.says(
                "MegatronEngineWithLMHead.postprocess_micro_batch_func",
                "/ mpu.get_context_parallel_world_size()",
                ">=0.6,<0.7",
                where="checkout",
            ),
        ),
        launch=Example("verl", _CP),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN023",
        "verl",
        "<0.6.1",
        when="model_name names qwen25vl qwen2vl and cp > 1",
        title="Qwen2.5-VL supports context parallelism in this verl",
        why="verl's own forward pass of the vision model asserts that CP is off: its positions and vision tokens "
        "aren't split.",
        symptom="verl's Qwen2.5-VL doesn't support context parallelism: the first forward pass fails with an assertion",
        issue="verl-project/verl#2100, #3998",
        outcome="error crash first-forward",
        source=(
            VERL_MODEL_FORWARD.says(
                "gptmodel_forward_qwen2_5_vl",
                "qwen2_5_vl's context parallel is not accurate yet",
                ">=0.5,<0.6.1",
                where="checkout",
            ),
        ),
        launch=Example("verl", _CP + _PATH + "Qwen/Qwen2.5-VL-7B-Instruct", "verl=0.5"),
        good=Example("verl", _CP + _PATH + "Qwen/Qwen2.5-VL-7B-Instruct", "verl=0.7"),
        instead="context_parallel_size 1",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN024",
        "verl",
        ">=0.6.1,<0.8",
        when="model_name names qwen25vl qwen2vl and cp > 1 and not use_mbridge",
        title="Qwen2.5-VL uses mbridge for context parallelism",
        why="verl's own vision model asserts that CP is off and refers to mbridge, which splits vision tokens and "
        "positions.",
        symptom="verl's own Qwen2.5-VL doesn't support context parallelism (mbridge's does): building the model fails "
        "with an assertion",
        issue="verl-project/verl#3998",
        outcome="error crash init",
        source=(
            VERL_QWEN25_VL.says(
                "Qwen2_5VLModel.__init__", "please use mbridge for qwen2_5_vl with context parallelism", ">=0.6.1,<0.8"
            ),
        ),
        launch=Example("verl", _CP + _PATH + "Qwen/Qwen2.5-VL-7B-Instruct " + _MBRIDGE + "False", "verl=0.7"),
        good=Example("verl", _CP + _PATH + "Qwen/Qwen2.5-VL-7B-Instruct " + _MBRIDGE + "True", "verl=0.7"),
        instead="use_mbridge True",
        fixes=(Fix({"use_mbridge": True}, "mbridge builds the model"), _WITHOUT_CP),
    ),
    Known(
        "KNOWN025",
        "verl",
        "<0.6.1",
        when="model_name names qwen3vl and cp > 1",
        title="Qwen3-VL supports context parallelism in this verl",
        why="Vision tokens are scattered into the row before it is split for CP, with positions of the whole row; "
        "verl 0.6.1 and the mbridge of that time split them together.",
        symptom="Qwen3-VL doesn't support context parallelism here: vision tokens are scattered into the row before "
        "the split, so each rank gets the wrong ones",
        issue="verl-project/verl#3943, #3998",
        outcome="error crash first-forward",
        source=(VERL_REGISTRY.says("", "QWEN3_MOE_VL", ">=0.6"),),
        launch=Example("verl", _CP + _PATH + "Qwen/Qwen3-VL-30B-A3B-Instruct", "verl=0.5"),
        good=Example("verl", _CP + _PATH + "Qwen/Qwen3-VL-30B-A3B-Instruct", "verl=0.9"),
        instead="context_parallel_size 1",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN026",
        "verl",
        ">=0.7,<0.9",
        when="model_name names qwen3vl qwen35 and cp > 1",
        title="verl reports token counts where Bridge turns per-token loss on",
        why="Megatron-Bridge sets calculate_per_token_loss for these models under CP. verl's loss function returns a "
        "pair without the token count, so gradients aren't divided and the experts' auxiliary losses explode.",
        symptom="Megatron-Bridge turns on per-token loss for this model under CP, and this verl's loss function "
        "returns no token count: grad_norm explodes",
        issue="verl-project/verl#6609, #6836",
        outcome="warning silent never",
        source=(
            VERL_ENGINE.says(
                "MegatronEngineWithLMHead.postprocess_micro_batch_func",
                absent="calculate_per_token_loss and loss_function is not None",
                versions=">=0.7,<0.9",
            ),
        ),
        launch=Example("verl", _CP + _PATH + "Qwen/Qwen3-VL-30B-A3B-Instruct"),
        instead="context_parallel_size 1",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN116",
        "verl",
        "<0.7",
        when="mla and thd and cp > 1 and not use_mbridge",
        title="Latent attention keeps the rotary positions of the whole row under CP",
        why="verl replaces megatron-core's get_query_key_value_tensors for DeepSeek models that it builds itself, and "
        "cuts the rotary embedding to the length of the rank's slice, of which packed rows need all.",
        symptom="the rotary positions are cut to the rank's slice of the row: the first forward pass fails with a "
        "size mismatch",
        issue="verl-project/verl#4611",
        outcome="error crash first-forward",
        source=(
            VERL_MCORE_PATCH.says(
                "apply_patch", "rotary_pos_emb = rotary_pos_emb[0:q_len]", absent="cp_size", versions=">=0.4,<0.7"
            ),
        ),
        launch=Example("verl", _CP + _MBRIDGE + "False " + _PATH + "deepseek-ai/DeepSeek-V3", "verl=0.5"),
        instead="context_parallel_size 1",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN039",
        "verl",
        ">=0.7",
        when="hybrid_pattern has M and thd and mcore >= 0.17",
        title="Mamba layers start anew at each sequence of a packed row",
        why="From 0.17 on, PackedSeqParams derives each token's sequence from total_tokens when it is built, "
        "and Mamba layers take it from there. verl leaves total_tokens out, so there is none. Before 0.17 the layer "
        "derived it itself. Read, not run; NeMo-RL mended the same and names high logprob errors.",
        symptom="Mamba layers aren't told where a packed sequence ends: their state runs on from one sequence of the "
        "row into the next",
        issue="NVIDIA-NeMo/RL#2529, the same fault",
        outcome="warning silent never",
        source=(
            VERL_MCORE_UTIL.says("preprocess_packed_seqs", absent="total_tokens", versions=">=0.7"),
            MAMBA_MIXER.says("MambaMixer", "seq_idx = packed_seq_params.seq_idx", ">=0.17"),
        ),
        launch=Example("verl", _CP, "hybrid_pattern=M*M- mcore=0.18"),
        good=Example("verl", _CP, "hybrid_pattern=M*M- mcore=0.16 verl=0.9"),
        instead="total_tokens in verl's PackedSeqParams",
    ),
)

register_rows(ROWS, __name__)
