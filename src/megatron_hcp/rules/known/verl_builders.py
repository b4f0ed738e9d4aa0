"""Known bugs in how verl builds and drives Megatron's models."""

from __future__ import annotations

from megatron_hcp.rules.known.condition import TIED
from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import VERL_ENGINE, VERL_FUSED, VERL_MCORE_UTIL, VERL_MEGATRON_UTILS

_ACTOR = "actor_rollout_ref.actor"
_START = f"{_ACTOR}.use_dynamic_bsz=True actor_rollout_ref.model.path="
_CP = f"{_ACTOR}.megatron.context_parallel_size=2 actor_rollout_ref.model.use_remove_padding=True"
_REPLAY = f"{_ACTOR}.megatron.router_replay.mode=R3"
_OWN_MODEL = f"{_START}Qwen/Qwen3-8B {_ACTOR}.megatron.use_mbridge="
_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN075",
        "verl",
        ">=0.7.1,<0.9",
        when="not vanilla_mbridge and vanilla_mbridge != null and not mtp_enable "
        "and model_name names qwen35 qwen36 glm45 glm46 glm47 mimo7b deepseekv3",
        title="mtp.enable=False reaches Megatron-Bridge",
        why="verl clears the layers in its own copy of the config, and Megatron-Bridge reads the model's folder again. "
        "Before megatron-core 0.17 they ask for labels, which verl doesn't pass.",
        symptom="Megatron-Bridge builds the model's MTP layers although mtp.enable is off: they take memory; before "
        "megatron-core 0.17 the first forward pass fails",
        issue="verl-project/verl#6626",
        outcome="warning crash first-forward",
        source=(
            VERL_MEGATRON_UTILS.says(
                "check_mtp_config",
                absent='override_transformer_config["mtp_num_layers"] = None',
                versions=">=0.7.1,<0.9",
            ),
        ),
        launch=Example("verl", f"{_START}Qwen/Qwen3.5-35B-A3B {_ACTOR}.megatron.vanilla_mbridge=False", "verl=0.8"),
        instead="override_transformer_config.mtp_num_layers null",
    ),
    Known(
        "KNOWN076",
        "verl",
        ">=0.8,<0.9",
        when="router_replay in R2 R3 and cp > 1",
        title="Recorded routes are padded for CP",
        why="Each sequence's routes are padded where they have fewer numbers, not fewer tokens, than the alignment: a "
        "rank beyond the end of a short sequence copies an empty slice.",
        symptom="a sequence shorter than the alignment (2 x CP x TP tokens) ends the step with a RuntimeError: its "
        "recorded routes aren't padded",
        issue="verl-project/verl#7261",
        outcome="warning crash training",
        source=(VERL_MCORE_UTIL.says("preprocess_thd_engine", "if d.numel() < align_size:", ">=0.8,<0.9"),),
        launch=Example("verl", f"{_START}Qwen/Qwen3-30B-A3B {_CP} {_REPLAY}", "verl=0.8"),
        instead="router_replay.mode disabled",
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN077",
        "verl",
        ">=0.7,<0.8",
        when="router_replay in R2 R3 and mla and vanilla_mbridge != false",
        title="Router replay works with latent attention",
        why="enable_routing_replay is passed to the constructor of MLATransformerConfig, which only knows its fields.",
        symptom="MLATransformerConfig rejects enable_routing_replay: building the model fails with a TypeError",
        issue="verl-project/verl#5884",
        outcome="error crash init",
        source=(
            VERL_ENGINE.says(
                "MegatronEngine._build_tf_config",
                'override_transformer_config["enable_routing_replay"] = True',
                ">=0.7.1,<0.8",
            ),
        ),
        launch=Example("verl", f"{_START}deepseek-ai/DeepSeek-V3 {_REPLAY}", "verl=0.7.1 mla=true"),
        instead="router_replay.mode disabled",
    ),
    Known(
        "KNOWN078",
        "verl",
        "<0.8",
        when="mcore >= 0.17 and not use_mbridge",
        title="verl's own models use what megatron-core has",
        why="get_model refers to ModelType.encoder_and_decoder, which megatron-core 0.17 removed.",
        symptom="verl's own models need ModelType.encoder_and_decoder, which this megatron-core lacks: building the "
        "model fails with an AttributeError",
        issue="verl-project/verl#6927",
        outcome="error crash init",
        source=(VERL_MEGATRON_UTILS.says("get_model", "== ModelType.encoder_and_decoder:", ">=0.4,<0.9"),),
        launch=Example("verl", f"{_OWN_MODEL}False", "verl=0.7 mcore=0.17"),
        good=Example("verl", f"{_OWN_MODEL}True", "verl=0.7 mcore=0.17"),
        instead="use_mbridge True",
        fixes=(Fix({"use_mbridge": True}, "a bridge builds the model"),),
    ),
    Known(
        "KNOWN110",
        "verl",
        ">=0.8",
        when="not use_mbridge",
        title="A bridge builds verl's models",
        why="The engine, which trains everything from 0.8 on, asserts use_mbridge: verl's own models are gone.",
        symptom="verl no longer builds models without a bridge: start-up fails, use_mbridge must be True",
        issue="verl/models/mcore/readme.md",
        outcome="error crash init",
        source=(VERL_ENGINE.says("MegatronEngine.__init__", "use_mbridge must be True", ">=0.8"),),
        launch=Example("verl", f"{_OWN_MODEL}False"),
        good=Example("verl", f"{_OWN_MODEL}True", "verl=0.8"),
        instead="use_mbridge True",
        fixes=(Fix({"use_mbridge": True}, "a bridge builds the model"),),
    ),
    Known(
        "KNOWN111",
        "verl",
        ">=0.5,<0.7",
        when=f"fused_linear_logprobs and pp = 1 and model_name {TIED}",
        title="The fused loss finds the output weight that the embedding shares",
        why="It reads output_layer.weight, which is None where the weight is the embedding's. The last stage of a "
        "pipeline has a copy of its own.",
        symptom="use_fused_kernels finds no output weight, because the model shares it with its embedding: "
        "AttributeError in the first forward pass",
        issue="verl-project/verl#4174",
        outcome="error crash first-forward",
        source=(VERL_FUSED.says("_fused_GPTModel_forward", "output_layer.weight,", ">=0.5,<0.7", where="checkout"),),
        launch=Example(
            "verl",
            f"{_START}Qwen/Qwen3-0.6B {_ACTOR}.megatron.tensor_model_parallel_size=2 "
            "actor_rollout_ref.model.use_fused_kernels=True",
        ),
        fixes=(Fix({"fused_linear_logprobs": False}, "logits are computed"),),
    ),
    Known(
        "KNOWN079",
        "verl",
        ">=0.7.1,<0.8",
        when="mtp_enable and cp > 1",
        title="All CP ranks reduce the loss of the MTP layers",
        why="The engine (fine-tuning, and PPO with use_legacy_worker_impl=disable) collects it on the first CP rank "
        "only, with a reduction over all of them.",
        symptom="when the engine trains (not the legacy workers), the first step hangs: only CP rank 0 reduces "
        "the loss of the MTP layers",
        issue="verl-project/verl#5895",
        outcome="warning hang training",
        source=(
            VERL_ENGINE.says(
                "MegatronEngine.forward_backward_batch",
                "if self.model_config.mtp.enable and self.is_mp_src_rank_with_outputs():",
                ">=0.7.1,<0.8",
            ),
        ),
        launch=Example(
            "verl", f"{_START}XiaomiMiMo/MiMo-7B-RL {_CP} actor_rollout_ref.model.mtp.enable=True", "verl=0.7.1"
        ),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN126",
        "verl",
        ">=0.8,<0.9.1",
        when="fused_linear_logprobs and tp > 1 and sequence_parallel and not vanilla_mbridge "
        "and vanilla_mbridge != null and model_name names qwen25vl",
        title="A vision model's batch is padded for sequence parallelism",
        why="With fused kernels its tokens are padded to the longest sequence, not to a multiple of TP, and "
        "Megatron-Bridge splits them over the TP ranks.",
        symptom="a batch whose longest sequence is no multiple of TP ends the step with an AssertionError: sequence "
        "parallelism can't split it",
        issue="verl-project/verl#7702",
        outcome="warning crash training",
        source=(
            VERL_FUSED.says(
                "fused_forward_model_engine",
                "input_ids_rmpad = input_ids.to_padded_tensor(pad_token_id)",
                ">=0.8,<0.9.1",
            ),
        ),
        launch=Example(
            "verl",
            f"{_START}Qwen/Qwen2.5-VL-7B-Instruct {_ACTOR}.megatron.vanilla_mbridge=False "
            f"{_ACTOR}.megatron.tensor_model_parallel_size=2 actor_rollout_ref.model.use_fused_kernels=True",
        ),
        good=Example(
            "verl",
            f"{_START}Qwen/Qwen2.5-VL-7B-Instruct {_ACTOR}.megatron.vanilla_mbridge=False "
            f"{_ACTOR}.megatron.tensor_model_parallel_size=2 actor_rollout_ref.model.use_fused_kernels=False",
            "verl=0.8",
        ),
        instead="use_fused_kernels False",
        fixes=(Fix({"fused_linear_logprobs": False}, "logits are computed"),),
    ),
)

register_rows(ROWS, __name__)
