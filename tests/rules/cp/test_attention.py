"""CP009 to CP015: kinds of attention, by communication type and Transformer Engine version."""

from __future__ import annotations

from support.launches import CP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

WINDOW = "model.context_parallel_size=2 model.num_layers=2 model.window_size=[8,0]"

FP8_PACKED = "cp=2 fp8=hybrid fp8_recipe=delayed fp8_multi_head_attention=true thd=true "
FP8_CUSTOM = (
    "model.context_parallel_size=2 model.fp8=hybrid model.fp8_recipe=custom model.fp8_multi_head_attention=true"
)

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("CP009", "mlm", "", "cp=2 window_size=1024,0 window_attn_skip_freq=1", "fine"),
    ("CP009", "bridge-provider", "", "window_size=-1,0", "not concerned"),
    ("CP009", "mlm", "", "cp=2 window_size=1024,0 window_attn_skip_freq=pattern", "needs window_attn_skip_freq"),
    ("CP009", "mlm", "", "cp=2 window_size=1024,0 window_attn_skip_freq=([0]*4)", "fine"),
    ("CP009", "bridge", "", "cp=8 window_size=1024,0 window_attn_skip_freq=2 cp_comm_type=all_gather,p2p", "fine"),
    ("CP009", "bridge", "", "window_size=-1,-1", "not concerned"),
    ("CP009", "verl", "", "", "not concerned"),
    ("CP009", "mlm", "", "cp=2", "not concerned"),
    *(
        ("CP009", "mlm", "", f"cp=2 window_size=1024,0 attention_variant={variant}", said)
        for variant, said in (
            ("dsa", "not concerned"),
            ("dsv4_hybrid", "not concerned"),
            ("gated_delta_net", "error crash first-forward"),
        )
    ),
    ("CP009", "bridge", "", "window_size=1024,0", "needs cp"),
    ("CP009", "bridge", f"{WINDOW} model.cp_comm_type=p2p model.window_attn_skip_freq=[0,0]", "", "fine"),
    (
        "CP009",
        "bridge",
        f"{WINDOW} model.cp_comm_type=p2p model.window_attn_skip_freq=[0,1]",
        "",
        "error crash first-forward",
    ),
    ("CP009", "bridge", f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=[1,0]", "", "fine"),
    (
        "CP009",
        "bridge",
        f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=[0,1]",
        "",
        "error crash first-forward",
    ),
    ("CP009", "bridge", f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=[1]", "", "fine"),
    (
        "CP009",
        "bridge",
        f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=null",
        "",
        "error crash first-forward",
    ),
    (
        "CP009",
        "bridge",
        f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=[x,y]",
        "",
        "needs window_attn_skip_freq",
    ),
    (
        "CP009",
        "bridge",
        f"{WINDOW} model.cp_comm_type=[a2a,p2p] model.window_attn_skip_freq=[1,y]",
        "",
        "needs window_attn_skip_freq",
    ),
    ("CP010", "mlm", "", "cp=2", "not concerned"),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable te=2.14 thd=true", "needs cudnn"),
    (
        "CP010",
        "verl",
        "",
        "cp=2 softmax_type=learnable deterministic=true cp_comm_type=a2a+p2p te=2.14",
        "error crash first-forward",
    ),
    (
        "CP010",
        "bridge-provider",
        "",
        "cp=2 softmax_type=learnable cp_comm_type=all_gather,a2a+p2p",
        "error crash first-forward",
    ),
    ("CP010", "verl", "", "cp=2 cp_comm_type=a2a softmax_type=learnable te=2.8 deterministic=true", "needs arch"),
    ("CP010", "mlm", "", "softmax_type=learnable", "not concerned"),
    ("CP010", "bridge-provider", "", "softmax_type=null", "not concerned"),
    ("CP010", "bridge", "", "softmax_type=learnable", "needs cp"),
    ("CP010", "verl", "", "cp=2 cp_comm_type=a2a softmax_type=learnable te=2.7", "error crash first-forward"),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable te=2.10 thd=true", "error crash first-forward"),
    (
        "CP010",
        "bridge-provider",
        "",
        "cp=2 softmax_type=learnable attention_backend=flash cp_comm_type=a2a",
        "error crash first-forward",
    ),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable te=2.11 deterministic=true", "needs arch"),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.12 arch=sm90",
        "error crash first-forward",
    ),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.11 arch=sm90", "fine"),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.9 arch=sm100",
        "error crash first-forward",
    ),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.8 arch=sm100", "fine"),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.8 arch=sm80",
        "error crash first-forward",
    ),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.8 arch=sm86",
        "error crash first-forward",
    ),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable deterministic=true te=2.8 arch=sm89",
        "error crash first-forward",
    ),
    ("CP010", "mlm", "", "cp=2 cp_comm_type=a2a softmax_type=learnable thd=true te=2.12 cudnn=9.18", "fine"),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable thd=true te=2.11 cudnn=9.18",
        "error crash first-forward",
    ),
    (
        "CP010",
        "mlm",
        "",
        "cp=2 cp_comm_type=a2a softmax_type=learnable thd=true te=2.12 cudnn=9.17",
        "error crash first-forward",
    ),
    ("CP011", "mlm", "", "cp=2", "not concerned"),
    ("CP011", "bridge", "", "cp=2 attention_bias=true cp_comm_type=p2p,a2a", "error crash first-forward"),
    ("CP011", "mlm", "", "attention_bias=true", "not concerned"),
    ("CP011", "bridge", "", "attention_bias=true", "needs cp"),
    ("CP011", "mlm", "", "cp=2 attention_bias=true thd=true", "error crash first-forward"),
    ("CP011", "mlm", "", "cp=2 attention_bias=true cp_comm_type=all_gather", "error crash first-forward"),
    ("CP014", "bridge-provider", FP8_CUSTOM, "te=2.16", "error"),
    ("CP014", "bridge-provider", FP8_CUSTOM, "te=2.15", "fine"),
    ("CP014", "verl", "", FP8_PACKED + "te=2.20.2", "fine"),
    ("CP014", "verl", "", FP8_PACKED + "te=2.20.0.dev0", "needs te"),  # August's still refuses it
    ("CP014", "mlm", "", "cp=2 fp8=hybrid", "not concerned"),
    (
        "CP014",
        "verl",
        "",
        "cp=2 fp8=hybrid fp8_recipe=delayed fp8_multi_head_attention=true te=2.15 thd=true",
        "error crash first-forward",
    ),
    ("CP014", "verl", "", "cp=2 fp8=hybrid fp8_recipe=delayed fp8_multi_head_attention=true te=2.14 thd=true", "fine"),
    ("CP014", "bridge", "", "fp8_multi_head_attention=true", "needs fp8"),
    ("CP014", "bridge-provider", "", "fp8=hybrid fp8_multi_head_attention=true", "needs cp"),
    ("CP014", "verl", "", "fp8_multi_head_attention=true", "not concerned"),
    ("CP014", "mlm", "", "cp=2 fp8=hybrid fp8_multi_head_attention=true arch=sm80", "error crash first-forward"),
    (
        "CP014",
        "verl",
        "",
        "cp=2 fp8=hybrid fp8_recipe=custom fp8_multi_head_attention=true te=2.15 arch=sm86",
        "error crash first-forward",
    ),
    (
        "CP014",
        "bridge-provider",
        "",
        "cp=2 fp8=hybrid fp8_recipe=custom fp8_multi_head_attention=true te=2.15 arch=sm89",
        "error crash first-forward",
    ),
    ("CP014", "mlm", "", "cp=2 fp8=hybrid fp8_multi_head_attention=true te=2.20 thd=true", "fine"),
    (
        "CP014",
        "bridge",
        "",
        "cp=2 fp8=hybrid fp8_dot_product_attention=true attention_backend=unfused",
        "error crash first-forward",
    ),
    (
        "CP014",
        "mlm",
        f"{CP} 2 --fp8-format hybrid --attention-backend fused --seq-length 4096 --micro-batch-size 1",
        "te=2.18 thd=true fp8_dot_product_attention=true",
        "error crash first-forward",
    ),
    (
        "CP014",
        "mlm",
        "",
        "cp=2 fp8=hybrid fp8_dot_product_attention=true thd=true te=2.18",
        "error crash first-forward",
    ),
    ("CP014", "mlm", "", "cp=2 fp8=hybrid fp8_dot_product_attention=true thd=true te=2.19", "fine"),
    ("CP015", "mlm", f"{CP} 2 --multi-latent-attention", "", "needs te"),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a --sft",
        "te=2.10 mcore=0.18",
        "not concerned",
    ),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a "
        "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 192",
        "te=2.4",
        "not concerned",
    ),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a --sft",
        "te=2.10 mcore=0.17 cp_comm_type=p2p,a2a",
        "error crash first-forward",
    ),
    (
        "CP015",
        "mlm",
        f"{CP} 2 --multi-latent-attention --cp-comm-type a2a --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
        "--v-head-dim 192",
        "te=2.15 v_head_dim=1",
        "fine",
    ),
    ("CP015", "mlm", "", "cp=2", "not concerned"),
    ("CP015", "mlm", "", "cp=2 mla=true te=2.5 fp8=null", "fine"),
    ("CP015", "mlm", f"{CP} 2 --multi-latent-attention", "te=2.4", "error crash first-forward"),
    ("CP015", "verl", "", "cp=2 mla=true thd=true attention_variant=null", "not concerned"),
    ("CP015", "mlm", "", "mla=true", "not concerned"),
    ("CP015", "bridge", "", "mla=true", "needs attention_variant"),
    ("CP015", "bridge", "", "mla=true attention_variant=gdn", "needs cp"),
    ("CP015", "mlm", "", "cp=2 mla=true te=2.5 fp8_dot_product_attention=true", "fine"),
    ("CP015", "mlm", "", "cp=2 mla=true fp8=hybrid fp8_dot_product_attention=true te=2.5", "error crash first-forward"),
    ("CP015", "mlm", "", "cp=2 mla=true fp8=hybrid fp8_multi_head_attention=true te=2.14", "error crash first-forward"),
    ("CP015", "mlm", "", "cp=2 mla=true fp8=hybrid fp8_multi_head_attention=true te=2.15", "fine"),
    ("CP015", "mlm", "", "cp=2 mla=true fp8=hybrid te=2.5", "fine"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("CP009", "mlm", "", "cp=2 window_size=128,0", "p2p (default)"),
    ("CP009", "mlm", "", "cp=2 window_size=1024,0 cp_comm_type=p2p", "cp_comm_type p2p |"),
    ("CP009", "mlm", "", "cp=2 window_size=128,0 cp_comm_type=null", "p2p (default)"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "CP010",
        "mlm",
        "",
        "cp=2 softmax_type=learnable attention_backend=flash heads=8 te=2.14",
        ("cp_comm_type=a2a attention_backend=fused",),
    ),
    ("CP010", "mlm", "", "cp=2 softmax_type=learnable heads=8 te=2.14", ("cp_comm_type=a2a",)),
]
