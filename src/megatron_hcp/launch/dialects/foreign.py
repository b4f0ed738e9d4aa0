"""Other frameworks, each identified by its own keys, options, programs, tools, variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from megatron_hcp.ground.errors import UnrecognisedError
from megatron_hcp.launch.dialects.foreign_keys import KEYS

WANTED = "a launch of Megatron-LM, Megatron-Bridge, verl, NeMo-RL, ms-swift, slime or miles"
_LAST_NAMES = ((("_component_",), "a torchtune configuration"),)
"""Key names that identify a framework at any depth."""
_TARGETS = (
    ("nemo_automodel.", "a NeMo AutoModel configuration"),
    ("nemo_curator.", "a NeMo Curator configuration"),
    ("nemo_rl.", "a NeMo-RL configuration"),
    ("nemo.", "a NeMo configuration"),
    ("torchtune.", "a torchtune configuration"),
    ("megatron.training.", "a Megatron-LM configuration container"),
    ("verl.", "one section of a verl configuration"),
    ("lightning.", "a PyTorch Lightning configuration"),
    ("pytorch_lightning.", "a PyTorch Lightning configuration"),
    ("skyrl", "a SkyRL configuration"),
)
_PLACES = ("_target_", "model._target_", "dataset._target_", "recipe._target_", "trainer._target_", "run._target_")

OPTIONS = (
    (
        "a MindSpeed launch",
        frozenset(
            "context_parallel_algo attention_mask_type cp_window_size ulysses_degree_in_cp "
            "use_cp_send_recv_overlap use_fused_ring_attention_update megatron_cp_in_bnsd "
            "kv_head_repeat_before_uly_alltoall cp_attention_mask_type use_fused_rmsnorm use_fused_swiglu "
            "use_fused_rotary_pos_emb use_fused_moe_token_permute_and_unpermute npu_deterministic use_ascend_mc2 "
            "use_ascend_coc coc_fused_kernel reuse_fp32_param swap_attention swap_optimizer "
            "recompute_activation_function recompute_in_advance recompute_in_bubble recompute_norm "
            "enable_recompute_layers_per_pp_rank moe_permutation_async_comm moe_alltoall_overlap_comm "
            "moe_fb_overlap moe_allgather_overlap_comm moe_tp_extend_ep moe_zero_memory "
            "gemm_gradient_accumulation_fusion mla_fa_without_pad mla_mm_split no_shared_storage "
            "disable_gloo_group tp_2d tp_x tp_y hccl_op_mode noop_layers num_layer_list fix_sub_seq_length "
            "schedules_method adaptive_memory_optimization ai_framework optimizer_selection "
            "use_multiparameter_pipeline_model_parallel layerzero enable_high_availability hf_cfg_dir "
            "model_type_hf enable_hf2mg_convert tokenizer_not_use_fast is_instruction_dataset handler_name "
            "is_pairwise_dataset mtp_mem_efficient_logits enable_dsa_indexer neat_pack".split()
        ),
    ),
    (
        "a Megatron-DeepSpeed launch",
        frozenset(
            "deepspeed deepspeed_config zero_stage ds_sequence_parallel_size deepspeed_activation_checkpointing "
            "no_pipeline_parallel deepscale".split()
        ),
    ),
    (
        "an OpenRLHF launch",
        frozenset("actor_num_gpus_per_node_ref ref_num_nodes reward_num_nodes vllm_num_engines".split()),
    ),
    (
        "a Hugging Face training launch",
        frozenset("model_name_or_path per_device_train_batch_size do_train gradient_accumulation_steps".split()),
    ),
    (
        "an ms-swift launch",
        frozenset("tuner_type train_type model_author neat_packing".split()),
    ),
)
"""Command options, underscores for dashes, that Megatron-LM and the programs around it don't have."""
_DOTTED_OPTIONS = (
    ("a torchtitan launch", ("parallelism.", "job.", "training.", "activation_checkpoint.", "model.flavor", "comm.")),
    ("an OpenRLHF launch", ("actor.model_name_or_path", "ds.zero_stage", "vllm.num_engines")),
)
_PROGRAMS = (
    ("a torchtitan launch", "torchtitan", r"torchtitan"),
    (
        "a NeMo-RL launch",
        "nemo_rl nemo-rl run_",
        r"(?i)nemo_rl|nemo-rl|(^|/)run_grpo(_math|_sliding_puzzle)?\.py$|(^|/)run_(sft|dpo|distillation)\.py$",
    ),
    ("an OpenRLHF launch", "openrlhf", r"(^|[./])openrlhf[./]"),
    ("a siiRL launch", "siirl", r"^siirl\.|(^|/)siirl/main_\w+\.py$"),
    ("a LLaMA-Factory launch", "llama", r"llamafactory|llama_factory"),
    ("an Axolotl launch", "axolotl", r"(^|[./])axolotl([./]|$)"),
    ("a NeMo AutoModel launch", "automodel", r"nemo_automodel|^automodel\."),
    ("a NeMo launch", "nemo", r"(^|[./])nemo([./]|$)"),
    (
        "a MindSpeed launch",
        "mindspeed posttrain_gpt train_fsdp2",
        r"(?i)mindspeed|(^|/)posttrain_gpt\.py$|(^|/)train_fsdp2\.py$",
    ),
    ("a FlagScale launch", "flagscale", r"(?i)flagscale"),
    ("a Primus launch", "primus", r"^primus\.|(^|/)primus/(cli|pretrain|train)[\w/]*\.py$"),
    ("a ROLL launch", "_pipeline mcore_adapter", r"(^|/)start_\w+_pipeline\.py$|mcore_adapter"),
    ("an RLinf launch", "rlinf", r"(?i)(^|[./])rlinf([./]|$)"),
    ("a BioNeMo launch", "bionemo", r"(?i)bionemo"),
    ("an RL2 launch", "rl2.", r"^RL2\."),
    (
        "a SkyRL launch",
        "skyrl arctic_rl",
        r"^(skyrl|skyrl_train|skyrl_agent|skyrl_tx|arctic_rl)\.|(^|[./])(skyrl_train|arctic_rl)[./]",
    ),
    ("an AgentGym-RL launch", "agent_trainer", r"(^|[./])verl[./]agent_trainer[./]"),
    ("an AReaL launch", "areal.", r"^areal\."),
    ("a VeOmni launch", "veomni", r"(?i)veomni"),
    ("a torchtune launch", "torchtune", r"torchtune"),
    ("an ms-swift launch", "swift megatron", r"^swift\.|(^|/)swift/cli/|^megatron \w"),
    ("an xtuner launch", "xtuner.", r"^xtuner\."),
    ("a TRL launch", "trl", r"^trl\.|(^|/)trl/scripts/"),
    ("an Open-Instruct launch", "open_instruct", r"^open_instruct\.|(^|/)open_instruct/"),
)
"""What a command starts: words of which such a script or module has one, whatever their case, and its pattern.

A pattern is compiled only where a word is found: to compile all takes 2 ms."""
_TOOLS = (
    ("an ms-swift launch", r"(?:swift|megatron)[ \t]+(?:sft|pt|rlhf|dpo|kto|grpo|gkd|rm|export|infer|deploy|sample)"),
    ("a LLaMA-Factory launch", r"(?:llamafactory-cli|lmf)[ \t]+\w+"),
    ("an Axolotl launch", r"axolotl[ \t]+\w+"),
    ("a torchtune launch", r"tune[ \t]+run"),
    ("a Primus launch", r"[^ \t\n=]*primus-cli|primus[ \t]+train"),
    ("a FlagScale launch", r"flagscale[ \t]+(?:train|run|serve|rl)"),
    ("a NeMo AutoModel launch", r"automodel[ \t]+\S+"),
    ("an xtuner launch", r"xtuner[ \t]+(?:train|chat|convert)"),
    ("a TRL launch", r"trl[ \t]+(?:sft|dpo|grpo|reward|kto|rloo)"),
    ("a DeepSpeed launch", r"deepspeed[ \t]+\S+|(?:\./)?deepy\.py"),
)
"""Commands that start training in a framework with its own program."""
_TOOL = (
    r"(?m)^[ \t]*(?:(?:[A-Za-z_]\w*=\S*|nohup|exec|srun|time|env|uv[ \t]+run)[ \t]+)*(?:"
    + "|".join(f"({pattern})" for _, pattern in _TOOLS)
    + r")(?=\s|$)"
)
_MODULE = r" -m +([\w.]+)"
_OWN_FOLDERS = ("egatron-LM/", "egatron-lm/", "egatron-Bridge/", "egatron-bridge/")
_ASCEND = r"(?m)^(?:export[ \t]+)?(?:NPUS_PER_NODE|HCCL_\w+|TORCH_HCCL_\w+|PYTORCH_NPU_\w+|ASCEND_\w+|NPU_\w+)="


def of_keys(keys: Collection[str]) -> str | None:
    """The framework that dotted keys belong to, or None.

    >>> of_keys({"policy.model_name"}), of_keys({"model.context_parallel_size"})
    ('a NeMo-RL configuration', None)
    """
    there = set(keys)
    for key in keys:
        end = key.find(".")
        while end >= 0:
            there.add(key[: end + 1])
            end = key.find(".", end + 1)
    for name, alternatives in KEYS:
        if any(there.issuperset(alternative) for alternative in alternatives):
            return name
    for names, framework in _LAST_NAMES:
        if any(key.rpartition(".")[2] in names for key in keys):
            return framework
    return None


def of_targets(data: Mapping[str, Any]) -> str | None:
    """The framework that the `_target_` of a mapping, or of one of its sections, belongs to, or None."""
    for path in _PLACES:
        value = _at(data, path)
        for prefix, name in _TARGETS:
            if isinstance(value, str) and value.startswith(prefix):
                return name
    return None


def of_options(names: Iterable[str]) -> str | None:
    """The framework that options of a command belong to (no dashes in front, underscores for dashes), or None."""
    given = set(names)
    for name, options in OPTIONS:
        if given & options:
            return name
    dotted = [option for option in given if "." in option]
    for name, prefixes in _DOTTED_OPTIONS if dotted else ():
        if any(option.startswith(prefixes) for option in dotted):
            return name
    return None


def option_name(word: str) -> str:
    """The name of an option as `of_options` takes it.

    >>> option_name("--cp-window-size=2")
    'cp_window_size'
    """
    return word[2:].partition("=")[0].replace("-", "_")


def of_program(script: str) -> str | None:
    """The framework whose script or module a command starts, or None."""
    own = script
    for folder in _OWN_FOLDERS:  # folders above Megatron's own checkout are the user's
        own = own.rpartition(folder)[2]
    folded = own.casefold()
    return next(
        (name for name, words, pattern in _PROGRAMS if _has_one(folded, words) and re.search(pattern, own)), None
    )


def _has_one(text: str, words: str) -> bool:
    return any(word in text for word in words.split())


def of_tools(text: str) -> str | None:
    """The framework whose own program a shell script calls, or None."""
    found = re.search(_TOOL, text)
    if found:
        return _TOOLS[(found.lastindex or 1) - 1][0]
    lines = (line for line in text.splitlines() if " -m " in line and not line.lstrip().startswith("#"))
    return next(filter(None, (of_program(name) for line in lines for name in re.findall(_MODULE, line))), None)


def sets_ascend(text: str) -> bool:
    """Whether a shell script sets variables for Ascend devices: Megatron-LM runs there only under MindSpeed."""
    return _has_one(text, "NPU_ HCCL_ ASCEND_ NPUS_") and re.search(_ASCEND, text) is not None


_READ_IN_PART = {
    "NeMo-RL": "one of its trainings: examples/run_grpo.py (or run_sft.py, ...), or keys such as policy.megatron_cfg.*",
    "ms-swift": "`megatron sft`, `megatron pt` or `megatron rlhf`, which are its trainings with Megatron",
}
"""What is read of the frameworks of which not all is."""


def not_supported(target: str, name: str) -> UnrecognisedError:
    wanted = next((wanted for framework, wanted in _READ_IN_PART.items() if framework in name), None)
    if wanted is not None:
        return UnrecognisedError(
            f"{target} looks like {name} of a kind that is not supported",
            wanted=wanted,
            do="give the command line or configuration of one of these",
        )
    return UnrecognisedError(
        f"{target} looks like {name}, which is not supported",
        wanted=WANTED,
        do="give the command line or configuration of one of these",
    )


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
