"""PIPE rules about stages, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_PP = "--pipeline-model-parallel-size"
_FIRST, _LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_HYBRID = "--hybrid-layer-pattern"
_PER_STAGE, _PER_RANK = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
_EMBEDDING, _LOSS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
_LAYOUT = "--pipeline-model-parallel-layout"

VERDICTS: list[Row] = [
    # A single stage with one size: 0.12 divides by zero, 0.13 to 0.15 build that many layers, 0.16 compares.
    *(
        ("PIPE002", "mlm", f"--num-layers 8 {_LAST} {size}", f"mcore={mcore}", said)
        for mcore, one, all_of_them in (
            ("0.12.3", "error crash init", "error crash init"),
            ("0.13.0", "error silent never", "fine"),
            ("0.15.3", "error silent never", "fine"),
            ("0.16.0", "error crash init", "fine"),
        )
        for size, said in ((1, one), (8, all_of_them))
    ),
    ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 3", "", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 8", "", "needs mcore"),
    # A single stage with both sizes: the last one is built.
    *(
        ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 3 {_LAST} {last}", assumed, said)
        for assumed in ("", "mcore=0.12.3", "mcore=0.15.3", "mcore=0.16.0")
        for last, said in ((4, "error silent never"), (8, "fine"))
    ),
    *(
        ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 3 {_LAST} 5", f"mcore={mcore}", said)
        for mcore, said in (
            ("0.12.3", "error silent never"),
            ("0.15.3", "error silent never"),
            ("0.16.0", "error crash init"),
        )
    ),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 9", "mcore=0.16.1", "error silent never"),
    # rule, dialect, launch, assumed, verdict
    ("PIPE001", "mlm", "--num-layers 7", "", "not concerned"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2", "", "error crash config"),
    ("PIPE001", "mlm", f"--num-layers 8 {_PP} 2", "", "fine"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_EMBEDDING}", "", "fine"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_LOSS}", "", "fine"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_EMBEDDING} {_LOSS}", "", "error crash config"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_FIRST} 3", "", "not concerned"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_LAST} 3", "", "not concerned"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2 {_LAYOUT} Etttt|tttL", "", "not concerned"),
    ("PIPE001", "mlm", f"{_HYBRID} M*M*|M*M {_PP} 2", "num_layers=7", "not concerned"),
    ("PIPE001", "mlm", f"{_HYBRID} M*M*M*M {_PP} 2", "num_layers=7", "error crash config"),
    ("PIPE001", "mlm", f"{_PP} 2", "", "needs num_layers"),
    ("PIPE001", "bridge", "model.num_layers=7", "", "not concerned"),
    ("PIPE001", "verl", "", "pp=2 num_layers=7", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 7 {_PP} 2", "", "not concerned"),
    ("PIPE002", "mlm", f"--num-layers 7 {_PP} 2 {_FIRST} 3", "", "fine"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 3", "", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_LAST} 3", "", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 4 {_FIRST} 1 {_LAST} 1", "", "fine"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 4 {_FIRST} 1 {_LAST} 2", "", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 4 {_FIRST} 0", "", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 4 {_LAST} -1", "", "error crash init"),
    # All stages given.
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 5", "mcore=0.16.0", "fine"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 5", "mcore=0.13.0", "fine"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 5", "mcore=0.12.3", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 5", "", "needs mcore"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 4", "", "error crash init"),
    *(
        ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 4", f"mcore={mcore}", said)
        for mcore, said in (
            ("0.12.3", "error crash init"),
            ("0.13.0", "error silent never"),
            ("0.15.3", "error silent never"),
            ("0.16.0", "error crash init"),
        )
    ),
    # More layers than the model has: [12, -2, -2] and [12, -3] pass megatron-core's arithmetic, -3 over 2 does not.
    *(
        ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 12", f"mcore={mcore}", "error silent never")
        for mcore in ("0.15.3", "0.16.1")
    ),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_LAST} 11", "mcore=0.16.1", "error silent never"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 11", "mcore=0.16.1", "error crash init"),
    # Stages between, and nothing for them.
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 3 {_LAST} 5", "mcore=0.16.0", "error crash init"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 3 {_LAST} 5", "mcore=0.15.3", "fine"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 3 {_LAYOUT} Et|t|tL", "", "not concerned"),
    ("PIPE002", "bridge", "model.num_layers_in_first_pipeline_stage=3", "num_layers=8 pp=3", "warning crash init"),
    ("PIPE005", "mlm", f"{_FIRST} 3 {_LAST} 3", "", "fine"),
    ("PIPE005", "mlm", f"{_FIRST} 3", "", "fine"),
    ("PIPE005", "mlm", "--num-layers 8", "", "not concerned"),
    *(
        ("PIPE005", "mlm", f"{one} 3 {other}", "", "error crash config")
        for one in (_FIRST, _LAST)
        for other in (_LOSS, _EMBEDDING)
    ),
    *(
        ("PIPE005", "mlm", f"{_LAYOUT} Et|tL {other}", "", "error crash config")
        for other in (f"{_FIRST} 1", f"{_LAST} 1", _LOSS, _EMBEDDING, f"{_PER_STAGE} 1", f"{_PER_RANK} 2")
    ),
    ("PIPE005", "mlm", f"{_PER_STAGE} 1 {_PER_RANK} 2", "", "error crash config"),
    ("PIPE005", "mlm", f"{_PER_STAGE} 1 {_FIRST} 2", "", "error crash config"),
    ("PIPE005", "mlm", f"{_PER_STAGE} 1 {_LAST} 2", "", "error crash config"),
    ("PIPE005", "mlm", f"{_PER_RANK} 2 {_FIRST} 2", "", "fine"),
    ("PIPE005", "mlm", f"{_EMBEDDING} {_LOSS}", "", "fine"),
    *(
        ("PIPE005", "mlm", f"{_HYBRID} M*M* {other}", f"mcore={mcore}", said)
        for mcore, said in (("0.17.0", "error crash config"), ("0.16.1", "fine"))
        for other in (_LOSS, _EMBEDDING, f"{_PER_STAGE} 1", f"{_PER_RANK} 2", f"{_LAYOUT} Et|tL")
    ),
    ("PIPE005", "mlm", f"{_HYBRID} M*M* {_LOSS}", "", "needs mcore"),
    ("PIPE005", "mlm", f"{_HYBRID} M*M* {_FIRST} 2", "mcore=0.17.0", "fine"),
    ("PIPE005", "mlm", f"{_HYBRID} M*|M* {_FIRST} 2", "mcore=0.17.0", "error crash config"),
    ("PIPE005", "mlm", f"{_HYBRID} M*|M* {_LAST} 2", "mcore=0.17.0", "error crash config"),
    (
        "PIPE005",
        "bridge",
        "model.hybrid_layer_pattern=M*M* model.account_for_loss_in_pipeline_split=true",
        "mcore=0.17.0",
        "fine",
    ),
    (
        "PIPE005",
        "bridge",
        "model.num_layers_in_first_pipeline_stage=2 model.account_for_loss_in_pipeline_split=true",
        "",
        "error crash config",
    ),
    ("PIPE008", "mlm", f"{_HYBRID} M*M* {_PP} 2", "", "not concerned"),
    ("PIPE008", "mlm", f"{_HYBRID} M*|M* {_PP} 2", "", "fine"),
    ("PIPE008", "mlm", f"{_HYBRID} M*|M*|M*|M* {_PP} 2", "", "fine"),
    ("PIPE008", "mlm", f"{_HYBRID} M*|M*|M* {_PP} 2", "", "error crash config"),
    # Behind the slash are the layers of multi-token prediction.
    ("PIPE008", "mlm", f"{_HYBRID} M*|M*/M|M {_PP} 2", "", "fine"),
    ("PIPE008", "bridge", "model.hybrid_layer_pattern=M*|M*|M*", "pp=2", "error crash init"),
    ("PIPE008", "bridge", "model.hybrid_layer_pattern=M*|M*|M*", "", "needs pp"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 3 {_FIRST} 12",
        "mcore=0.16.1",
        "message: a different model is silently built",
    ),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 12", "mcore=0.16.1", "12 in the first: -4 left for 2"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 3 {_FIRST} 12", "mcore=0.16.1", "wanted: fewer than 8 layers"),
    ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 3 {_LAST} 4", "", "message: of the model's 8 layers it has 4"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 4", "mcore=0.14.0", "message: 8 layers it has 7"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2", "", "found: 7 layers, over 2 stages"),
    (
        "PIPE001",
        "mlm",
        f"--num-layers 7 {_PP} 4 {_EMBEDDING} {_LOSS}",
        "",
        "found: 9 layers, the embedding and the loss counted, over 4 stages",
    ),
    ("PIPE001", "mlm", f"--num-layers 8 {_PP} 4 {_LOSS}", "", "found: 9 layers, the loss counted, over 4 stages"),
    ("PIPE001", "mlm", f"--num-layers 7 {_PP} 2", "", "wanted: that divides 7"),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 4 {_FIRST} 1 {_LAST} 2",
        "",
        "found: 8 layers over 4 stages, 1 in the first and 2 in the last: 5 left for 2",
    ),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 4 {_FIRST} 1 {_LAST} 2",
        "",
        "wanted: a multiple of 2 layers left for 2 stages between",
    ),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 3 {_FIRST} 3 {_LAST} 5",
        "mcore=0.16.0",
        "wanted: left for 1 stage between",
    ),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 4 {_LAST} 0", "", "wanted: at least one layer in the last stage"),
    ("PIPE002", "mlm", f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 4", "", "wanted: stages that hold all layers"),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 5",
        "mcore=0.12.3",
        "wanted: megatron-core 0.13 or newer",
    ),
    (
        "PIPE005",
        "mlm",
        f"{_PER_STAGE} 1 {_PER_RANK} 2",
        "",
        "found: layers per virtual stage and virtual stages per rank",
    ),
    ("PIPE008", "mlm", f"{_HYBRID} M*|M*|M* {_PP} 2", "", "found: 3 segments over 2 stages"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    (
        "PIPE001",
        "mlm",
        f"--num-layers 30 {_PP} 4",
        "",
        (
            "decoder_last_pipeline_num_layers=6",
            "decoder_first_pipeline_num_layers=6",
            "pipeline_model_parallel_size=3",
            "pipeline_model_parallel_size=5",
        ),
    ),
    # Of the divisors of 30, only 2 leaves whole replicas of 16 ranks.
    (
        "PIPE001",
        "mlm",
        f"--num-layers 30 {_PP} 4",
        "world_size=16",
        (
            "decoder_last_pipeline_num_layers=6",
            "decoder_first_pipeline_num_layers=6",
            "pipeline_model_parallel_size=2",
        ),
    ),
    # The counted loss excludes sizes of stages; 30 layers over 20 stages leave eleven to one of them.
    ("PIPE001", "mlm", f"--num-layers 30 {_PP} 4 {_LOSS}", "", ("pipeline_model_parallel_size=31",)),
    (
        "PIPE001",
        "mlm",
        f"--num-layers 30 {_PP} 20",
        "",
        ("pipeline_model_parallel_size=15", "pipeline_model_parallel_size=30"),
    ),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 94 {_PP} 8 {_FIRST} 11",
        "",
        ("decoder_last_pipeline_num_layers=11", "decoder_first_pipeline_num_layers=10"),
    ),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 30 {_PP} 4 {_FIRST} 3 {_LAST} 2",
        "",
        ("decoder_last_pipeline_num_layers=3", "decoder_first_pipeline_num_layers=4"),
    ),
    (
        "PIPE002",
        "mlm",
        f"--num-layers 8 {_PP} 2 {_FIRST} 3 {_LAST} 4",
        "mcore=0.16.0",
        ("decoder_last_pipeline_num_layers=null", "decoder_first_pipeline_num_layers=null"),
    ),
    # Each size is a multiple of two virtual stages: 24 layers over 8 stages are 3.
    (
        "PIPE001",
        "mlm",
        f"--num-layers 24 {_PP} 5 {_PER_RANK} 2",
        "",
        (
            "decoder_last_pipeline_num_layers=8",
            "decoder_first_pipeline_num_layers=8",
            "pipeline_model_parallel_size=4",
            "pipeline_model_parallel_size=6",
        ),
    ),
    (
        "PIPE005",
        "mlm",
        f"{_FIRST} 3 {_LOSS} --num-layers 8",
        "",
        ("account_for_loss_in_pipeline_split=false", "decoder_first_pipeline_num_layers=null"),
    ),
    ("PIPE008", "mlm", f"{_HYBRID} M*|M*|M* {_PP} 2", "", ("pipeline_model_parallel_size=3",)),
    ("PIPE002", "mlm", f"--num-layers 8 {_FIRST} 3", "mcore=0.14.0", ("decoder_first_pipeline_num_layers=null",)),
]
