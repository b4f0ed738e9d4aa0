"""Known bugs of ms-swift, and releases of megatron-core that a release of it can't use."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import (
    MS_SWIFT_BASE_TRAINER,
    MS_SWIFT_GRPO_DATA,
    MS_SWIFT_INIT,
    MS_SWIFT_KTO,
    MS_SWIFT_MM_MODEL,
    MS_SWIFT_PROVIDER,
    MS_SWIFT_QWEN3_NEXT,
    MS_SWIFT_QWEN3_VL,
    MS_SWIFT_REQUIREMENTS,
    MS_SWIFT_UTILS,
    UNIFIED_MEMORY,
)

_WITHOUT_CP = Fix({"cp": 1}, "no context parallelism")
_NEWER_CORE = "PackedSeqParams.__init__() got an unexpected keyword argument 'total_tokens'"
_MODEL = "--model Qwen/Qwen3-8B"


def _swift(options: str, assume: str = "") -> Example:
    return Example("ms-swift", options, f"{assume} gpus_per_node=8 nodes=1".strip())


ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN093",
        "ms_swift",
        ">=4.5,<4.5.3",
        when="thd and mcore >= 0.16 and mcore < 0.17",
        title="ms-swift passes packed rows only what this megatron-core accepts",
        why="get_packed_seq_params passes total_tokens, which PackedSeqParams has since megatron-core 0.17; ms-swift "
        "4.5 also runs with 0.16.",
        symptom=f"packed rows fail in the first forward pass: TypeError, {_NEWER_CORE}",
        issue="modelscope/ms-swift#9960",
        outcome="error crash first-forward",
        source=(MS_SWIFT_UTILS.says("get_packed_seq_params", "total_tokens=position_ids.numel(),", ">=4.5,<=4.5.2"),),
        launch=_swift(f"{_MODEL} --context_parallel_size 2", "mcore=0.16.1"),
        good=_swift(f"{_MODEL} --context_parallel_size 2", "mcore=0.17.1 ms_swift=4.5.2"),
        instead="megatron-core 0.17 or newer",
    ),
    Known(
        "KNOWN094",
        "ms_swift",
        ">=4.2,<4.4.2",
        when="mcore < 0.15",
        title="ms-swift 4.2 to 4.4.1 run with megatron-core 0.15 or newer",
        why="They and the mcore-bridge that they install require it; code for older releases was removed.",
        symptom="this ms-swift requires megatron-core 0.15 or newer and no longer has code for older ones",
        issue="modelscope/mcore-bridge#59",
        outcome="warning crash init",
        source=(MS_SWIFT_REQUIREMENTS.says("", "megatron-core>=0.15", ">=4.2,<4.4.2"),),
        launch=_swift(_MODEL, "mcore=0.14.0"),
        good=_swift(_MODEL, "mcore=0.16.1 ms_swift=4.4.1"),
        reported_only=True,
        instead="megatron-core 0.15 or newer",
    ),
    Known(
        "KNOWN095",
        "ms_swift",
        ">=4.4.2",
        when="mcore < 0.16",
        title="ms-swift since 4.4.2 runs with megatron-core 0.16 or newer",
        why="Its requirements say so: 4.4.2 raised them from 0.15.",
        symptom="this ms-swift requires megatron-core 0.16 or newer",
        issue="ms-swift's requirements/megatron.txt",
        outcome="warning crash init",
        source=(MS_SWIFT_REQUIREMENTS.says("", "megatron-core>=0.16", ">=4.4.2"),),
        launch=_swift(_MODEL, "mcore=0.15.3"),
        good=_swift(_MODEL, "mcore=0.17.1 ms_swift=4.5.2"),
        instead="megatron-core 0.16 or newer",
    ),
    Known(
        "KNOWN096",
        "ms_swift",
        ">=3.10,<4.0.2",
        when="mcore >= 0.16",
        title="ms-swift finds the functions of this megatron-core's optimizer",
        why="It imports _update_min_and_max_lr_in_param_groups, which megatron-core 0.16 removed.",
        symptom="start-up fails: ImportError, cannot import name '_update_min_and_max_lr_in_param_groups'",
        issue="modelscope/ms-swift#8278",
        outcome="error crash init",
        source=(
            MS_SWIFT_BASE_TRAINER.says(
                "BaseMegatronTrainer._get_param_groups",
                "param_groups = _update_min_and_max_lr_in_param_groups(",
                ">=3.10,<4.0.2",
            ),
        ),
        launch=_swift(_MODEL, "mcore=0.16.1"),
        instead="megatron-core 0.15",
    ),
    Known(
        "KNOWN097",
        "ms_swift",
        ">=3.9,<3.11.3",
        when="vpp > 1 and mcore >= 0.15",
        title="ms-swift's data provider accepts the stage of a virtual pipeline",
        why="megatron-core 0.15 passes vp_stage to it.",
        symptom="start-up fails: vp_stage must be a kwarg in train_valid_test_dataset_provider",
        issue="modelscope/ms-swift#7158",
        outcome="error crash init",
        source=(MS_SWIFT_PROVIDER.says("get_swift_datasets_provider", absent="vp_stage", versions=">=3.9,<3.11.3"),),
        launch=_swift(
            f"{_MODEL} --pipeline_model_parallel_size 2 --num_virtual_stages_per_pipeline_rank 2",
            "mcore=0.15.3 ms_swift=3.11.2",  # where KNOWN113 is fixed
        ),
        instead="megatron-core 0.14, or no virtual pipeline",
        fixes=(Fix({"vpp": None}, "no virtual pipeline"),),
    ),
    Known(
        "KNOWN098",
        "ms_swift",
        ">=3.9,<3.12",
        when="model_name names qwen2vl qwen25vl qwen3vl qwen25omni qwen3omni internvl glm45v kimivl llama4 and cp > 1 "
        "and not padding_free and not swift_packing",
        title="Multimodal models accept unpacked rows under context parallelism",
        why="The embeddings are split at packed_seq_params.cu_seqlens_q, and unpacked rows have no packed_seq_params.",
        symptom="splitting the embeddings of unpacked rows fails: packed_seq_params is None",
        issue="modelscope/ms-swift#7233",
        outcome="error crash first-forward",
        source=(
            MS_SWIFT_MM_MODEL.says(
                "MultimodalGPTModel._patch_word_embeddings",
                "split_cp_inputs(res, packed_seq_params.cu_seqlens_q, 1)",
                ">=3.9,<3.12",
            ),
        ),
        launch=_swift("--model Qwen/Qwen3-VL-8B-Instruct --context_parallel_size 2 --padding_free false"),
        instead="--padding_free true",
        fixes=(Fix({"padding_free": True}, "rows without padding"), _WITHOUT_CP),
    ),
    Known(
        "KNOWN099",
        "ms_swift",
        ">=3.9,<3.12.4",
        when="model_name names qwen3next and tp > 1 and sequence_parallel",
        title="Qwen3-Next's gathering doesn't multiply gradients by the TP size",
        why="Linear attention isn't split by TP; the backward pass of its gather adds up the identical gradients of "
        "all TP ranks, and scatter doesn't divide them.",
        symptom="the gradients that pass linear attention are silently multiplied by the TP size: high grad_norm",
        issue="modelscope/ms-swift#7941",
        outcome="error silent never",
        source=(
            MS_SWIFT_QWEN3_NEXT.says(
                "Qwen3NextGatedDeltaNet.forward", "res = scatter_to_sequence_parallel_region(res)", ">=3.9,<3.12.4"
            ),
        ),
        launch=_swift(
            "--model Qwen/Qwen3-Next-80B-A3B-Instruct --tensor_model_parallel_size 2 --sequence_parallel true"
        ),
    ),
    Known(
        "KNOWN100",
        "ms_swift",
        ">=3.11,<4.4.1",
        when="fp8 != null and fp8_recipe = mxfp8 and attention_backend != fused",
        title="Rows are padded to what MXFP8 divides",
        why="get_padding_to pads to 16 tokens per rank for every recipe but blockwise; blocks of MXFP8 have 32.",
        symptom="rows are padded to 16 tokens per rank, but MXFP8 needs 32: about every second length fails in "
        "Transformer Engine",
        issue="modelscope/ms-swift#9722, #9723",
        outcome="error crash training",
        source=(MS_SWIFT_UTILS.says("get_padding_to", absent="mxfp8", versions=">=3.11,<4.4.1"),),
        launch=_swift(f"{_MODEL} --fp8_format e4m3 --fp8_recipe mxfp8"),
    ),
    Known(
        "KNOWN101",
        "ms_swift",
        ">=3.9,<4.0.3",
        when="model_name names qwen3vl qwen3omni and recompute_granularity = full and recompute_method = block",
        title="Qwen3-VL runs the layers that aren't recomputed",
        why="Of the stage's layers, those beyond recompute_num_layers are called without visual_pos_masks and "
        "deepstack_visual_embeds.",
        symptom="the first layer that isn't recomputed fails: TypeError, missing 2 required positional arguments",
        issue="modelscope/ms-swift#8414",
        outcome="error crash first-forward",
        source=(
            MS_SWIFT_QWEN3_VL.says(
                "Qwen3VLTransformerBlock._checkpointed_forward",
                "elif self.config.recompute_method == 'block'",
                ">=3.9,<4",
            ),
        ),
        launch=_swift(
            "--model Qwen/Qwen3-VL-8B-Instruct --recompute_granularity full --recompute_method block "
            "--recompute_num_layers 4"
        ),
        instead="--recompute_method uniform",
        fixes=(Fix({"recompute_method": "uniform", "recompute_num_layers": 1}, "every layer is recomputed"),),
    ),
    Known(
        "KNOWN102",
        "ms_swift",
        ">=3.11,<4.0.2",
        when="mtp_layers > 0 and thd and not mla",
        title="Multi-token prediction rotates each token at its own position",
        why="The rotations are selected by position_ids for the main model, and from that selection once more for the "
        "multi-token-prediction layers.",
        symptom="multi-token-prediction layers silently use wrong rotary positions wherever a sequence of a packed row "
        "is longer than the first",
        issue="modelscope/ms-swift#8316",
        outcome="warning silent never",
        source=(MS_SWIFT_INIT.says("_patch_mtp", "rotary_pos_emb = rotary_pos_emb[position_ids[0]]", ">=3.11,<4.0.2"),),
        launch=_swift(f"{_MODEL} --mtp_num_layers 1", "mla=false"),
    ),
    Known(
        "KNOWN103",
        "ms_swift",
        ">=3.9,<3.12.3",
        when="rlhf_type = kto and pp > 1 and tp > 1 and sequence_parallel",
        title="KTO splits the tensors of a pipeline stage where its parts meet",
        why="The lengths of the parts are those of the row, although sequence parallelism left each rank 1/TP of them.",
        symptom="later pipeline stages cut the policy's and the reference's hidden states at wrong places",
        issue="modelscope/ms-swift#7882",
        outcome="error crash first-forward",
        source=(
            MS_SWIFT_KTO.says("MegatronKTOTrainer.forward_step", absent="sequence_parallel", versions=">=3.9,<3.12.3"),
        ),
        launch=_swift(
            f"{_MODEL} --rlhf_type kto --pipeline_model_parallel_size 2 --tensor_model_parallel_size 2 "
            "--sequence_parallel true"
        ),
    ),
    Known(
        "KNOWN104",
        "ms_swift",
        ">=4.4,<4.4.3",
        when="router_replay = R3 and cp > 1",
        title="Recorded routes are compared with the length before padding",
        why="Under context parallelism the collator rounds the recorded length up to 2 x CP before it is compared.",
        symptom="recorded routes don't match the padded length: AssertionError at the first sequence that CP pads",
        issue="modelscope/ms-swift#9804",
        outcome="error crash training",
        source=(
            MS_SWIFT_GRPO_DATA.says("build_routed_experts_batch", absent="expected_lens", versions=">=4.4,<4.4.3"),
        ),
        launch=_swift(f"{_MODEL} --rlhf_type grpo --router_replay_mode R3 --context_parallel_size 2"),
        fixes=(_WITHOUT_CP,),
    ),
    Known(
        "KNOWN113",
        "ms_swift",
        ">=3.9,<3.11.2",
        when="mcore >= 0.15 and mcore < 0.16",
        title="Importing megatron-core compiles nothing",
        why="megatron-core 0.15 compiles a CUDA extension for inference when it is imported, on every rank at once and "
        "behind one lock. ms-swift skips it from 3.11.2 on; megatron-core 0.16 compiles it when it is used.",
        symptom="all ranks compile an extension that training doesn't need while they import megatron-core, and may "
        "wait for its lock forever",
        issue="modelscope/ms-swift#7043",
        outcome="warning hang init",
        source=(
            MS_SWIFT_INIT.says("_patch_megatron", absent="_patch_unified_memory()", versions=">=3.9,<3.11.2"),
            UNIFIED_MEMORY.says("", 'name="managed_alloc_runtime"', ">=0.15,<0.16"),
        ),
        launch=_swift(_MODEL, "mcore=0.15.3"),
        instead="megatron-core 0.14",
    ),
    Known(
        "KNOWN127",
        "ms_swift",
        ">=4.1,<4.1.3",
        when="model_name names minimaxm2",
        title="All ranks reach the barriers of saving MiniMax's weights",
        why="The master alone builds the model that the files are named after, and its loader has a barrier.",
        symptom="saving the weights hangs: the master waits in a barrier that the other ranks don't reach",
        issue="modelscope/ms-swift#9171",
        outcome="warning hang training",
        source=(MS_SWIFT_INIT.says("_patch_mcore_bridge", "with torch.device('meta'):", ">=4.1,<4.1.3"),),
        launch=_swift("--model MiniMaxAI/MiniMax-M2.5"),
    ),
)
register_rows(ROWS, __name__)
