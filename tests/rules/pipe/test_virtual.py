"""PIPE rules about virtual stages and layouts, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_PP = "--pipeline-model-parallel-size"
_FIRST, _LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_PER_STAGE, _PER_RANK = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
_LAYOUT = "--pipeline-model-parallel-layout"
_LISTS = "model.pipeline_model_parallel_layout=[[embedding,decoder],[decoder,loss]]"

VERDICTS: list[Row] = [
    ("PIPE003", "mlm", "--num-layers 8 --num-layers-per-virtual-pipeline-stage 3", "", "error"),
    ("PIPE004", "mlm", "--num-layers 8 --pipeline-model-parallel-layout 'Etttt|ttttL'", "", "error"),
    # rule, dialect, launch, assumed, verdict
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2", "", "not concerned"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PER_RANK} 2", "", "not concerned"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_PER_RANK} 2", "", "fine"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_PER_RANK} 3", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_PER_STAGE} 2", "", "fine"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_PER_STAGE} 3", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 7 {_PP} 2 {_PER_STAGE} 2 --account-for-loss-in-pipeline-split", "", "fine"),
    ("PIPE003", "mlm", f"--num-layers 7 {_PP} 2 {_PER_STAGE} 2", "", "fine"),  # PIPE001
    # 2 + 3 x 4 + 2 layers, in two virtual stages each; then 1 in the first.
    ("PIPE003", "mlm", f"--num-layers 16 {_PP} 5 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 2", "", "fine"),
    ("PIPE003", "mlm", f"--num-layers 15 {_PP} 5 {_PER_RANK} 2 {_FIRST} 1 {_LAST} 2", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 15 {_PP} 5 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 1", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 13 {_PP} 5 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 2", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 7 {_PP} 3 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 2", "", "error crash init"),
    ("PIPE003", "mlm", f"--num-layers 7 {_PP} 3 {_PER_STAGE} 3 {_FIRST} 2 {_LAST} 2", "", "needs vpp"),
    ("PIPE003", "mlm", f"--num-layers 14 {_PP} 5 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 2", "", "fine"),  # PIPE002
    ("PIPE003", "mlm", f"--num-layers 4 {_PP} 2 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 2", "", "fine"),
    ("PIPE003", "bridge", "model.virtual_pipeline_model_parallel_size=3", "pp=2 num_layers=8", "warning crash init"),
    ("PIPE003", "bridge", "model.virtual_pipeline_model_parallel_size=3", "", "not concerned"),
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_LAYOUT} Et|tt|tt|tttL", "vpp=2", "not concerned"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PP} 2", "", "not concerned"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_RANK} 2", "", "error crash config"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_RANK} 1", "", "not concerned"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_STAGE} 2", "", "error crash config"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_STAGE} 8", "", "not concerned"),
    ("PIPE004", "mlm", f"--num-layers 8 {_PP} 2 {_PER_RANK} 2", "", "fine"),
    (
        "PIPE004",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_PER_RANK} 2 --no-overlap-p2p-communication",
        "",
        "error crash config",
    ),
    ("PIPE004", "mlm", f"--num-layers 12 {_PP} 3 {_PER_RANK} 2 --no-overlap-p2p-communication", "", "fine"),
    ("PIPE004", "mlm", "--hybrid-layer-pattern M*|M*", "", "error crash config"),
    ("PIPE004", "mlm", "--hybrid-layer-pattern M*|M* --pipeline-model-parallel-size 2", "", "not concerned"),
    ("PIPE004", "bridge", "model.virtual_pipeline_model_parallel_size=2", "pp=1", "error crash init"),
    # HyperCommGrid asks for no virtual stages: without a pipeline the model is one chunk, but a layout wants its own.
    ("PIPE004", "bridge", "model.virtual_pipeline_model_parallel_size=2", "pp=1 use_decentralized_pg=true", "fine"),
    (
        "PIPE004",
        "bridge",
        "model.virtual_pipeline_model_parallel_size=2 model.pipeline_model_parallel_layout='Etttt|ttttL'",
        "pp=1 use_decentralized_pg=true",
        "error crash init",
    ),
    ("PIPE004", "bridge", "model.virtual_pipeline_model_parallel_size=2", "", "needs pp"),
    ("PIPE006", "mlm", f"{_PP} 2", "", "not concerned"),
    ("PIPE006", "mlm", f"{_PP} 2 {_LAYOUT} Et|t|tL", "", "error crash config"),
    ("PIPE006", "mlm", f"{_PP} 3 {_LAYOUT} Et|t|tL", "", "fine"),
    ("PIPE006", "mlm", f"{_PP} 3 {_LAYOUT} Et|t|tL|", "", "error crash config"),
    ("PIPE006", "mlm", f"{_PP} 3 {_LAYOUT} Etx|t|tL", "", "needs pipeline_layout"),
    ("PIPE006", "bridge", _LISTS, "pp=2", "fine"),
    ("PIPE006", "bridge", _LISTS, "pp=4", "error crash config"),
    (
        "PIPE006",
        "bridge",
        "model.pipeline_model_parallel_layout=[[embedding,x],[loss]]",
        "pp=2",
        "needs pipeline_layout",
    ),
    ("PIPE006", "bridge", "model.pipeline_model_parallel_layout=5", "pp=2", "needs pipeline_layout"),
    ("PIPE006", "bridge", "model.pipeline_model_parallel_layout=[5,6]", "pp=2", "needs pipeline_layout"),
    ("PIPE006", "bridge", "model.pipeline_model_parallel_layout=[[embedding],5]", "pp=2", "needs pipeline_layout"),
    ("PIPE006", "bridge", "model.pipeline_model_parallel_layout=[embedding,loss]", "pp=2", "needs pipeline_layout"),
    ("PIPE007", "mlm", f"{_PP} 2", "", "not concerned"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|ttL", "", "fine"),
    ("PIPE007", "mlm", f"--num-layers 4 {_PP} 2 {_LAYOUT} Et|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} tE|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} EtE|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|tt", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} EtL|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Et|ttmL", "", "fine"),
    ("PIPE007", "mlm", f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Et|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|ttmL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Etm|ttL", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 2 {_PP} 2 {_LAYOUT} EtL|t", "", "error crash config"),
    ("PIPE007", "mlm", f"--num-layers 10000 {_PP} 2 {_LAYOUT} 'E|(tt)*5000L'", "", "fine"),
    ("PIPE007", "mlm", f"--num-layers 10001 {_PP} 2 {_LAYOUT} 'E|({73 * 't'})*137L'", "", "needs pipeline_layout"),
    ("PIPE007", "bridge", _LISTS, "num_layers=2 mtp_layers=null", "fine"),
    ("PIPE007", "bridge", _LISTS, "num_layers=3 mtp_layers=null", "error crash config"),
    # Repetitions: those in parentheses first, then those of one letter; commas mean nothing.
    ("PIPE007", "mlm", f"--num-layers 8 {_PP} 2 {_LAYOUT} 'Et,(tt|)*3t|L'", "", "fine"),
    ("PIPE007", "mlm", f"--num-layers 8 {_PP} 2 {_LAYOUT} 'Et*4|t*4L'", "", "fine"),
    ("PIPE007", "mlm", f"--num-layers 8 {_PP} 2 {_LAYOUT} '(((t)*9999)*9999)*9999L'", "", "needs pipeline_layout"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("PIPE003", "mlm", f"--num-layers 8 {_PP} 2 {_PER_RANK} 3", "", "found: 4 layers in a stage, 3 virtual stages"),
    (
        "PIPE003",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_PER_STAGE} 3",
        "",
        "found: 4 layers in a stage (8 layers, over 2), 3 in a virtual one",
    ),
    (
        "PIPE003",
        "mlm",
        f"--num-layers 15 {_PP} 5 {_PER_RANK} 2 {_FIRST} 2 {_LAST} 1",
        "",
        "found: 1 layers in a stage of their own, 2 virtual stages",
    ),
    (
        "PIPE004",
        "mlm",
        f"--num-layers 8 {_PER_RANK} 2",
        "",
        "found: virtual pipeline size 2 over 1 stage",
    ),
    (
        "PIPE004",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_PER_RANK} 2 --no-overlap-p2p-communication",
        "",
        "found: virtual pipeline size 2 over 2 stages without the overlap of their messages",
    ),
    (
        "PIPE004",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_PER_RANK} 2 --no-overlap-p2p-communication",
        "",
        "wanted: at least 3 stages",
    ),
    ("PIPE006", "mlm", f"{_PP} 2 {_LAYOUT} Et|t|tL", "", "found: 3 parts over 2 stages"),
    ("PIPE007", "mlm", f"--num-layers 4 {_PP} 2 {_LAYOUT} Et|ttL", "", "found: layout Et|ttL: 3 t for 4 layers"),
    ("PIPE007", "mlm", f"--num-layers 4 {_PP} 2 {_LAYOUT} 'Et|t*2L'", "", "found: layout Et|t*2L: 3 t for 4 layers"),
    (
        "PIPE007",
        "bridge",
        f"model.num_layers=5 {_LISTS}",
        "mtp_layers=null",
        "found: layout Et|tL: 2 t for 5 layers",
    ),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} tE|ttL", "", "found: E not once and first"),
    ("PIPE007", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|tt", "", "found: L not once and last"),
    (
        "PIPE007",
        "mlm",
        f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|ttmL",
        "",
        "found: 1 m for 0 multi-token-prediction layers",
    ),
    (
        "PIPE007",
        "mlm",
        f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Etm|ttL",
        "",
        "found: t after m",
    ),
    (
        "PIPE007",
        "mlm",
        f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Et|ttL",
        "",
        "found: 0 m for 1 multi-token-prediction layers",
    ),
    ("PIPE007", "mlm", f"--num-layers 3 --mtp-num-layers 1 {_PP} 2 {_LAYOUT} Et|ttL", "", "wanted: 1 m"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "PIPE003",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_PER_RANK} 3",
        "",
        tuple(f"num_virtual_stages_per_pipeline_rank={size}" for size in (2, 4, "null")),
    ),
    # NVIDIA/Megatron-LM#468: 24 layers over 4 stages are 6 in each.
    (
        "PIPE003",
        "mlm",
        f"--num-layers 24 {_PP} 4 --num-layers-per-virtual-pipeline-stage 4",
        "",
        ("num_layers_per_virtual_pipeline_stage=3", "num_layers_per_virtual_pipeline_stage=null"),
    ),
    (
        "PIPE003",
        "bridge",
        "model.virtual_pipeline_model_parallel_size=3",
        "pp=2 num_layers=8",
        tuple(f"model.virtual_pipeline_model_parallel_size={size}" for size in (2, 4, "null")),
    ),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_RANK} 2", "", ("num_virtual_stages_per_pipeline_rank=null",)),
    ("PIPE004", "mlm", f"--num-layers 8 {_PER_STAGE} 2", "", ("num_layers_per_virtual_pipeline_stage=null",)),
    (
        "PIPE004",
        "bridge",
        "model.virtual_pipeline_model_parallel_size=2",
        "pp=1",
        ("model.virtual_pipeline_model_parallel_size=null",),
    ),
    ("PIPE006", "mlm", f"--num-layers 3 {_PP} 2 {_LAYOUT} Et|t|tL", "", ("pipeline_model_parallel_size=3",)),
]
