"""PACK rules about CUDA graphs, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_SFT = "--sft --no-create-attention-mask-in-dataloader"
_GRAPHS = "--cuda-graph-impl transformer_engine"
_ROWS = "dataset.enable_offline_packing=true dataset.offline_packing_specs.packed_sequence_size=4096"
_TE = "model.cuda_graph_impl=transformer_engine"
_FULL = "dataset.dataset_kwargs.pad_to_max_length"
_ENDS = "dataset.offline_packing_specs.pad_cu_seqlens"
_STOPS = "error crash config"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "mcore=0.16.1", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "mcore_branch=dev", "not concerned"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope attn mlp", "", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope full", "", "error crash training"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-modules mlp moe_router", "", "fine"),
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS} --cuda-graph-scope mlp", "", "fine"),
    ("PACK014", "mlm", f"{_SFT} --cuda-graph-impl local", "", "not concerned"),
    ("PACK014", "mlm", _GRAPHS, "", "not concerned"),
    ("PACK014", "bridge", "", "thd=true cuda_graph_impl=transformer_engine", "not concerned"),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=false {_ENDS}=true model.cuda_graph_modules=null", "", _STOPS),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=true {_ENDS}=false model.cuda_graph_modules=null", "", _STOPS),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=true {_ENDS}=false model.cuda_graph_modules=[mlp,attn]", "", _STOPS),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=true {_ENDS}=true model.cuda_graph_modules=null", "", "fine"),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=true {_ENDS}=false model.cuda_graph_modules=[mlp]", "", "fine"),
    ("PACK021", "bridge", f"{_ROWS} {_TE} {_FULL}=false {_ENDS}=true model.cuda_graph_modules=[mlp]", "", _STOPS),
    # Graphs of a whole iteration; local graphs of layers are not looked at.
    (
        "PACK021",
        "bridge",
        f"{_ROWS} model.cuda_graph_impl=local {_FULL}=true {_ENDS}=false model.cuda_graph_modules=[full_iteration]",
        "",
        _STOPS,
    ),
    ("PACK021", "bridge", f"{_ROWS} {_FULL}=true {_ENDS}=false", "cuda_graph_impl=full_iteration", _STOPS),
    (
        "PACK021",
        "bridge",
        f"{_ROWS} model.cuda_graph_impl=local {_FULL}=false model.cuda_graph_modules=[mlp]",
        "",
        "not concerned",
    ),
    ("PACK021", "bridge", f"{_ROWS} model.cuda_graph_impl=none {_FULL}=false", "", "not concerned"),
    ("PACK021", "bridge", f"{_ROWS} {_TE} model.cuda_graph_modules=[mlp]", "", "needs pad_to_max_length"),
    # The specs of Bridge before 0.6, which had no such check.
    (
        "PACK021",
        "bridge",
        f"dataset.packed_sequence_specs.packed_sequence_size=4096 {_TE} {_FULL}=false model.cuda_graph_modules=null",
        "enable_offline_packing=null",
        "not concerned",
    ),
    ("PACK021", "mlm", _GRAPHS, "packing=offline enable_offline_packing=true", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "", "found: packed data with cuda_graph_impl transformer_engine"),
    (
        "PACK021",
        "bridge",
        f"{_ROWS} {_TE} {_FULL}=false {_ENDS}=false model.cuda_graph_modules=null",
        "",
        "found: pad_to_max_length and offline_packing_specs.pad_cu_seqlens",
    ),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("PACK014", "mlm", f"{_SFT} {_GRAPHS}", "", ("cuda_graph_impl=none",)),
    (
        "PACK021",
        "bridge",
        f"{_ROWS} {_TE} {_FULL}=false {_ENDS}=true model.cuda_graph_modules=null",
        "",
        (f"{_FULL}=true", "model.cuda_graph_impl=none"),
    ),
]
