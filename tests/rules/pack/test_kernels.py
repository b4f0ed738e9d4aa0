"""PACK rules on kernels for packed data, by version."""

from __future__ import annotations

from support.launches import ACTOR, CP, OVERRIDE, PACKED
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

BRIDGE_CP = f"{PACKED}model.context_parallel_size=2"
FLASH = f"{PACKED}model.attention_backend=flash dataset.offline_packing_specs.pad_seq_to_mult="
SFT = f"{CP} 2 --sft --num-layers 2 --num-attention-heads 8 --cp-comm-type"
CLEAN_SFT = f"{SFT} a2a --calculate-per-token-loss --no-create-attention-mask-in-dataloader"
ROPE = "--position-embedding-type rope"
PADDED = f"{ACTOR}context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False"
ENGINE_PADDED = f"{ACTOR}context_parallel_size=2 {ACTOR}use_remove_padding=False"
PER_TOKEN = f"{OVERRIDE}calculate_per_token_loss=True"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK004", "bridge", BRIDGE_CP, "mcore=0.18", "fine"),
    ("PACK004", "bridge", BRIDGE_CP, "mcore=0.17 bridge=0.5", "fine"),
    ("PACK004", "bridge", BRIDGE_CP, "mcore=0.17 bridge=0.6", "error crash first-forward"),
    ("PACK004", "bridge", BRIDGE_CP, "bridge=0.5", "fine"),
    ("PACK004", "bridge", BRIDGE_CP, "bridge=0.6", "needs mcore"),
    ("PACK004", "bridge", BRIDGE_CP, "mcore=0.17", "needs bridge"),
    ("PACK004", "bridge", "", "thd=false cp=2 mcore=0.17 bridge=0.6", "not concerned"),
    ("PACK004", "bridge", "", "cp=2 mcore=0.17 bridge=0.6", "needs thd"),
    ("PACK004", "mlm", f"{CP} 2 --sft", "mcore=0.17 bridge=0.6", "not concerned"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18", "needs flash_attn"),
    ("PACK005", "bridge", f"{FLASH}1", "te=2.14", "fine"),
    ("PACK005", "bridge", f"{FLASH}null", "te=2.14", "fine"),  # the same to Bridge
    ("PACK005", "bridge", f"{FLASH}2", "te=2.14", "error crash first-forward"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.15 flash_attn=3.0 arch=sm90", "error"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.16 flash_attn=3.0 arch=sm90", "fine"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18 flash_attn=3.0 arch=sm100", "error"),  # runs on Hopper alone
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18 flash_attn=2.8 arch=sm90", "error"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.19 flash_attn=2.8 arch=sm100", "error"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18 flash_attn=4.0 arch=sm100", "error"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.19 flash_attn=4.0 arch=sm100", "fine"),
    ("PACK005", "bridge", "model.attention_backend=flash", "packing=none pad_seq_to_mult=4 te=2.14", "not concerned"),
    ("PACK005", "bridge-provider", f"{FLASH}4", "packing=offline te=2.14", "not concerned"),  # it loads no data
    ("PACK007", "mlm", f"{CP} 2", "te=1.7", "not concerned"),
    ("PACK007", "mlm", f"{SFT} p2p", "te=1.7", "error crash first-forward"),
    ("PACK007", "mlm", f"{SFT} p2p", "te=1.8", "fine"),
    ("PACK007", "mlm", f"{SFT} a2a", "te=2.9", "error"),
    ("PACK007", "mlm", f"{SFT} a2a", "te=2.10", "fine"),
    ("PACK007", "mlm", f"{SFT} all_gather", "te=2.17", "error"),
    ("PACK007", "mlm", f"{SFT} all_gather", "te=2.18", "fine"),
    ("PACK007", "mlm", f"{SFT} p2p a2a", "te=2.9", "error"),
    ("PACK007", "mlm", f"{SFT} a2a+p2p", "te=2.14", "fine"),  # HCP014 says it
    ("PACK008", "mlm", f"{CP} 2 --sft {ROPE}", "te=1.11", "error crash first-forward"),
    ("PACK008", "mlm", f"{CP} 2 --sft {ROPE}", "te=1.12", "fine"),
    ("PACK008", "mlm", f"{CP} 2 --sft", "te=1.11", "not concerned"),
    ("PACK008", "mlm", f"{CP} 2 {ROPE}", "te=1.11", "not concerned"),
    ("PACK008", "mlm", f"{CP} 1 --sft {ROPE}", "te=1.11", "not concerned"),
    ("PACK008", "mlm", f"--multi-latent-attention --rope-type rope {ROPE}", "", "error crash config"),
    ("PACK008", "mlm", f"--multi-latent-attention --rope-type yarn {ROPE}", "", "fine"),
    ("PACK008", "mlm", f"--hybrid-layer-pattern M+M+ --rope-type rope {ROPE}", "", "error crash config"),
    ("PACK008", "mlm", f"--hybrid-layer-pattern M*M* --rope-type rope {ROPE}", "", "not concerned"),
    ("PACK008", "bridge", "", "rope_fusion=true thd=true te=1.11", "needs cp"),
    ("PACK008", "bridge", "", "rope_fusion=true thd=true te=1.12", "needs cp"),  # without CP it does not apply
    ("PACK010", "verl", ENGINE_PADDED, "verl=0.7.1", "error crash first-forward"),
    ("PACK010", "verl", ENGINE_PADDED, "verl=0.8.0", "fine"),
    ("PACK010", "verl", PADDED, "verl=0.7.1", "fine"),
    ("PACK010", "verl", f"{PADDED} {PER_TOKEN}", "verl=0.8.0", "fine"),
    ("PACK010", "verl", f"{PADDED} {PER_TOKEN}", "verl=0.9.0", "error crash first-forward"),
    ("PACK010", "verl", PADDED, "verl=0.9.0", "needs calculate_per_token_loss"),  # a provider may switch it on
    ("PACK010", "verl", f"{PADDED} {PER_TOKEN.replace('True', 'False')}", "verl=0.9.0", "fine"),
    ("PACK010", "bridge", "", "use_remove_padding=false calculate_per_token_loss=true cp=2 verl=0.9", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what is said
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18 flash_attn=null", "on Transformer Engine 2.18 | attention_backend"),
    ("PACK005", "bridge", f"{FLASH}4", "te=2.18 flash_attn=2.8", "Engine 2.18 and flash-attention 2.8 | attention_"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK007", "mlm", CLEAN_SFT, "te=2.9", ("cp_comm_type=p2p",)),
    ("PACK007", "mlm", CLEAN_SFT.replace("a2a", "p2p"), "te=1.7", ()),  # nothing else takes packed data either
]
