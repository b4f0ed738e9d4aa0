"""Known limits of PyTorch FSDP2 in megatron-core, and of Transformer Engine's recipes on older GPUs."""

from __future__ import annotations

from megatron_hcp.rules.known.row import Known, register_rows
from megatron_hcp.rules.rule import Example, Fix
from megatron_hcp.rules.upstream import FINALIZE_MODEL_GRADS, TE_FP8, TE_QUANTIZATION, TORCH_FSDP2

_FSDP2 = (
    "--use-torch-fsdp2 --untie-embeddings-and-output-weights --no-gradient-accumulation-fusion "
    "--context-parallel-size 2 --tensor-model-parallel-size 1 --ckpt-format torch_dist"
)
_FP8 = "--fp8-format e4m3 --fp8-recipe "
_DDP = Fix({"torch_fsdp2": False}, "DDP")
_CURRENT = Fix({"fp8_recipe": "tensorwise"}, "current scaling")

ROWS: tuple[Known, ...] = (
    Known(
        "KNOWN120",
        "mcore",
        ">=0.16,<0.19",
        when="torch_fsdp2",
        title="PyTorch FSDP2 takes what the end of a step passes to it",
        why="finalize_model_grads calls finish_grad_sync with force_all_reduce, which DDP's wrapper has since 0.16. "
        "FSDP2's wrapper has the method of its base class, without that argument: TypeError. Its own came with 0.19.",
        symptom="the first step of PyTorch FSDP2 fails: TypeError, unexpected keyword argument force_all_reduce",
        issue="NVIDIA/Megatron-LM#4953",
        outcome="error crash training",
        source=(
            FINALIZE_MODEL_GRADS.says(
                "finalize_model_grads", "finish_grad_sync(force_all_reduce=force_all_reduce)", ">=0.16"
            ),
            TORCH_FSDP2.says("TorchFullyShardedDataParallel", absent="force_all_reduce", versions=">=0.16,<0.19"),
        ),
        launch=Example("mlm", _FSDP2, "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
        instead="Megatron-FSDP or DDP",
        fixes=(_DDP,),
    ),
    Known(
        "KNOWN121",
        "mcore",
        ">=0.12",
        when="torch_fsdp2 and calculate_per_token_loss",
        title="PyTorch FSDP2 divides gradients by the number of tokens",
        why="With the loss per token, gradients are sums until finalize_model_grads calls scale_gradients. FSDP2's "
        "wrapper has that of its base class, which does nothing: gradients stay larger by the number of tokens, so "
        "that every one is clipped, and epsilon and the logged norm mean something else.",
        symptom="gradients of the loss per token are never divided by the number of tokens",
        issue="TorchFullyShardedDataParallel, scale_gradients",
        outcome="error silent never",
        source=(
            FINALIZE_MODEL_GRADS.says("finalize_model_grads", "model_chunk.scale_gradients(scaling)", ">=0.12"),
            TORCH_FSDP2.says("TorchFullyShardedDataParallel", absent="scale_gradients", versions=">=0.12"),
        ),
        launch=Example("mlm", f"{_FSDP2} --calculate-per-token-loss", "env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
        good=Example("mlm", _FSDP2, "mcore=0.19.0 env.CUDA_DEVICE_MAX_CONNECTIONS=8"),
        instead="the loss per micro-batch, Megatron-FSDP or DDP",
        fixes=(Fix({"calculate_per_token_loss": False}, "a mean per micro-batch"), _DDP),
    ),
    Known(
        "KNOWN122",
        "te",
        ">=2.0",
        when="fp8 != null and fp8_recipe = mxfp8 and arch in sm80 sm86 sm89 sm90",
        title="MXFP8 runs on Blackwell",
        why="Transformer Engine asserts that the GPU has what the recipe needs where the first layer enters it. MXFP8 "
        "needs compute capability 10.0.",
        symptom="the first forward pass fails: MXFP8 needs compute capability 10.0 or higher",
        issue="check_mxfp8_support",
        outcome="error crash first-forward",
        source=(
            TE_FP8.says("check_mxfp8_support", "10.0 or higher required for MXFP8", ">=2.0,<2.9"),
            TE_QUANTIZATION.says("check_mxfp8_support", "mxfp8", ">=2.9"),
        ),
        launch=Example("mlm", f"{_FP8}mxfp8", "arch=sm90"),
        good=Example("mlm", f"{_FP8}mxfp8", "te=2.14 arch=sm100"),
        instead="a recipe that the GPU has",
        fixes=(_CURRENT,),
    ),
    Known(
        "KNOWN123",
        "te",
        ">=1.0",
        when="fp8 != null and arch in sm80 sm86",
        title="FP8 runs on Ada, Hopper and newer GPUs",
        why="Transformer Engine asserts that the GPU has FP8 where the first layer enters it: compute capability 8.9.",
        symptom="the first forward pass fails: FP8 needs compute capability 8.9 or higher",
        issue="check_fp8_support",
        outcome="error crash first-forward",
        source=(
            TE_FP8.says("check_fp8_support", "8.9 or higher required for FP8", ">=1.0,<2.9"),
            TE_QUANTIZATION.says("check_fp8_support", "fp8", ">=2.9"),
        ),
        launch=Example("mlm", f"{_FP8}delayed", "arch=sm80"),
        good=Example("mlm", f"{_FP8}delayed", "te=2.14 arch=sm89"),
        instead="bf16",
        fixes=(Fix({"fp8": None}, "no FP8"),),
    ),
)

register_rows(ROWS, __name__)
