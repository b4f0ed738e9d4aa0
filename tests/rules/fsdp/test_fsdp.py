"""FSDP rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_FSDP = "--use-megatron-fsdp"
_BRIDGE = "dist.use_megatron_fsdp=true"
_V2 = "ddp.megatron_fsdp_version=2"
_FSDP2 = "--use-torch-fsdp2 --untie-embeddings-and-output-weights --no-gradient-accumulation-fusion"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("FSDP001", "mlm", "", "", "not concerned"),
    ("FSDP001", "mlm", _FSDP, "", "error crash config"),
    ("FSDP001", "mlm", f"{_FSDP} --ckpt-format fsdp_dtensor", "", "fine"),
    ("FSDP001", "mlm", f"{_FSDP} --megatron-fsdp-version 2", "", "error crash config"),
    ("FSDP001", "bridge", _BRIDGE, "", "not concerned"),
    ("FSDP001", "bridge", f"{_BRIDGE} checkpoint.save=x", "", "warning crash config"),
    ("FSDP001", "bridge", f"{_BRIDGE} checkpoint.save=x checkpoint.ckpt_format=torch_dist", "", "error crash config"),
    ("FSDP001", "bridge", f"{_BRIDGE} checkpoint.load=x checkpoint.ckpt_format=torch_dist", "", "error crash config"),
    ("FSDP001", "bridge", f"{_BRIDGE} checkpoint.save=x checkpoint.ckpt_format=fsdp_dtensor", "", "fine"),
    ("FSDP001", "bridge", f"{_BRIDGE} {_V2} checkpoint.save=x checkpoint.ckpt_format=torch_dist", "", "not concerned"),
    ("FSDP001", "verl", "", "fsdp=true ckpt_format=torch_dist checkpoint_save=x", "not concerned"),
    ("FSDP002", "mlm", "", "", "not concerned"),
    ("FSDP002", "mlm", "--ckpt-format fsdp_dtensor", "", "error crash config"),
    ("FSDP002", "mlm", f"{_FSDP} --ckpt-format fsdp_dtensor", "", "fine"),
    ("FSDP002", "bridge", "checkpoint.ckpt_format=fsdp_dtensor", "", "not concerned"),
    ("FSDP002", "bridge", "checkpoint.ckpt_format=fsdp_dtensor checkpoint.save=x", "fsdp=false", "error crash config"),
    ("FSDP002", "verl", "", "ckpt_format=fsdp_dtensor checkpoint_save=x fsdp=false", "not concerned"),
    ("FSDP003", "bridge", "dist.use_tp_pp_dp_mapping=true", "", "not concerned"),
    ("FSDP003", "bridge", f"{_BRIDGE} dist.use_tp_pp_dp_mapping=true", "", "error crash config"),
    ("FSDP003", "bridge", f"{_BRIDGE} {_V2} dist.use_tp_pp_dp_mapping=true", "", "error crash config"),
    ("FSDP003", "bridge", _BRIDGE, "", "fine"),
    ("FSDP003", "mlm", f"{_FSDP} --use-tp-pp-dp-mapping", "", "not concerned"),
    ("FSDP004", "mlm", f"{_FSDP} --tensor-model-parallel-size 2", "", "not concerned"),
    ("FSDP004", "mlm", f"{_FSDP} --megatron-fsdp-version 2 --tensor-model-parallel-size 2", "", "error crash init"),
    ("FSDP004", "mlm", f"{_FSDP} --megatron-fsdp-version 2 --pipeline-model-parallel-size 2", "", "error crash init"),
    ("FSDP004", "mlm", f"{_FSDP} --megatron-fsdp-version 2 --expert-model-parallel-size 2", "", "fine"),
    ("FSDP004", "bridge", f"{_BRIDGE} {_V2}", "tp=1 pp=1 ep=2", "error crash config"),
    ("FSDP004", "bridge", f"{_BRIDGE} {_V2}", "tp=1 pp=1 ep=1 cp=2", "fine"),  # CP021
    ("FSDP004", "bridge", f"{_BRIDGE} {_V2}", "", "needs tp"),
    ("FSDP004", "bridge", _V2, "tp=2 fsdp=false", "not concerned"),
    ("FSDP005", "mlm", "--pipeline-model-parallel-size 2", "", "not concerned"),
    ("FSDP005", "mlm", f"{_FSDP2} --pipeline-model-parallel-size 2", "", "error crash config"),
    ("FSDP005", "mlm", f"{_FSDP2} --expert-model-parallel-size 2", "", "error crash config"),
    ("FSDP005", "mlm", f"{_FSDP2} --tensor-model-parallel-size 2", "", "fine"),
    ("FSDP005", "bridge", "", "torch_fsdp2=true pp=2", "not concerned"),
    ("FSDP006", "mlm", "", "", "not concerned"),
    ("FSDP006", "mlm", _FSDP2, "", "fine"),
    ("FSDP006", "mlm", f"{_FSDP2} --ckpt-format torch_dcp", "", "fine"),
    ("FSDP006", "mlm", f"{_FSDP2} --ckpt-format torch_dist", "", "fine"),
    ("FSDP006", "mlm", f"{_FSDP2} --ckpt-format torch", "", "error crash config"),
    ("FSDP006", "mlm", f"{_FSDP2} --use-distributed-optimizer", "", "error crash config"),
    ("FSDP006", "mlm", "--use-torch-fsdp2 --no-gradient-accumulation-fusion", "", "error crash config"),
    ("FSDP006", "mlm", "--use-torch-fsdp2 --untie-embeddings-and-output-weights", "", "error crash config"),
    ("FSDP006", "bridge", "", "torch_fsdp2=true distributed_optimizer=true", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("FSDP001", "mlm", _FSDP, "", "found: use_megatron_fsdp with ckpt_format torch_dist"),
    ("FSDP004", "bridge", f"{_BRIDGE} {_V2}", "tp=1 pp=2 ep=1", "found: megatron_fsdp_version 2 at tp 1 pp 2 ep 1"),
    ("FSDP004", "bridge", f"{_BRIDGE} {_V2}", "tp=1 pp=2 ep=1", "wanted: tp, pp and ep of 1, or generation 1"),
    ("FSDP005", "mlm", f"{_FSDP2} --expert-model-parallel-size 2", "", "no expert parallelism"),
    ("FSDP005", "mlm", f"{_FSDP2} --pipeline-model-parallel-size 2", "", "no pipeline parallelism"),
    (
        "FSDP006",
        "mlm",
        "--use-torch-fsdp2 --no-gradient-accumulation-fusion --use-distributed-optimizer",
        "",
        "found: use_torch_fsdp2 with use_distributed_optimizer; tied embeddings",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("FSDP001", "mlm", _FSDP, "", ("ckpt_format=fsdp_dtensor",)),
    ("FSDP002", "mlm", "--ckpt-format fsdp_dtensor", "", ("ckpt_format=torch_dist",)),
    ("FSDP003", "bridge", f"{_BRIDGE} dist.use_tp_pp_dp_mapping=true", "", ("dist.use_tp_pp_dp_mapping=false",)),
    (
        "FSDP004",
        "bridge",
        f"{_BRIDGE} {_V2}",
        "tp=2 pp=1 ep=1 cp=1",
        ("ddp.megatron_fsdp_version=1",),
    ),
    ("FSDP005", "mlm", f"{_FSDP2} --pipeline-model-parallel-size 2", "", ("pipeline_model_parallel_size=1",)),
    (
        "FSDP006",
        "mlm",
        "--use-torch-fsdp2",
        "",
        ("no_gradient_accumulation_fusion=true untie_embeddings_and_output_weights=true",),
    ),
]
