"""Known bugs and limits of Transformer Engine's attention, by GPU, cuDNN and FlashAttention."""

from __future__ import annotations

from megatron_hcp.rules.cp.view import FUSED
from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import TE_ATTENTION_BEFORE_2_3, TE_ATTENTION_UTILS, TE_BACKENDS, TE_CONTEXT_PARALLEL

_MLA = "--multi-latent-attention --no-rope-fusion"
_VERL = "actor_rollout_ref.actor.megatron."
_BLACKWELL_MLA = Known(
    "KNOWN058",
    "te",
    ">=2.5,<2.17",
    when="mla and qk_head_dim >= 128 and arch in sm100 sm103 and cp > 1 and cudnn < 9.11",
    title="cuDNN is new enough for MLA under CP on Blackwell",
    why="Query and key heads of 192 and value heads of 128 channels need cuDNN 9.11 on Blackwell. FlashAttention 2 "
    "gets wider keys than values only from 2.17 on, and unfused attention has no context parallelism.",
    symptom="this cuDNN can't train multi-latent attention on Blackwell: the first forward pass fails, no dot product "
    "attention backend is available",
    issue="NVIDIA/TransformerEngine#2285",
    outcome="error crash first-forward",
    source=(TE_ATTENTION_UTILS.says("get_attention_backend", "as it does not support MLA.", ">=2.5,<2.17"),),
    launch=Example("mlm", f"--context-parallel-size 2 {_MLA}", "arch=sm100 cudnn=9.10.2"),
    instead="cuDNN 9.11",
)

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN053",
        "te",
        ">=2.0,<2.2",
        when="thd and cp_comm_type has p2p and cp > 1 and attention_backend != flash",
        title="The ring's steps wait for each other's softmax statistics",
        why="For packed rows cuDNN 9.6 and newer return the statistics transposed. The copy that transposes them back "
        "runs on the main stream while the kernel that writes them runs on another.",
        symptom="cuDNN's softmax statistics of packed rows are copied before they are written: the output of "
        "attention is silently wrong now and then",
        issue="NVIDIA/TransformerEngine#1624",
        outcome="warning silent never",
        source=(
            TE_ATTENTION_BEFORE_2_3.says(
                "AttnFuncWithCPAndKVP2P.forward",
                "softmax_lse_per_step[i - 1].transpose(0, 1).contiguous()",
                ">=2.0,<2.2",
            ),
        ),
        launch=Example(
            "verl",
            f"{_VERL}context_parallel_size=2 +{_VERL}override_transformer_config.attention_backend=fused "
            "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1000 "
            "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        ),
        instead="attention_backend flash",
        fixes=(Fix({"attention_backend": "flash"}, "FlashAttention"),),
    ),
    Known(
        "KNOWN054",
        "te",
        ">=2.15,<2.17",
        when="fp8_recipe = mxfp8 and fp8_dot_product_attention and cudnn >= 9.23 and cudnn < 9.23.2",
        title="MXFP8 attention runs on a cuDNN without its known bugs",
        why="cuDNN 9.23.0 and 9.23.1 return infinities and NaN. Transformer Engine avoids them from 2.17 on.",
        symptom="MXFP8 attention returns infinities and NaN with this cuDNN",
        issue="NVIDIA/TransformerEngine#3173",
        outcome="error silent training",
        source=(TE_ATTENTION_UTILS.says("get_attention_backend", absent="(9, 23, 1)", versions=">=2.15,<2.17"),),
        launch=Example(
            "bridge",
            "model.fp8=e4m3 model.fp8_recipe=mxfp8 model.fp8_dot_product_attention=true model.context_parallel_size=2",
            "cudnn=9.23.1",
        ),
        instead="cuDNN 9.23.2, or attention in 16 bits",
        fixes=(Fix({"fp8_dot_product_attention": False}, "attention in 16 bits"),),
    ),
    Known(
        "KNOWN055",
        "te",
        ">=2.1",
        when="head_dim > 192 and arch in sm86 sm89 sm103 and attention_backend = flash and cp > 1",
        title="FlashAttention 2 gets heads above 192 channels only on listed GPUs",
        why="It enables them on compute capabilities 8.0, 9.0, 10.0 and 12.0, and not on 10.3 (B300, GB300).",
        symptom="Transformer Engine disables FlashAttention 2 for such wide heads on this GPU: no dot product "
        "attention backend is available",
        issue="NVIDIA/TransformerEngine#2836",
        outcome="error crash first-forward",
        source=(TE_ATTENTION_UTILS.says("get_attention_backend", "(>192 requires sm80/90/100+)", ">=2.4"),),
        launch=Example(
            "mlm", "--context-parallel-size 2 --attention-backend flash --kv-channels 256", "arch=sm103 te=2.4"
        ),
        good=Example(
            "mlm", "--context-parallel-size 2 --attention-backend flash --kv-channels 128", "arch=sm103 te=2.4"
        ),
        instead="cuDNN attention",
        fixes=(FUSED,),
    ),
    Known(
        "KNOWN056",
        "te",
        ">=2.8,<2.14",
        when="flash_attn >= 3 and flash_attn < 4 and attention_backend != fused and cp > 1",
        title="The ring passes FlashAttention 3 the window that it takes",
        why="FlashAttention 3 split window_size into two arguments in autumn 2025. Transformer Engine follows in 2.14; "
        "builds before that change fail there instead.",
        symptom="a FlashAttention 3 built since autumn 2025 fails in the first forward pass: unknown keyword "
        "argument window_size",
        issue="NVIDIA/TransformerEngine#2704, #2527",
        outcome="warning crash first-forward",
        source=(
            TE_CONTEXT_PARALLEL.says(
                "cp_p2p_fwd_flash_attn", "if use_flash_attn_3 or (fa_utils.v2_3_plus", ">=2.8,<2.14"
            ),
        ),
        launch=Example("mlm", "--context-parallel-size 2 --attention-backend flash", "flash_attn=3.0 arch=sm90"),
        instead="an older FlashAttention 3, or cuDNN attention",
        fixes=(FUSED,),
    ),
    Known(
        "KNOWN057",
        "te",
        ">=2.18",
        when="flash_attention_version names 4 and attention_backend = flash and arch in sm100 sm103",
        title="FlashAttention 4 understands Transformer Engine's causal windows",
        why="Transformer Engine writes an open side of the window as -1, FlashAttention 4 as None. Until its change "
        "#2490 it ignored such a pair; since then it masks every key.",
        symptom="a FlashAttention 4 that includes its change #2490 returns only zeros for causal attention here, "
        "silently; under context parallelism NaN",
        issue="NVIDIA/TransformerEngine#3528",
        outcome="warning silent never",
        source=(TE_BACKENDS.says("FlashAttention.forward", '"window_size": window_size', ">=2.18"),),
        launch=Example("mlm", "--attention-backend flash --flash-attention-version 4", "arch=sm100 te=2.19"),
        good=Example("mlm", "--attention-backend fused", "arch=sm100 te=2.19"),
        instead="cuDNN attention, or an older FlashAttention 4",
    ),
    _BLACKWELL_MLA,
    _BLACKWELL_MLA._replace(
        id="KNOWN059",
        versions="<2.11",
        when=_BLACKWELL_MLA.when.replace("cp > 1", "cp = 1 and thd"),
        title="cuDNN is new enough for packed multi-latent attention on Blackwell",
        why="Query and key heads of 192 and value heads of 128 channels need cuDNN 9.11 on Blackwell. FlashAttention 2 "
        "gets wider keys than values only from 2.17 on, and unfused attention no packed rows before 2.11.",
        source=(
            TE_ATTENTION_UTILS.says(
                "get_attention_backend", "Disabling UnfusedDotProductAttention for qkv_format = thd", ">=2.4,<2.11"
            ),
        ),
        launch=Example("mlm", f"{_MLA} --sft --no-create-attention-mask-in-dataloader", "arch=sm100 cudnn=9.10.2"),
    ),
)

register_rows(ROWS, __name__)
