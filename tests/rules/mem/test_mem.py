"""MEM rules, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

_GRANULARITY, _METHOD, _LAYERS = "--recompute-granularity", "--recompute-method", "--recompute-num-layers"
_OVERRIDE = "actor_rollout_ref.actor.megatron.override_transformer_config"
_SWITCH, _OWN = "policy.megatron_cfg.activation_checkpointing", "policy.megatron_cfg.recompute_granularity"
_NEMO_RL = "policy.megatron_cfg.enabled=true policy.dtensor_cfg.enabled=false"
_UNIT = "recompute_num_layers"
_UNITS = f"{_GRANULARITY} full {_METHOD} uniform {_LAYERS}"

_ON, _NO_ACTIVATIONS = "model.cpu_offloading=true", "model.cpu_offloading_activations=false"
_WEIGHTS = "model.cpu_offloading_weights="

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("MEM001", "mlm", "", "", "not concerned"),
    ("MEM001", "mlm", f"{_METHOD} uniform {_LAYERS} 1", "", "not concerned"),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_METHOD} uniform {_LAYERS} 1", "", "fine"),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_METHOD} block {_LAYERS} 2", "", "fine"),
    ("MEM001", "mlm", f"{_GRANULARITY} full", "", "error crash config"),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_METHOD} uniform", "", "error crash config"),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_LAYERS} 1", "", "error crash config"),
    ("MEM001", "mlm", f"{_GRANULARITY} selective", "", "fine"),
    ("MEM001", "mlm", f"{_GRANULARITY} selective {_LAYERS} 1", "", "error crash config"),
    ("MEM001", "mlm", f"{_GRANULARITY} selective {_METHOD} block", "", "error crash config"),
    ("MEM003", "bridge", _ON, "", "not concerned"),
    ("MEM003", "bridge", f"{_ON} model.cpu_offloading_activations=true", "", "not concerned"),
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS} {_WEIGHTS}true", "", "fine"),
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS} {_WEIGHTS}false", "", "error crash init"),
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS}", "mcore=0.15.0", "error crash init"),
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS}", "mcore=0.14.0", "fine"),
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS}", "", "needs mcore"),
    # Switched off, Transformer Engine looks at it only before 2.10.
    ("MEM003", "verl", f"+{_OVERRIDE}.cpu_offloading_activations=False", "mcore=0.16.1 te=2.9", "error crash init"),
    ("MEM003", "verl", f"+{_OVERRIDE}.cpu_offloading_activations=False", "mcore=0.16.1 te=2.10", "fine"),
    ("MEM003", "verl", f"+{_OVERRIDE}.cpu_offloading_activations=False", "mcore=0.16.1", "needs te"),
    ("MEM003", "bridge", f"{_NO_ACTIVATIONS} {_WEIGHTS}false", "te=2.10", "needs cpu_offloading"),
    ("MEM003", "mlm", "", "", "not concerned"),
    ("MEM002", "mlm", f"{_UNITS} 4 --num-layers 30", "mcore=0.16.1", "error crash first-forward"),
    ("MEM002", "mlm", f"{_UNITS} 4 --num-layers 30", "mcore=0.17", "fine"),
    ("MEM002", "mlm", f"{_UNITS} 4 --num-layers 30", "", "needs mcore"),
    ("MEM002", "mlm", f"{_UNITS} 4 --num-layers 32", "mcore=0.16.1", "fine"),
    ("MEM002", "mlm", f"{_UNITS} 4 --num-layers 24 --pipeline-model-parallel-size 4", "mcore=0.16.1", "error"),
    ("MEM002", "mlm", f"{_UNITS} 3 --num-layers 24 --pipeline-model-parallel-size 4", "mcore=0.16.1", "fine"),
    ("MEM002", "mlm", f"{_UNITS} 1 --num-layers 30", "mcore=0.16.1", "not concerned"),
    (
        "MEM002",
        "mlm",
        f"{_GRANULARITY} full {_METHOD} block {_LAYERS} 4 --num-layers 30",
        "mcore=0.16.1",
        "not concerned",
    ),
    # --recompute-activations means selective, whatever the granularity says.
    ("MEM001", "mlm", "--recompute-activations", "", "fine"),
    ("MEM001", "mlm", f"--recompute-activations {_LAYERS} 1", "", "error crash config"),
    ("MEM001", "mlm", f"--recompute-activations {_GRANULARITY} full", "", "fine"),
    # The constructor accepts a method with selective recomputation; only Megatron-LM's command line rejects it.
    ("MEM001", "bridge", "model.recompute_granularity=selective model.recompute_method=block", "", f"needs {_UNIT}"),
    (
        "MEM001",
        "bridge",
        "model.recompute_granularity=selective model.recompute_method=block model.recompute_num_layers=null",
        "",
        "fine",
    ),
    (
        "MEM001",
        "bridge",
        "model.recompute_granularity=selective model.recompute_num_layers=1",
        "",
        "error crash config",
    ),
    ("MEM001", "bridge", "model.recompute_granularity=full", "", "needs recompute_method"),
    ("MEM001", "bridge", "model.recompute_granularity=full model.recompute_method=uniform", "", f"needs {_UNIT}"),
    ("MEM001", "verl", f"{_OVERRIDE}.recompute_granularity=full", "", "error crash config"),
    # ms-swift's MegatronArguments.__post_init__ rejects the same method, and leaves the rest to megatron-core.
    ("MEM001", "ms-swift", "", "", "fine"),
    ("MEM001", "ms-swift", "--recompute_granularity none", "", "not concerned"),
    ("MEM001", "ms-swift", "--recompute_granularity full", "", "error crash config"),
    ("MEM001", "ms-swift", f"--recompute_granularity full --recompute_method uniform --{_UNIT} 1", "", "fine"),
    ("MEM001", "ms-swift", "--recompute_method uniform", "", "error crash config"),
    # NeMo-RL's _apply_performance_config sets method and number itself, and nothing without its switch.
    ("MEM001", "nemo-rl", f"{_NEMO_RL} {_SWITCH}=true {_OWN}=full", "", "fine"),
    ("MEM001", "nemo-rl", f"{_NEMO_RL} {_SWITCH}=true {_OWN}=selective", "", f"needs {_UNIT}"),
    ("MEM001", "nemo-rl", f"{_NEMO_RL} {_SWITCH}=false {_OWN}=full", "", "not concerned"),
    (
        "MEM001",
        "nemo-rl",
        f"{_NEMO_RL} {_SWITCH}=true {_OWN}=selective policy.megatron_cfg.model_overrides.{_UNIT}=1",
        "",
        "error crash config",
    ),
]

TEXTS: list[Row] = [
    ("MEM003", "bridge", f"{_ON} {_NO_ACTIVATIONS} {_WEIGHTS}false", "", "wanted: activations or weights to offload"),
    (
        "MEM003",
        "bridge",
        f"model.cpu_offloading=false {_NO_ACTIVATIONS} {_WEIGHTS}false",
        "te=2.9",
        "wanted: or Transformer Engine 2.10",
    ),
    # rule, dialect, launch, assumed, what the finding says
    (
        "MEM001",
        "mlm",
        f"{_GRANULARITY} full",
        "",
        "found: full recomputation without recompute_method and recompute_num_layers",
    ),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_METHOD} block", "", "full recomputation without recompute_num_layers"),
    ("MEM001", "mlm", f"--recompute-activations {_LAYERS} 2", "", "selective recomputation with recompute_num_layers"),
]

FIXES: list[FixRow] = [
    (
        "MEM003",
        "bridge",
        f"{_ON} {_NO_ACTIVATIONS} {_WEIGHTS}false",
        "",
        ("model.cpu_offloading_activations=true",),
    ),
    # rule, dialect, launch, assumed, what each fix writes
    ("MEM001", "mlm", f"{_GRANULARITY} full", "", ("recompute_method=uniform recompute_num_layers=1",)),
    ("MEM001", "mlm", f"{_GRANULARITY} full {_METHOD} block", "", ("recompute_num_layers=1",)),
    ("MEM001", "mlm", f"{_GRANULARITY} selective {_LAYERS} 1", "", ("recompute_num_layers=null",)),
]
