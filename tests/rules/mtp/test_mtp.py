"""MTP rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_MTP = "--mtp-num-layers 1"
_BRIDGE = "model.mtp_num_layers=1 "
_PACKED = f"{_BRIDGE}dataset.packed_sequence_specs.packed_sequence_size=4096"
_TUNED = f"{_BRIDGE}dataset._target_=megatron.bridge.training.config.FinetuningDatasetConfig"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MTP001", "mlm", "", "", "not concerned"),
    ("MTP001", "mlm", _MTP, "", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type yarn", "", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type rope", "", "fine"),
    ("MTP001", "mlm", f"{_MTP} --position-embedding-type none", "", "fine"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "mcore=0.16.1", "fine"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "mcore=0.17.0", "error crash config"),
    ("MTP001", "mlm", f"{_MTP} --use-rotary-position-embeddings", "", "needs mcore"),
    ("MTP001", "bridge", "model.mtp_num_layers=1 model.position_embedding_type=yarn", "", "not concerned"),
    ("MTP002", "bridge", _PACKED, "", "warning silent never"),
    ("MTP002", "bridge", _TUNED, "", "warning silent never"),
    ("MTP002", "bridge", _BRIDGE, "finetune=false", "not concerned"),  # pre-training counts every token
    ("MTP002", "bridge", _BRIDGE, "", "needs finetune"),
    ("MTP002", "bridge", f"{_PACKED} model.mtp_num_layers=null", "", "not concerned"),
    ("MTP002", "bridge", f"{_PACKED} model.overlap_moe_expert_parallel_comm=true", "", "fine"),
    (
        "MTP002",
        "bridge",
        f"{_PACKED} model.overlap_moe_expert_parallel_comm=???",
        "",
        "needs overlap_moe_expert_parallel_comm",
    ),
    ("MTP002", "bridge", f"{_PACKED} model.vision_config.depth=2", "", "not concerned"),  # vlm_step passes the mask
    ("MTP002", "bridge", _PACKED, "model_name=Qwen35VLMoEModelProvider", "not concerned"),  # so does qwen3_vl_step
    ("MTP002", "mlm", f"{_MTP} --sft", "", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("MTP001", "mlm", _MTP, "", "found: 1 prediction layers with position_embedding_type learned_absolute"),
    ("MTP002", "bridge", _PACKED, "", "found: fine-tuning with 1 prediction layers in Bridge's gpt_step"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("MTP001", "mlm", _MTP, "", ("position_embedding_type=rope",)),
    ("MTP002", "bridge", _PACKED, "", ("model.mtp_num_layers=null",)),
]
