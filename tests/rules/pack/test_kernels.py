"""PACK rules on kernels for packed data, by version."""

from __future__ import annotations

from support.launches import ACTOR, CP, PACKED
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

PADDED = f"{PACKED}model.attention_backend=flash dataset.offline_packing_specs.pad_seq_to_mult=4"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK004", "bridge", f"{PACKED}model.context_parallel_size=2", "mcore=0.18", "fine"),
    ("PACK004", "bridge", f"{PACKED}model.context_parallel_size=2", "mcore=0.17 bridge=0.5", "fine"),
    ("PACK004", "bridge", "", "", "needs thd"),
    ("PACK004", "bridge", "", "cp=2 mcore=0.17 bridge=0.6 packing=null", "error crash first-forward"),
    ("PACK004", "bridge-provider", "", "", "not concerned"),
    ("PACK004", "bridge", "", "packed_sequence_size=4096 cp=2", "needs bridge"),
    ("PACK004", "bridge", "", "cp=2 thd=true mcore=0.17 bridge=0.6", "error crash first-forward"),
    ("PACK004", "bridge", "", "cp=2 thd=true mcore=0.18 bridge=0.6", "fine"),
    (
        "PACK005",
        "bridge",
        f"{PACKED}model.attention_backend=flash dataset.offline_packing_specs.pad_seq_to_mult=4",
        "te=2.18",
        "needs flash_attn",
    ),
    (
        "PACK005",
        "bridge",
        "",
        "packed_sequence_size=4096 pad_seq_to_mult=2 attention_backend=flash te=2.19 flash_attn=2.20",
        "error crash first-forward",
    ),
    ("PACK005", "bridge", "", "packed_sequence_size=4096 attention_backend=flash pad_seq_to_mult=0", "fine"),
    (
        "PACK005",
        "bridge",
        "",
        "packed_sequence_size=4096 pad_seq_to_mult=4 attention_backend=flash te=2.16 flash_attn=3.0",
        "needs arch",
    ),
    ("PACK005", "bridge", "", "attention_backend=flash", "not concerned"),
    ("PACK005", "bridge-provider", "", "packed_sequence_size=4096 attention_backend=flash", "not concerned"),
    (
        "PACK005",
        "bridge",
        "",
        "packed_sequence_size=4096 attention_backend=flash pad_seq_to_mult=4 te=2.15",
        "error crash first-forward",
    ),
    (
        "PACK005",
        "bridge",
        "",
        "packed_sequence_size=4096 pad_seq_to_mult=4 attention_backend=flash te=2.20 flash_attn=3.0 arch=null",
        "error crash first-forward",
    ),
    ("PACK005", "bridge", PADDED, "te=2.19 flash_attn=4.0", "fine"),
    ("PACK005", "bridge", PADDED, "te=2.18 flash_attn=4.0", "error crash first-forward"),
    ("PACK005", "bridge", PADDED, "te=2.16 flash_attn=3.0 arch=sm90", "fine"),
    ("PACK005", "bridge", PADDED, "te=2.15 flash_attn=3.0 arch=sm90", "error crash first-forward"),
    ("PACK007", "verl", "", "cp=2 cp_comm_type=all_gather,a2a+p2p te=2.18 packing=sft", "fine"),
    ("PACK007", "bridge-provider", "", "", "needs thd"),
    ("PACK007", "mlm", "", "cp=2 sft=true te=1.7", "error crash first-forward"),
    ("PACK007", "verl", "", "cp=4 cp_comm_type=all_gather,p2p te=2.17 packing=sft", "error crash first-forward"),
    ("PACK007", "verl", "", "cp=6 cp_comm_type=p2p te=1.8 thd=true", "fine"),
    ("PACK007", "mlm", "", "cp=2 sft=true te=1.8", "fine"),
    ("PACK007", "mlm", "", "cp=2 sft=true cp_comm_type=a2a te=2.9", "error crash first-forward"),
    ("PACK007", "mlm", "", "cp=2 sft=true cp_comm_type=a2a te=2.10", "fine"),
    ("PACK007", "mlm", "", "cp=2 sft=true cp_comm_type=all_gather te=2.17", "error crash first-forward"),
    ("PACK007", "mlm", "", "cp=2 sft=true cp_comm_type=all_gather te=2.18", "fine"),
    ("PACK008", "mlm", f"{CP} 2 --sft --position-embedding-type rope", "te=1.11", "error"),
    ("PACK008", "mlm", f"{CP} 2 --sft", "te=1.11", "not concerned"),
    ("PACK008", "mlm", "", "cp=2 sft=true position_embedding_type=rope te=1.12", "fine"),
    ("PACK008", "bridge", "", "rope_fusion=true", "not concerned"),
    ("PACK008", "mlm", "", "sft=true position_embedding_type=rope", "not concerned"),
    ("PACK008", "bridge-provider", "", "mla=true rope_type=rope rope_fusion=true", "error crash config"),
    ("PACK008", "bridge", "", "rope_fusion=true thd=true", "needs cp"),
    ("PACK008", "mlm", "", "cp=2 sft=true position_embedding_type=rope te=1.11", "error crash first-forward"),
    ("PACK010", "verl", f"{ACTOR}context_parallel_size=2 " + f"{ACTOR}use_remove_padding=False", "verl=0.7.1", "error"),
    (
        "PACK010",
        "verl",
        f"{ACTOR}context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=False",
        "verl=0.7.1",
        "fine",
    ),
    ("PACK010", "verl", f"{ACTOR}context_parallel_size=2 {ACTOR}use_remove_padding=False", "verl=0.8", "fine"),
    ("PACK010", "mlm", "", "cp=2 use_remove_padding=false", "not concerned"),
    ("PACK010", "verl", "", "cp=2 use_remove_padding=false verl=0.9", "needs calculate_per_token_loss"),
    (
        "PACK010",
        "verl",
        f"{ACTOR}context_parallel_size=2 {ACTOR}use_remove_padding=False",
        "verl=0.7",
        "error crash first-forward",
    ),
    ("PACK010", "verl", "", "cp=2 use_remove_padding=false calculate_per_token_loss=true verl=0.8", "fine"),
    (
        "PACK010",
        "verl",
        "",
        "cp=2 use_remove_padding=false calculate_per_token_loss=true verl=0.9",
        "error crash first-forward",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("PACK005", "bridge", PADDED, "te=2.16 flash_attn=null", "on Transformer Engine 2.16 |"),
    ("PACK005", "bridge", PADDED, "te=2.16 flash_attn=2.7", "and flash-attention 2.7"),
]


FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK007", "mlm", "", "cp=2 sft=true cp_comm_type=a2a te=2.9", ("cp_comm_type=p2p",)),
]
