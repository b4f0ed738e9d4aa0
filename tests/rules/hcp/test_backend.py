"""HCP rules on versions of Transformer Engine, packed data and FP8."""

from __future__ import annotations

from support.launches import BRIDGE_HCP, HCP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("HCP013", "mlm", HCP, "te=1.9.0", "error silent"),
    ("HCP013", "mlm", HCP, "te=1.11.0", "error crash"),
    ("HCP013", "mlm", HCP, "te=1.12.0", "fine"),
    ("HCP013", "mlm", "", "cp=4 cp_comm_type=a2a+p2p te=1.9.0", "error silent never"),
    ("HCP013", "mlm", "", "cp=2 cp_comm_type=all_gather,a2a+p2p te=1.10.0", "error crash init"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.18.0 thd=true", "error"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.19.0 thd=true", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.18.0 thd=false", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "thd=false", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "te=2.19.0", "fine"),
    ("HCP014", "bridge", BRIDGE_HCP, "thd=true", "needs te"),
    ("HCP015", "bridge", "", "pad_seq_to_mult=2", "not concerned"),
    (
        "HCP015",
        "bridge",
        "",
        "cp=3 cp_comm_type=a2a+p2p packed_sequence_size=8 pad_seq_to_mult=8 attention_backend=flash te=2.18 "
        "flash_attn=3.0.0",
        "fine",
    ),
    ("HCP015", "bridge", "", "packed_sequence_size=16384 pad_seq_to_mult=1", "not concerned"),
    (
        "HCP015",
        "bridge",
        "model.cp_comm_type=${oc.env:X}",
        "packed_sequence_size=4 pad_seq_to_mult=8",
        "needs cp_comm_type",
    ),
    ("HCP015", "bridge-provider", "", "packed_sequence_size=8192 pad_seq_to_mult=8", "not concerned"),
    (
        "HCP015",
        "bridge",
        "",
        "cp=4 cp_comm_type=a2a+p2p packed_sequence_size=1 pad_seq_to_mult=8 attention_backend=unfused",
        "fine",
    ),
    (
        "HCP015",
        "bridge",
        "",
        "cp=4 cp_comm_type=a2a+p2p packed_sequence_size=2 pad_seq_to_mult=8 attention_backend=flash flash_attn=2.20",
        "fine",
    ),
    (
        "HCP015",
        "bridge",
        "",
        "cp=4 cp_comm_type=a2a+p2p packed_sequence_size=3 pad_seq_to_mult=2 attention_backend=flash te=2.20.2 "
        "flash_attn=3.0.0",
        "warning silent never",
    ),
    (
        "HCP015",
        "bridge",
        "",
        "cp=4 cp_comm_type=a2a+p2p packed_sequence_size=8192 pad_seq_to_mult=8 attention_backend=flash te=2.19 "
        "flash_attn=3.0.0",
        "warning silent never",
    ),
    ("HCP024", "bridge", "", "fp8=hybrid", "not concerned"),
    ("HCP024", "bridge-provider", "", "fp8_dot_product_attention=true", "not concerned"),
    (
        "HCP024",
        "bridge-provider",
        "",
        "cp=4 cp_comm_type=a2a+p2p fp8=hybrid fp8_recipe=tensorwise fp8_multi_head_attention=true",
        "info note never",
    ),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("HCP013", "mlm", "", "cp=4 cp_comm_type=a2a+p2p te=1.9.0", "cp_comm_type is"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "HCP013",
        "mlm",
        "",
        "cp=4 cp_comm_type=a2a+p2p te=1.11.0",
        (
            "cp_comm_type=p2p",
            "cp_comm_type=a2a",
        ),
    ),
]
