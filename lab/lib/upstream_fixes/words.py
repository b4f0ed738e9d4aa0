"""By which words upstream's titles name the topics of `hcp backports`, and which titles are about something else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

TOPIC_WORDS = {
    "dynamic_cp": r"(?:dynamic|hybrid|hierarchical)[- _]?(?:cp|context[- ]parallel\w*)",
    "a2a_cp": r"cp[ _-]?a2a|a2a[ _-]?cp|a2a\b.*\bcp|ulysses",
    "p2p_cp": r"cp[ _-]?p2p|p2p[ _-]?cp|ring attention",
    "gather_cp": r"(?:cp[ _-]?)?all-?_?gather[ _-]cp|cp[ _-](?:all-?_?gather|ag)\b",
    "cp": r"\bcp\b|\bcp[_>=]\w*|context[- _]parallel\w*|\w+[-_]cp\b",
    "thd": r"\bthd\b|pack(?:ed|ing)(?![- ]?(?:moe|expert|weight|fp8|bit))|var[- ]?len\b|"
    r"cu_?_?seq_?lens?|padding[-_ ]free|remove[-_ ]padding",
    "mtp": r"\bmtp\b|mtp_\w+|multi[- ]token[- ]prediction",
    "aux_loss": r"aux(?:iliary)?[- _]loss(?:es)?|load[- ]balanc\w* loss",
    "flex": r"deep[- ]?ep|hybrid[- ]?ep\b|flex[- _]dispatcher",
    "alltoall": r"all-?to-?all dispatcher|token dispatcher",
    "shared_experts": r"shared[-_ ]experts?",
    "router_replay": r"rout(?:er|ing)[-_ ]replay|\br3\b",
    "ep_overlap": r"overlap_moe_expert_parallel\w*|ep[- ]overlap|(?:moe|ep|a2a)[- ](?:a2a )?(?:comm )?overlap|1f1b",
    "moe": r"\bmoe\b|\bmoe_\w+|\w+_moe\b|experts?\b|\brouter\b|routing|grouped[- _]?(?:gemm|mlp|linear)|permut\w+",
    "ep": r"\bep\b|\bep_\w+|expert[- ](?:model[- ])?parallel\w*",
    "etp": r"\betp\b|expert[- _]tensor[- _]parallel\w*",
    "dsa": r"\bdsa\b|indexer|deepseek[- ]?v?3\.2",
    "gdn": r"\bgdn\b|gated[- _]?delta\w*|linear[- ]attention",
    "mla": r"\bmla\b|latent[- ]attention",
    "mamba": r"mamba\w*|\bssm\b|hybrid[- ](?:model|layer|stack|mamba)s?",
    "vpp": r"\bvpp\b|vp[_ ](?:size|stage)|virtual[- _](?:pipeline|stages?|pp)\w*|interleav\w+",
    "stages": r"uneven|pipeline[- _](?:model[- _]parallel[- _])?layout|"
    r"(?:first|last)[- _](?:pipeline )?stage|account[- _]for",
    "pp": r"\bpp\b|\bpp[_>=]\w*|pipeline\w*|p2p (?:comm|send|recv)\w*",
    "tp": r"\btp\b|\btp[_>=]\w*|tensor[- _](?:model[- _])?parallel\w*",
    "sp": r"\bsp\b|sequence[- _]parallel\w*",
    "mxfp8": r"mx-?fp8",
    "blockwise": r"block-?wise|block[- ]scal\w+",
    "fp8": r"\bfp8\b|fp8_\w+|float8\w*",
    "torch_fsdp2": r"torch[- _]?fsdp2?|\bfsdp2",
    "fsdp": r"\bm?fsdp\b|megatron-?fsdp|\bzero-?[123]\b|double[- ]buffer\w*",
    "dist_opt": r"dist(?:ributed)?[-_ ]?opt(?:imizer)?\b",
    "graphs": r"cuda[-_ ]?graphs?|graph capture|\bcg\b",
    "recompute": r"recomput\w*|activation[- _]checkpoint\w*|gradient[- _]checkpoint\w*",
    "tp_overlap": r"tp_comm_overlap|userbuffers?|\bub\b|tp[- ]overlap|comm\+gemm",
    "swa": r"\bswa\b|sliding[- _]window|window[- _](?:size|attention)",
    "sinks": r"attention[- ]sinks?|sink[- ]attention|softmax[- _](?:type|offset)|\bsinks?\b",
    "mrope": r"\bm-?rope\b|multimodal[- ]rotary",
    "yarn": r"\byarn\b",
    "rope_fusion": r"fused[- _]rope|rope[- _]fusion|apply_rope_fusion",
    "vision": r"\bvlms?\b|\bvl\b|[- ]?vl\b|vision|multi-?modal|\bmllms?\b|\bvit\b|\bomni\b|images?\b|video",
    "fused_loss": r"cross[- _]?entropy|(?:fused|fusion)[- _](?:linear[- _])?ce\b|ce loss",
    "max_logit": r"log_max_attention_logit|max[- ]attention[- ]logit",
    "rope_scaling": r"rope[-_ ]scaling",
    "restart": r"in-?process[- ]restart\w*",
    "energon": r"energon",
    "attention": r"attention|fused_attn\w*|\bdpa\b|flash-?_?attn",
    "qk_clip": r"qk[-_ ]?clip",
    "token_loss": r"per[-_ ]token[-_ ]loss",
    "tied": r"tied?\b.*embedd\w+|share_embeddings\w*|tied[- _]embedd\w+|tie_word\w*|shared[- _]embedd\w+",
    "deterministic": r"determinis\w+",
    "dynamic_bsz": r"dynamic[-_ ](?:bsz|batch\w*)",
    "distillation": r"distill\w*",
    "ramp": r"ramp-?up",
    "policy": r"grpo|gspo|\bppo\b|\bkl\b|critic|advantages?|value loss|policy loss|log[-_ ]?probs?|temperature|entropy|"
    r"\bclip\w*|importance",
    "rlhf": r"grpo|\bdpo\b|\bkto\b|\bgkd\b|\bkl\b|rlhf|advantages?|log[-_ ]?probs?|entropy|importance",
    "gradients": r"grad(?:ient)?s?[-_ ]?(?:norm|clip\w*|scal\w*|reduc\w*|accum\w*|sync\w*)|\bwgrads?\b|main_grad|"
    r"loss[-_ ](?:mask\w*|scal\w+|aggregat\w+|normali[sz]\w+|averag\w+|comput\w+|calculat\w+)|"
    r"optimizer states?|num_tokens",
    "save": r"checkpoints?(?!ing)\b|dist[-_ ]?ckpt|\bckpts?\b|resum\w+",
}
"""Topic -> its words. A more special topic stands above the general one whose words it takes."""
OWN = ("policy", "rlhf")
"""Topics of some projects only, whose words mean something else in the others."""
_TOPICS = {name: re.compile(words, re.I) for name, words in TOPIC_WORDS.items()}
_SPECIAL = {
    "recompute": ("save",),  # "activation checkpointing"
    "shared_experts": ("moe",),
    "flex": ("moe",),
    "mxfp8": ("fp8",),
    "blockwise": ("fp8",),
    "torch_fsdp2": ("fsdp",),
    "mrope": (),
    "aux_loss": ("moe",),
    "router_replay": ("moe",),
    "alltoall": ("moe",),
    "etp": ("tp", "ep", "moe"),
    "ep_overlap": ("ep", "moe"),
    "ep": ("moe",),
    "a2a_cp": ("cp",),
    "p2p_cp": ("cp", "pp"),
    "gather_cp": ("cp",),
    "dynamic_cp": ("cp",),
    "vpp": ("pp",),
    "stages": ("pp",),
    "tp_overlap": ("tp",),
    "mla": ("attention",),
    "swa": ("attention",),
    "sinks": ("attention",),
    "gdn": ("attention",),
    "dsa": ("attention",),
    "max_logit": ("attention",),
    "energon": ("save",),
}
"""Topic -> topics that it implies, which need not be named beside it."""
_ELSEWHERE = re.compile(
    r"(?i)\b("
    # Serving and rollouts
    r"infer\w*|generat\w+ engine|engine|dynamic[- ]engine|prefill|decod\w+|kv[- ]?cache|speculative|vllm|sglang|trt\w*|"
    r"tensorrt|rollout\w*|sampl(?:er|ing)|server|router request|http|agent\w*|tool|sleep|wake|refit\w*|reshard\w*|"
    r"weight (?:sync|update|transfer)|reward model|genrm|nemo gym|gym|"
    # Conversion, quantization and distillation of finished models
    r"export\w*|convert\w*|conversion|modelopt|pruning|prune|qat|qad|ptq|"
    # What is printed, tested and explained
    r"wandb|tensorboard|clearml|swanlab|mlflow|telemetry|profil\w+|nsys|docs?|docstring|readme|(?<!inter-)document\w*|tests?|testing|"
    r"ut|ci|flaky|lint|typo\w*|typing|type[- ]?hints?|type[- ]?checker|mypy|warnings?|messages?|comments?|licen[sc]e|"
    r"theoretical|flops?|estimat\w+|example|script|demo|recipes?|"
    # How it is installed and started
    r"dependenc\w+|docker\w*|uv|pip|install\w*|build|compil\w+|packaging|bump|nightly|gui|ui|web|cli|yaml|argparse|"
    r"help|env|ray|nvrx|straggler|fault|"
    # Other hardware and frameworks
    r"npu|ascend|rocm|amd|hip|xpu|jax|veomni|torchtitan|automodel|dtensor|dcp|"
    # Other kinds of models
    r"gtp|mimo|bert|t5|retro|diffusion|diffus\w+|flux|wan|dit|bagel|audio|speech|tts|asr|embedding model|reranker|"
    # Changes that mend nothing
    r"revert|merge conflicts?|pr[-#]?\d+|minor fix(?:es)?|"
    r"refactor\w*|clean ?up|style|simplif\w+|improve\w*|optimi[sz]e|performance|perf|speed"
    r")\b"
)
"""What a training does not run, and changes that mend nothing."""
_UNSEEN = re.compile(
    r"(?i)\b(lora|dora|peft|adapters?|muon|offload\w*|nvfp4|fp4|mxfp4|rerun\w*|nccl[- ]?ub|emerging|layer-?wise|mup|"
    r"engram|hyper[- ]?connections?|mhc|async (?:save|checkpoint)|kitchen|batch[- ]invarian\w+|chunked|template|chat|"
    r"tokenizer\w*|dataset|data ?loader|eval\w*|validation|log(?:s|ger|ging)?|metrics?)\b"
)
"""Words about parts that are no topic: such a fix touches a launch only by the options that its change names."""
_OPTION = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_PLAIN = set(
    "num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels seq_length "
    "max_position_embeddings micro_batch_size global_batch_size train_iters train_samples tensor_model_parallel_size "
    "pipeline_model_parallel_size context_parallel_size expert_model_parallel_size expert_tensor_parallel_size "
    "sequence_parallel num_moe_experts num_experts vocab_size params_dtype data_path model_type world_size batch_size "
    "use_distributed_optimizer gradient_accumulation_fusion transformer_impl add_bias_linear normalization "
    "position_embedding_type rotary_base weight_decay adam_beta1 adam_beta2 lr_decay_style eval_iters eval_interval "
    "save_interval log_interval tokenizer_type tokenizer_model num_workers max_length pad_token_id layernorm_epsilon "
    "attention_dropout hidden_dropout init_method_std load_format trust_remote_code hf_config model_path "
    "train_batch_size loss_mask attention_mask position_ids n_gpus_per_node cp_comm_type "
    "virtual_pipeline_model_parallel_size model_name gradient_accumulation_steps input_ids max_steps num_epochs "
    "seq_len "
    "dataset_name tokenizer_path wandb_save_dir runtime_env env_vars hf_model_id test_mode override_transformer_config "
    "override_ddp_config max_seq_len save_dir ppo_epochs tp_size ckpt_format".split()
)
"""Options that a launch sets whatever it trains."""


_FAMILY = re.compile(
    r"(?i)\b(qwen[- _]?\d(?:[._]\d)?(?:[- _]?(?:next|vl|omni|moe))*|deep-?seek[- _]?v?\d?(?:[._]\d)?|"
    r"kimi[- _]?(?:k\d|vl|linear)?(?:\.\d)?|glm[- _]?\d?(?:[._]\d)?v?|gpt-?oss|nemotron[- _]?\w{0,6}|gemma[- _]?\d?n?|"
    r"llama[- _]?\d?(?:\.\d)?|minimax[- _]?\w{0,3}|mimo[- _]?v\d|olmo\w*|mistral\w*|ministral\w*|mixtral|ernie\w*|"
    r"bailing\w*|ling[- _]\w*|step[- _]?3\w*|internvl\w*|hunyuan\w*|llava\w*|falcon\w*|exaone\w*|"
    r"phi[- _]?\d?|moonlight)\b"
)


_QUANTIZED = re.compile(r"(?i)\bquantiz\w+")
"""A finished model's quantization; in Transformer Engine, what each layer does in training."""


def is_elsewhere(title: str, *, quantizes: bool = False) -> bool:
    """Whether a title is about something that a training does not run, or mends nothing.

    `quantizes`: the project's training itself quantizes.
    """
    return _ELSEWHERE.search(title) is not None or (not quantizes and _QUANTIZED.search(title) is not None)


def is_unseen(title: str) -> bool:
    """Whether a title is about a part that is no topic."""
    return _UNSEEN.search(title) is not None


def topics_of(title: str, own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The topics that a title names, those that only some projects have only where they are its own."""
    named = {name for name, pattern in _TOPICS.items() if pattern.search(title) and (name not in OWN or name in own)}
    return without_general(named)


def without_general(named: set[str]) -> tuple[str, ...]:
    """The topics without those that another one implies."""
    named = named - {general for special in named for general in _SPECIAL.get(special, ())}
    return tuple(name for name in _TOPICS if name in named)


def families_of(title: str) -> tuple[str, ...]:
    """The families of models that a title names, in letters and digits."""
    found = (re.sub(r"[^a-z0-9.]", "", match.lower()) for match in _FAMILY.findall(title))
    return tuple(dict.fromkeys(found))


def options_of(title: str, lines: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """The options that a title and changed lines name, without those that say little of a launch."""
    text = "\n".join((title.replace("--", "").replace("-", "_"), *lines))
    return tuple(name for name in dict.fromkeys(_OPTION.findall(text)) if name in known and name not in _PLAIN)
