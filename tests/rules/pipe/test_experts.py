"""PIPE rules about experts, as tables."""

from __future__ import annotations

from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

_PP = "--pipeline-model-parallel-size"
_FIRST, _LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_LAYOUT, _PER_RANK = "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"
_MTP = "--mtp-num-layers 1"
_ALONE = "--num-experts 8 --moe-aux-loss-coeff 0.01 --num-layers 4 --moe-layer-freq"
_MODEL = f"{_MTP} {_ALONE}"
_POLICY = "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"
_OF_POLICY = "num_layers=4 num_experts=8 pp=2 moe_aux_loss_coeff=0.01 moe_router_load_balancing_type=aux_loss"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    *(
        ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", f"mcore={mcore}", said)
        for mcore, said in (
            ("0.12.3", "fine"),
            ("0.13.0", "error hang training"),
            ("0.16.1", "error hang training"),
            ("0.17.0", "fine"),
        )
    ),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "", "needs mcore"),
    # A size that no machine could list: it is no reason to fail.
    *(
        (
            "PIPE009",
            "mlm",
            f"{_MODEL} [0,0,1,1] {_PP} 2 {end} {size}000000000000",
            "mcore=0.13.0",
            "error hang training",
        )
        for end in (_FIRST, _LAST)
        for size in ("-1", "1")
    ),
    ("PIPE009", "mlm", f"{_MODEL} [0,1,0,1] {_PP} 2", "", "fine"),
    ("PIPE009", "mlm", f"{_ALONE} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "fine"),  # no multi-token prediction
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1]", "mcore=0.16.1", "not concerned"),
    ("PIPE009", "mlm", f"{_MODEL} 1 {_PP} 2", "mcore=0.16.1", "not concerned"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2 --moe-aux-loss-coeff 0.0", "mcore=0.16.1", "not concerned"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1 hybrid_pattern=MEME", "not concerned"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1 num_experts=null", "not concerned"),
    (
        "PIPE009",
        "mlm",
        f"{_MODEL} [0,0,1,1] {_PP} 2 --moe-router-load-balancing-type none",
        "mcore=0.16.1",
        "not concerned",
    ),
    # Every third layer, the first of each group: layers 0 and 3.
    ("PIPE009", "mlm", f"{_MODEL} 3 {_PP} 4", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} 3 {_PP} 2", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} 2 {_PP} 4", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} [1,1,0,1] {_PP} 2 {_FIRST} 3", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} [1,1,1,0] {_PP} 2 {_FIRST} 3", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} [1,0,0,1] {_PP} 3 {_LAST} 2", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} [0,1,0,1] {_PP} 2 {_FIRST} 2 {_LAST} 2", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2 {_FIRST} 2 {_LAST} 2", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} [1,0,1,1] {_PP} 3 {_FIRST} 1 {_LAST} 1", "mcore=0.16.1", "fine"),
    # Two chunks per rank: layers 0 and 2, 1 and 3.
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2 {_PER_RANK} 2", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} [0,1,0,1] {_PP} 2 {_PER_RANK} 2", "mcore=0.16.1", "error hang training"),
    # The embedding as a layer: one layer, then two.
    (
        "PIPE009",
        "mlm",
        f"{_MODEL} [0,1,1] {_PP} 2 --num-layers 3 --account-for-embedding-in-pipeline-split",
        "mcore=0.16.1",
        "error hang training",
    ),
    (
        "PIPE009",
        "mlm",
        f"{_MODEL} [1,0,0] {_PP} 2 --num-layers 3 --account-for-loss-in-pipeline-split",
        "mcore=0.16.1",
        "error hang training",
    ),
    (
        "PIPE009",
        "mlm",
        f"{_MODEL} [0,1,1] {_PP} 2 --num-layers 3 --account-for-loss-in-pipeline-split",
        "mcore=0.16.1",
        "fine",
    ),
    # The layer of multi-token prediction is like the last layer.
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2 {_LAYOUT} Ettt|tmL", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} [1,1,1,1] {_PP} 2 {_LAYOUT} Etttt|mL", "mcore=0.16.1", "fine"),
    ("PIPE009", "mlm", f"{_MODEL} [1,1,1,0] {_PP} 2 {_LAYOUT} Etttt|mL", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "mlm", f"{_MODEL} [1,1,1,1] {_PP} 3 {_LAYOUT} E|tttt|mL", "mcore=0.16.1", "error hang training"),
    ("PIPE009", "bridge", "", "num_experts=8 pp=2", "not concerned"),
    (
        "PIPE009",
        "mlm",
        f"{_MTP} --num-experts 8 --moe-aux-loss-coeff 0.01 --moe-layer-freq [0,0,1,1] {_PP} 2",
        "",
        "needs num_layers",
    ),
    ("PIPE009", "slime", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "not concerned"),  # logs no such losses
    # NeMo-RL's ranks without experts don't take part, whatever the tensor's size.
    *(
        ("PIPE009", "nemo-rl", _POLICY, f"{_OF_POLICY} moe_layer_freq=[{layers}] nemo_rl={nemo_rl}", said)
        for layers, nemo_rl, said in (
            ("0,0,1,1", "0.4", "fine"),
            ("0,0,1,1", "0.5", "error hang training"),
            ("0,0,1,1", "0.7", "error hang training"),
            ("0,1,0,1", "0.7", "fine"),
        )
    ),
    ("PIPE009", "nemo-rl", "", f"{_OF_POLICY} moe_layer_freq=[0,0,1,1] strategy=dtensor", "not concerned"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "PIPE009",
        "mlm",
        f"{_MODEL} [0,0,0,1] {_PP} 4",
        "mcore=0.16.1",
        "found: pipeline ranks 0 1 2 of 4 without a layer that has experts, and 1 layers of multi-token prediction",
    ),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "found: pipeline rank 0 of 2 without"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "message: has a shorter tensor"),
    (
        "PIPE009",
        "nemo-rl",
        _POLICY,
        f"{_OF_POLICY} moe_layer_freq=[0,0,1,1] nemo_rl=0.6",
        "message: a rank without experts doesn't take part",
    ),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "moe_aux_loss_coeff | mtp_layers"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,1,1] {_PP} 2", "mcore=0.16.1", "wanted: or megatron-core 0.17 or newer"),
    ("PIPE009", "mlm", f"{_MODEL} [0,0,0,1] {_PP} 2", "mcore=0.16.1", "found: pipeline rank 0 of"),
    ("PIPE009", "mlm", f"{_MODEL} [1,0,0,1] {_PP} 4", "mcore=0.16.1", "found: ranks 1 2"),
]
