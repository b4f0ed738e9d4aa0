"""Which dialect a set of dotted keys belongs to, and which other framework's they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hcp.core.errors import HcpError
from hcp.launch.fact import Dialect, Setting

WANTED = "wanted a Megatron-Bridge, Megatron-LM or verl launch"

_BRIDGE = frozenset(
    (
        "model",
        "train",
        "dataset",
        "dist",
        "ddp",
        "optimizer",
        "scheduler",
        "logger",
        "tokenizer",
        "checkpoint",
        "rng",
        "rerun_state_machine",
        "validation",
        "ft",
        "straggler",
        "nvrx_straggler",
        "profiling",
        "peft",
        "comm_overlap",
        "mixed_precision",
        "tensor_inspect",
        "inprocess_restart",
        "env_vars",
        "optimizer_config_override_provider",
    )
)
_ALONE = frozenset(("mixed_precision", "model_engine"))
"""Sections that may also be one word: the name of a recipe, of a config group."""
_BRIDGE_ONLY = _BRIDGE - {"model", "checkpoint", "optimizer", "tokenizer"}
_VERL = frozenset(
    (
        "actor_rollout_ref",
        "critic",
        "reward_model",
        "custom_reward_function",
        "model_engine",
        "global_profiler",
        "ray_init",
        "ray_kwargs",
        "async_training",
        "distillation",
        "transfer_queue",
    )
)
_VERL_KEYS = (
    "engine.",
    "engine@",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "trainer.project_name",
    "data.train_files",
    "data.max_prompt_length",
    "data.max_response_length",
    "data.max_length",
    "data.train_batch_size",
    "data.max_token_len_per_gpu",
    "model.path",
    "optim.lr",
    "algorithm.adv_estimator",
    "algorithm.use_kl",
)

# Framework -> alternatives; each alternative is a set of keys (dotted, or a prefix that ends with a dot) that must
# all be there. Ordered: the first that fits names the framework.
_FOREIGN: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "a NeMo-RL configuration",
        (("policy.megatron_cfg.",), ("policy.dtensor_cfg.",), ("policy.model_name",), ("policy.", "cluster.")),
    ),
    (
        "a NeMo configuration",
        (
            ("exp_manager.",),
            ("trainer.strategy.",),
            ("trainer.strategy",),
            ("trainer.devices",),
            ("trainer.num_nodes",),
            ("trainer.accelerator",),
        ),
    ),
    ("a torchtitan configuration", (("parallelism.",), ("job.dump_folder",), ("job.config_file",))),
    ("a DeepSpeed configuration", (("zero_optimization.",), ("train_micro_batch_size_per_gpu",), ("deepspeed.",))),
    (
        "a Hugging Face Accelerate configuration",
        (("compute_environment",), ("distributed_type",), ("fsdp_config.fsdp_version",)),
    ),
    ("an Axolotl configuration", (("base_model", "datasets"), ("base_model", "sequence_len"))),
    (
        "a LLaMA-Factory configuration",
        (
            ("model_name_or_path", "stage"),
            ("model_name_or_path", "finetuning_type"),
            ("model_name_or_path", "template"),
        ),
    ),
    ("a Hugging Face training configuration", (("model_name_or_path",), ("per_device_train_batch_size",))),
    ("a Megatron-LM --yaml-cfg file", (("language_model.", "model_parallel."),)),
    ("a Kubernetes manifest", (("apiVersion", "kind"),)),
    ("a SkyPilot task", (("resources.", "run"),)),
    ("a GitHub workflow", (("on", "jobs."), ("on.", "jobs."))),
    ("an Open-Instruct or OLMo configuration", (("run_name", "model.d_model"),)),
)
_TARGETS = (
    ("nemo_automodel.", "a NeMo AutoModel configuration"),
    ("nemo.", "a NeMo configuration"),
    ("nemo_rl.", "a NeMo-RL configuration"),
    ("torchtune.", "a torchtune configuration"),
    ("megatron.training.", "a Megatron-LM configuration container"),
    ("verl.", "one section of a verl configuration"),
    ("lightning.", "a PyTorch Lightning configuration"),
)


def dialect_of_keys(keys: Collection[str]) -> Dialect | None:
    """`verl` or `bridge` as the dotted keys tell; None where they tell nothing.

    >>> dialect_of_keys(["model.context_parallel_size"])
    'bridge'
    >>> dialect_of_keys(["model.path", "engine.context_parallel_size"])
    'verl'
    """
    roots = {key.partition(".")[0] for key in keys if "." in key or key in _ALONE}
    if roots & _VERL:
        return "verl"
    verl = any(key.startswith(_VERL_KEYS) for key in keys)
    if verl and not roots & _BRIDGE_ONLY:
        return "verl"
    return "bridge" if roots & _BRIDGE else "verl" if verl else None


def refuse_foreign(keys: Collection[str], target: str) -> None:
    """Nothing, or an `HcpError` that names the framework that the keys belong to."""
    for name, alternatives in _FOREIGN:
        if any(all(_has(keys, key) for key in alternative) for alternative in alternatives):
            raise not_supported(target, name)


def refuse_foreign_mapping(data: Mapping[str, Any], keys: Collection[str], target: str) -> None:
    """The same for a whole YAML or JSON mapping, which may also be a model's config.json or a file of hcp's own."""
    schema = data.get("schema")
    if isinstance(schema, str) and schema.startswith("hcp."):
        raise HcpError(f"{target} is a file of hcp's own ({schema}), no launch; {WANTED}; give the launch's file")
    if isinstance(data.get("architectures"), list) or {"model_type", "hidden_size"} <= set(data):
        raise HcpError(f"{target} is a model's config.json, no launch; {WANTED}; give it with --model")
    for path in ("_target_", "model._target_", "recipe._target_", "trainer._target_", "run._target_"):
        value = _at(data, path)
        for prefix, name in _TARGETS:
            if isinstance(value, str) and value.startswith(prefix):
                raise not_supported(target, name)
    refuse_foreign(keys, target)


def not_supported(target: str, name: str) -> HcpError:
    return HcpError(
        f"{target} looks like {name}, which is not supported; {WANTED}; if it is one, name its dialect with --dialect"
    )


def unknown_dialect(target: str, keys: Iterable[str]) -> HcpError:
    """The refusal of a configuration with none of our keys; names the sections of `keys`, in their order."""
    roots = list(dict.fromkeys(key.partition(".")[0][:40] for key in keys))[:6]
    return HcpError(
        f"{target} has no key of a known dialect (it has {', '.join(roots) or 'none'}); {WANTED}; "
        "give the launch's own file, or name its dialect with --dialect"
    )


def has_references(settings: Iterable[Setting]) -> bool:
    """Whether a value needs `hcp.launch.yaml.interpolate`: `${…}`, or the `???` of a value still to be given."""
    texts = (str(value) if isinstance(value, list) else value for _, value, _ in settings)
    return any(isinstance(text, str) and ("${" in text or text == "???") for text in texts)


def _has(keys: Collection[str], wanted: str) -> bool:
    return any(key.startswith(wanted) for key in keys) if wanted.endswith(".") else wanted in keys


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
