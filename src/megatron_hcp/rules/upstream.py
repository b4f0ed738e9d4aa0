"""The upstream files that rules cite, each defined once.

A rule cites a file's content, never a line number: `PARALLEL_STATE.says("initialize_model_parallel", "...")`.
"""

from __future__ import annotations

from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.rules.rule import Branch, Repo, Source, Where


class UpstreamFile(NamedTuple):
    """A file of an upstream repository, as its wheel lays it out (Megatron-Bridge's checkout has it under src/)."""

    repo: Repo
    path: str
    where: Where = "pypi"

    def says(
        self,
        qualname: str,
        contains: str = "",
        versions: str = "",
        *,
        absent: str = "",
        where: Where | None = None,
        branches: tuple[Branch, ...] = ("main", "dev"),
    ) -> Source:
        """What the function or class `qualname` contains, and what is absent from it, in these versions and branches.

        `where` is for content that so far is only in the repository, not in a release on PyPI.
        """
        return Source(self.repo, self.path, qualname, contains, versions, where or self.where, absent, branches)


_TE_ATTENTION = "transformer_engine/pytorch/attention/dot_product_attention/"

ARGUMENTS = UpstreamFile("megatron-lm", "megatron/training/arguments.py", "checkout")
ARGUMENT_UTILS = UpstreamFile("megatron-lm", "megatron/training/argument_utils.py", "checkout")
DETERMINISM = UpstreamFile("megatron-lm", "megatron/training/determinism.py", "checkout")
GLOBAL_VARS = UpstreamFile("megatron-lm", "megatron/training/global_vars.py", "checkout")
LM_DATA_SCHEDULE = UpstreamFile("megatron-lm", "megatron/core/datasets/data_schedule.py", "checkout")
LM_LANGUAGE_MODULE = UpstreamFile(
    "megatron-lm", "megatron/core/models/common/language_module/language_module.py", "checkout"
)
PRETRAIN_GPT = UpstreamFile("megatron-lm", "pretrain_gpt.py", "checkout")
PRETRAIN_VLM = UpstreamFile("megatron-lm", "pretrain_vlm.py", "checkout")
SFT_DATASET = UpstreamFile("megatron-lm", "megatron/training/datasets/sft_dataset.py", "checkout")
TRAINING_UTILS = UpstreamFile("megatron-lm", "megatron/training/utils.py", "checkout")
TRAINING_CONFIG = UpstreamFile("megatron-lm", "megatron/training/config/training_config.py", "checkout")
TRAINING = UpstreamFile("megatron-lm", "megatron/training/training.py", "checkout")

CORE_UTILS = UpstreamFile("megatron-core", "megatron/core/utils.py", "checkout")
DATA_SCHEDULE = UpstreamFile("megatron-core", "megatron/core/datasets/data_schedule.py")
DDP = UpstreamFile("megatron-core", "megatron/core/distributed/distributed_data_parallel.py")
DIST_CHECKPOINTING = UpstreamFile("megatron-core", "megatron/core/dist_checkpointing/serialization.py")
EXTENSION_TE = UpstreamFile("megatron-core", "megatron/core/extensions/transformer_engine.py")
FINALIZE_MODEL_GRADS = UpstreamFile("megatron-core", "megatron/core/distributed/finalize_model_grads.py")
FSDP_ADAPTER = UpstreamFile("megatron-core", "megatron/core/distributed/fsdp/mcore_fsdp_adapter.py", "checkout")
GATED_DELTA_NET = UpstreamFile("megatron-core", "megatron/core/ssm/gated_delta_net.py")
GATED_DELTA_NETS = UpstreamFile("megatron-core", "megatron/core/ssm/gated_delta_net/gdn.py")
COMBINED_1F1B = UpstreamFile("megatron-core", "megatron/core/pipeline_parallel/combined_1f1b.py")
OVERLAPPED_GPT = UpstreamFile("megatron-core", "megatron/core/models/gpt/fine_grained_callables.py")
OVERLAPPED = UpstreamFile("megatron-core", "megatron/core/models/common/fine_grained_callables.py")
GPT_DATASET = UpstreamFile("megatron-core", "megatron/core/datasets/gpt_dataset.py")
HYBRID_CP_SCHEDULE = UpstreamFile("megatron-core", "megatron/core/pipeline_parallel/hybrid_cp_schedule.py")
HYBRID_ALLOCATION = UpstreamFile("megatron-core", "megatron/core/models/hybrid/hybrid_layer_allocation.py", "checkout")
LANGUAGE_MODULE = UpstreamFile("megatron-core", "megatron/core/models/common/language_module/language_module.py")
ROTARY_POS_EMBEDDING = UpstreamFile("megatron-core", "megatron/core/models/common/embeddings/rotary_pos_embedding.py")
CORE_ATTENTION = UpstreamFile("megatron-core", "megatron/core/transformer/attention.py")
CORE_DOT_PRODUCT_ATTENTION = UpstreamFile("megatron-core", "megatron/core/transformer/dot_product_attention.py")
GPT_MODEL = UpstreamFile("megatron-core", "megatron/core/models/gpt/gpt_model.py")
MAMBA_BLOCK = UpstreamFile("megatron-core", "megatron/core/ssm/mamba_block.py")
MAMBA_CONTEXT_PARALLEL = UpstreamFile("megatron-core", "megatron/core/ssm/mamba_context_parallel.py")
MAMBA_MIXER = UpstreamFile("megatron-core", "megatron/core/ssm/mamba_mixer.py")
MAPPINGS = UpstreamFile("megatron-core", "megatron/core/tensor_parallel/mappings.py")
MICROBATCHES = UpstreamFile("megatron-core", "megatron/core/num_microbatches_calculator.py")
MODEL_PARALLEL_CONFIG = UpstreamFile("megatron-core", "megatron/core/model_parallel_config.py")
MOE_LAYER = UpstreamFile("megatron-core", "megatron/core/transformer/moe/moe_layer.py")
MOE_UTILS = UpstreamFile("megatron-core", "megatron/core/transformer/moe/moe_utils.py")
MULTI_LATENT_ATTENTION = UpstreamFile("megatron-core", "megatron/core/transformer/multi_latent_attention.py")
MULTI_TOKEN_PREDICTION = UpstreamFile("megatron-core", "megatron/core/transformer/multi_token_prediction.py")
NVRX_STRATEGY = UpstreamFile("megatron-core", "megatron/core/dist_checkpointing/strategies/nvrx.py")
OPTIMIZER_CONFIG = UpstreamFile("megatron-core", "megatron/core/optimizer/optimizer_config.py")
OPTIMIZER_PARAM_SCHEDULER = UpstreamFile("megatron-core", "megatron/core/optimizer_param_scheduler.py")
PARALLEL_STATE = UpstreamFile("megatron-core", "megatron/core/parallel_state.py")
ROUTER = UpstreamFile("megatron-core", "megatron/core/transformer/moe/router.py")
PIPELINE_LAYOUT = UpstreamFile("megatron-core", "megatron/core/transformer/pipeline_parallel_layer_layout.py")
SCHEDULES = UpstreamFile("megatron-core", "megatron/core/pipeline_parallel/schedules.py")
TENSOR_PARALLEL_LAYERS = UpstreamFile("megatron-core", "megatron/core/tensor_parallel/layers.py")
TORCH_FSDP2 = UpstreamFile("megatron-core", "megatron/core/distributed/torch_fully_sharded_data_parallel.py")
TRANSFORMER_BLOCK = UpstreamFile("megatron-core", "megatron/core/transformer/transformer_block.py")
TRANSFORMER_CONFIG = UpstreamFile("megatron-core", "megatron/core/transformer/transformer_config.py")
TRANSFORMER_LAYER = UpstreamFile("megatron-core", "megatron/core/transformer/transformer_layer.py")
TRANSFORMER_UTILS = UpstreamFile("megatron-core", "megatron/core/transformer/utils.py")
UNIFIED_MEMORY = UpstreamFile("megatron-core", "megatron/core/inference/unified_memory.py")

BRIDGE_COMM_OVERLAP = UpstreamFile("megatron-bridge", "megatron/bridge/training/comm_overlap.py")
BRIDGE_CONFIG = UpstreamFile("megatron-bridge", "megatron/bridge/training/config.py")
BRIDGE_EVAL_CP = UpstreamFile(
    "megatron-bridge", "megatron/bridge/training/eval_context_parallel_rebinding.py", "checkout"
)
BRIDGE_FAULT_TOLERANCE = UpstreamFile("megatron-bridge", "megatron/bridge/training/fault_tolerance.py")
BRIDGE_QWEN25_OMNI = UpstreamFile(
    "megatron-bridge", "megatron/bridge/models/qwen_omni/modeling_qwen25_omni/thinker_model.py"
)
BRIDGE_QWEN3_OMNI = UpstreamFile(
    "megatron-bridge", "megatron/bridge/models/qwen_omni/modeling_qwen3_omni/thinker_model.py"
)
BRIDGE_GEMMA2 = UpstreamFile("megatron-bridge", "megatron/bridge/models/gemma/gemma2_provider.py")
BRIDGE_GEMMA3_VL_MODEL = UpstreamFile("megatron-bridge", "megatron/bridge/models/gemma_vl/modeling_gemma3_vl.py")
BRIDGE_GEMMA4_PROVIDER = UpstreamFile("megatron-bridge", "megatron/bridge/models/gemma/gemma4_provider.py", "checkout")
BRIDGE_KIMI_VL = UpstreamFile("megatron-bridge", "megatron/bridge/models/kimi_vl/modeling_kimi_k25_vl.py", "checkout")
BRIDGE_LLAMA = UpstreamFile("megatron-bridge", "megatron/bridge/models/llama/llama_bridge.py")
BRIDGE_MIMO_V2_FLASH_MODEL = UpstreamFile(
    "megatron-bridge", "megatron/bridge/models/mimo_v2_flash/modeling_mimo_v2_flash.py", "checkout"
)
BRIDGE_MODEL_BRIDGE = UpstreamFile("megatron-bridge", "megatron/bridge/models/conversion/model_bridge.py")
BRIDGE_QWEN3 = UpstreamFile("megatron-bridge", "megatron/bridge/models/qwen/qwen3_bridge.py")
BRIDGE_VLM_STEP = UpstreamFile("megatron-bridge", "megatron/bridge/training/vlm_step.py")
BRIDGE_GEMMA3_VL = UpstreamFile("megatron-bridge", "megatron/bridge/models/gemma_vl/gemma3_vl_provider.py", "checkout")
BRIDGE_GEMMA4 = UpstreamFile("megatron-bridge", "megatron/bridge/models/gemma/modeling_gemma4.py", "checkout")
BRIDGE_GPT_STEP = UpstreamFile("megatron-bridge", "megatron/bridge/training/gpt_step.py")
BRIDGE_HYBRID_PROVIDER = UpstreamFile("megatron-bridge", "megatron/bridge/models/hybrid/hybrid_provider.py", "checkout")
BRIDGE_INITIALIZE = UpstreamFile("megatron-bridge", "megatron/bridge/training/initialize.py", "checkout")
BRIDGE_INPROCESS_RESTART = UpstreamFile("megatron-bridge", "megatron/bridge/training/inprocess_restart.py")
BRIDGE_LOADERS = UpstreamFile("megatron-bridge", "megatron/bridge/data/loaders.py", "checkout")
BRIDGE_LOAD_SAVE = UpstreamFile("megatron-bridge", "megatron/bridge/training/model_load_save.py")
BRIDGE_MIMO_V2_FLASH = UpstreamFile(
    "megatron-bridge", "megatron/bridge/models/mimo_v2_flash/mimo_v2_flash_provider.py", "checkout"
)
BRIDGE_MIXED_PRECISION = UpstreamFile("megatron-bridge", "megatron/bridge/training/mixed_precision.py")
BRIDGE_MOE_DOC = UpstreamFile("megatron-bridge", "docs/training/moe-optimization.md", "checkout")
BRIDGE_OMEGACONF = UpstreamFile("megatron-bridge", "megatron/bridge/training/utils/omegaconf_utils.py")
BRIDGE_PACKED_SEQUENCE = UpstreamFile("megatron-bridge", "megatron/bridge/data/datasets/packed_sequence.py")
BRIDGE_PACKED_SEQ_UTILS = UpstreamFile(
    "megatron-bridge", "megatron/bridge/training/utils/packed_seq_utils.py", "checkout"
)
BRIDGE_PACKING_CONFIG = UpstreamFile("megatron-bridge", "megatron/bridge/data/packing/config.py", "checkout")
BRIDGE_PROVIDER = UpstreamFile("megatron-bridge", "megatron/bridge/models/model_provider.py")
BRIDGE_QWEN3_VL = UpstreamFile(
    "megatron-bridge", "megatron/bridge/models/qwen_vl/modelling_qwen3_vl/model.py", "checkout"
)
BRIDGE_RUN_PLUGINS = UpstreamFile("megatron-bridge", "megatron/bridge/recipes/run_plugins.py", "checkout")
BRIDGE_SBATCH = UpstreamFile("megatron-bridge", "scripts/training/launch_with_sbatch.sh", "checkout")
BRIDGE_SFT_CONFIG = UpstreamFile("megatron-bridge", "megatron/bridge/data/builders/gpt_sft.py", "checkout")
BRIDGE_STATE = UpstreamFile("megatron-bridge", "megatron/bridge/training/state.py", "checkout")
BRIDGE_TRANSFORMER_CONFIG = UpstreamFile("megatron-bridge", "megatron/bridge/models/transformer_config.py", "checkout")

TE_ATTENTION_BEFORE_2_3 = UpstreamFile("transformer-engine", "transformer_engine/pytorch/attention.py")
TE_BACKENDS = UpstreamFile("transformer-engine", _TE_ATTENTION + "backends.py")
TE_CONTEXT_PARALLEL = UpstreamFile("transformer-engine", _TE_ATTENTION + "context_parallel.py")
TE_CPU_OFFLOAD = UpstreamFile("transformer-engine", "transformer_engine/pytorch/cpu_offload.py")
TE_CP_TEST = UpstreamFile("transformer-engine", "tests/pytorch/attention/test_attention_with_cp.py", "checkout")
TE_DOT_PRODUCT_ATTENTION = UpstreamFile("transformer-engine", _TE_ATTENTION + "dot_product_attention.py")
TE_ATTENTION_UTILS = UpstreamFile("transformer-engine", _TE_ATTENTION + "utils.py")
TE_FUSED_ATTN = UpstreamFile("transformer-engine", "transformer_engine/common/fused_attn/fused_attn.cpp", "checkout")
TE_FP8 = UpstreamFile("transformer-engine", "transformer_engine/pytorch/fp8.py")
TE_GROUPED_LINEAR = UpstreamFile("transformer-engine", "transformer_engine/pytorch/module/grouped_linear.py")
TE_MXFP8_TENSOR = UpstreamFile("transformer-engine", "transformer_engine/pytorch/tensor/mxfp8_tensor.py")
TE_QUANTIZATION = UpstreamFile("transformer-engine", "transformer_engine/pytorch/quantization.py")
TE_UTILS = UpstreamFile("transformer-engine", "transformer_engine/pytorch/utils.py")

VERL_ACTOR_CONFIG = UpstreamFile("verl", "verl/workers/config/actor.py")
VERL_BALANCING = UpstreamFile("verl", "verl/utils/seqlen_balancing.py")
VERL_CONFIG = UpstreamFile("verl", "verl/utils/config.py")
VERL_CRITIC_CONFIG = UpstreamFile("verl", "verl/workers/config/critic.py")
VERL_DYNAMIC_CP_SCHEDULER = UpstreamFile("verl", "verl/utils/dynamic_cp_scheduler.py")
VERL_ENGINE = UpstreamFile("verl", "verl/workers/engine/megatron/transformer_impl.py")
VERL_ENGINE_CONFIG = UpstreamFile("verl", "verl/workers/config/engine.py")
VERL_ENGINE_WORKERS = UpstreamFile("verl", "verl/workers/engine_workers.py")
VERL_ENGINE_UTILS = UpstreamFile("verl", "verl/workers/engine/utils.py")
VERL_FUSED = UpstreamFile("verl", "verl/models/mcore/model_forward_fused.py")
VERL_MAIN_PPO = UpstreamFile("verl", "verl/trainer/main_ppo.py")
VERL_MCORE_UTIL = UpstreamFile("verl", "verl/models/mcore/util.py")
VERL_MCORE_PATCH = UpstreamFile("verl", "verl/models/mcore/patch_v012.py", "checkout")
VERL_MEGATRON_UTILS = UpstreamFile("verl", "verl/utils/megatron_utils.py")
VERL_MEGATRON_ACTOR = UpstreamFile("verl", "verl/workers/actor/megatron_actor.py")
VERL_MODEL_FORWARD = UpstreamFile("verl", "verl/models/mcore/model_forward.py")
VERL_MODEL_INITIALIZER = UpstreamFile("verl", "verl/models/mcore/model_initializer.py")
VERL_OPTIMIZER_CONFIG = UpstreamFile("verl", "verl/workers/config/optimizer.py")
VERL_ROLLOUT_CONFIG = UpstreamFile("verl", "verl/workers/config/rollout.py")
VERL_QWEN25_VL = UpstreamFile("verl", "verl/models/mcore/qwen2_5_vl/model.py")
VERL_RAY_ON_SLURM = UpstreamFile("verl", "examples/tutorial/slurm/ray_on_slurm.slurm", "checkout")
VERL_REGISTRY = UpstreamFile("verl", "verl/models/mcore/registry.py")
VERL_TENSORDICT_UTILS = UpstreamFile("verl", "verl/utils/tensordict_utils.py")

OWN = MODEL_PARALLEL_CONFIG.says("ModelParallelConfig", "context_parallel_size", ">=0.12")
"""What rules about the check itself cite: they don't depend on upstream."""

NEMO_RL_AUTOMODEL = UpstreamFile("nemo-rl", "nemo_rl/models/automodel/setup.py", "checkout")
NEMO_RL_COMMON = UpstreamFile("nemo-rl", "nemo_rl/models/megatron/common.py", "checkout")
NEMO_RL_DATA = UpstreamFile("nemo-rl", "nemo_rl/models/megatron/data.py", "checkout")
NEMO_RL_DICT = UpstreamFile("nemo-rl", "nemo_rl/distributed/batched_data_dict.py", "checkout")
NEMO_RL_DPO = UpstreamFile("nemo-rl", "nemo_rl/algorithms/dpo.py", "checkout")
NEMO_RL_DTENSOR = UpstreamFile("nemo-rl", "nemo_rl/models/policy/workers/dtensor_policy_worker.py", "checkout")
NEMO_RL_FUSED = UpstreamFile("nemo-rl", "nemo_rl/distributed/model_utils.py", "checkout")
NEMO_RL_GRPO = UpstreamFile("nemo-rl", "nemo_rl/algorithms/grpo.py", "checkout")
NEMO_RL_PACKING = UpstreamFile("nemo-rl", "nemo_rl/data/packing/algorithms.py", "checkout")
NEMO_RL_POLICY = UpstreamFile("nemo-rl", "nemo_rl/models/policy/lm_policy.py", "checkout")
NEMO_RL_WORKER_04 = UpstreamFile("nemo-rl", "nemo_rl/models/policy/megatron_policy_worker.py", "checkout")
NEMO_RL_SETUP = UpstreamFile("nemo-rl", "nemo_rl/models/megatron/setup.py", "checkout")

NVRX_LAUNCHER = UpstreamFile(
    "nvidia-resiliency-ext", "src/nvidia_resiliency_ext/fault_tolerance/launcher.py", "checkout"
)
NVRX_RANK_MONITOR = UpstreamFile(
    "nvidia-resiliency-ext", "src/nvidia_resiliency_ext/fault_tolerance/rank_monitor_client.py", "checkout"
)

MS_SWIFT_PIPELINE = UpstreamFile("ms-swift", "swift/pipelines/base.py", "checkout")
MS_SWIFT_ARGUMENTS = UpstreamFile("ms-swift", "swift/megatron/arguments/megatron_args.py", "checkout")

MS_SWIFT_TEMPLATE_3 = UpstreamFile("ms-swift", "swift/llm/template/base.py", "checkout")
MS_SWIFT_BASE_ARGUMENTS = UpstreamFile("ms-swift", "swift/arguments/base_args/base_args.py", "checkout")
MS_SWIFT_GRPO = UpstreamFile("ms-swift", "swift/megatron/trainers/grpo_trainer.py", "checkout")
MS_SWIFT_GRPO_DATA = UpstreamFile("ms-swift", "swift/rlhf_trainers/utils.py", "checkout")
MS_SWIFT_INIT = UpstreamFile("ms-swift", "swift/megatron/init.py", "checkout")
MS_SWIFT_KTO = UpstreamFile("ms-swift", "swift/megatron/trainers/kto_trainer.py", "checkout")
MS_SWIFT_MM_MODEL = UpstreamFile("ms-swift", "swift/megatron/model/mm_gpt_model.py", "checkout")
MS_SWIFT_PROVIDER = UpstreamFile("ms-swift", "swift/megatron/trainers/utils.py", "checkout")
MS_SWIFT_QWEN3_NEXT = UpstreamFile("ms-swift", "swift/megatron/model/gpt/qwen3_next.py", "checkout")
MS_SWIFT_QWEN3_VL = UpstreamFile("ms-swift", "swift/megatron/model/mm_gpt/qwen3_vl.py", "checkout")
MS_SWIFT_REQUIREMENTS = UpstreamFile("ms-swift", "requirements/megatron.txt", "checkout")
MS_SWIFT_BASE_TRAINER = UpstreamFile("ms-swift", "swift/megatron/trainers/base.py", "checkout")
MS_SWIFT_UTILS = UpstreamFile("ms-swift", "swift/megatron/utils/utils.py", "checkout")

MILES_ACTOR = UpstreamFile("miles", "miles/backends/megatron_utils/actor.py", "checkout")
MILES_ADVANTAGES = UpstreamFile("miles", "miles/backends/training_utils/loss_hub/advantages.py", "checkout")
MILES_ARGUMENTS = UpstreamFile("miles", "miles/utils/arguments.py", "checkout")
MILES_MODEL = UpstreamFile("miles", "miles/backends/megatron_utils/model.py", "checkout")
SLIME_ACTOR = UpstreamFile("slime", "slime/backends/megatron_utils/actor.py", "checkout")
SLIME_ARGUMENTS = UpstreamFile("slime", "slime/utils/arguments.py", "checkout")
SLIME_DATA = UpstreamFile("slime", "slime/backends/megatron_utils/data.py", "checkout")
SLIME_HF_ATTENTION = UpstreamFile("slime", "slime_plugins/models/hf_attention.py", "checkout")
SLIME_LOSS = UpstreamFile("slime", "slime/backends/megatron_utils/loss.py", "checkout")
SLIME_MEGATRON_ARGUMENTS = UpstreamFile("slime", "slime/backends/megatron_utils/arguments.py", "checkout")
SLIME_MODEL = UpstreamFile("slime", "slime/backends/megatron_utils/model.py", "checkout")
SLIME_PROVIDER = UpstreamFile("slime", "slime/backends/megatron_utils/model_provider.py", "checkout")
SLIME_QWEN3_NEXT = UpstreamFile("slime", "slime_plugins/models/qwen3_next.py", "checkout")
SLIME_WHITEN = UpstreamFile("slime", "slime/utils/distributed_utils.py", "checkout")
SLIME_DEBUG = UpstreamFile("slime", "docs/en/developer_guide/debug.md", "checkout")
SLIME_SCHEDULE = UpstreamFile("slime", "slime/utils/dp_schedule.py", "checkout")
