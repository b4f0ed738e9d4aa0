"""ENV rules: environment variables, as tables."""

from __future__ import annotations

from support.launches import CP, TP
from support.rules import Row, test_text, test_verdict

__all__ = ["test_text", "test_verdict"]

FSDP = "dist.use_megatron_fsdp=true "

EP_OVERLAP = "--num-experts 8 --expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm"
_RUN = "torchrun pretrain_gpt.py --context-parallel-size 2\n"

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("ENV009", "mlm", EP_OVERLAP, "env.CUDA_DEVICE_MAX_CONNECTIONS=1 arch=sm90", "warning slow training"),
    ("ENV009", "mlm", EP_OVERLAP, "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "warning slow training"),
    ("ENV009", "mlm", EP_OVERLAP, "env.CUDA_DEVICE_MAX_CONNECTIONS=1 arch=sm100", "fine"),
    ("ENV009", "mlm", EP_OVERLAP, "env.CUDA_DEVICE_MAX_CONNECTIONS=32 arch=sm90", "fine"),
    ("ENV009", "mlm", EP_OVERLAP, "", "not concerned"),
    ("ENV009", "mlm", EP_OVERLAP, "env.NCCL_IB_DISABLE=0", "needs env.CUDA_DEVICE_MAX_CONNECTIONS"),
    ("ENV009", "mlm", "--num-experts 8", "env.CUDA_DEVICE_MAX_CONNECTIONS=1 arch=sm90", "not concerned"),
    (
        "ENV004",
        "mlm",
        "torchrun pretrain_gpt.py --context-parallel-size 2 \\\n --bf16\n",
        "arch=sm90",
        "warning crash config",
    ),
    (
        "ENV004",
        "mlm",
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 \\\n --bf16\n",
        "arch=sm80",
        "warning crash config",
    ),
    ("ENV004", "mlm", "torchrun pretrain_gpt.py --context-parallel-size 2 \\\n --bf16\n", "arch=sm100", "fine"),
    ("ENV004", "mlm", "torchrun pretrain_gpt.py --context-parallel-size 2 \\\n --bf16\n", "", "needs arch"),
    ("ENV004", "mlm", f"export CUDA_DEVICE_MAX_CONNECTIONS=1\nsrun --export=NONE {_RUN}", "arch=sm90", "error"),
    ("ENV004", "mlm", f"export CUDA_DEVICE_MAX_CONNECTIONS=1\nsrun --export=HOME {_RUN}", "arch=sm90", "error"),
    (
        "ENV004",
        "mlm",
        f"export CUDA_DEVICE_MAX_CONNECTIONS=1\nsrun --export=NONE --container-image=a/b:1 {_RUN}",
        "arch=sm90",
        "warning",
    ),
    ("ENV004", "mlm", f"srun --export=ALL {_RUN}", "arch=sm90", "warning"),
    ("ENV004", "mlm", "torchrun pretrain_gpt.py --context-parallel-size 1 \\\n --bf16\n", "arch=sm90", "not concerned"),
    # ENV001 judges what the script exports.
    (
        "ENV004",
        "mlm",
        "export CUDA_DEVICE_MAX_CONNECTIONS=8\ntorchrun pretrain_gpt.py --context-parallel-size 2\n",
        "arch=sm90",
        "not concerned",
    ),
    (
        "ENV004",
        "mlm",
        "export CUDA_DEVICE_MAX_CONNECTIONS=$1\ntorchrun pretrain_gpt.py --context-parallel-size 2\n",
        "arch=sm90",
        "not concerned",
    ),
    (
        "ENV004",
        "mlm",
        "torchrun pretrain_gpt.py --context-parallel-size 2 $MORE \\\n --bf16\n",
        "arch=sm90",
        "not concerned",
    ),
    ("ENV004", "mlm", "--context-parallel-size 2", "arch=sm90", "not concerned"),
    (
        "ENV004",
        "mlm",
        "torchrun pretrain_gpt.py --context-parallel-size 2 --use-megatron-fsdp \\\n --bf16\n",
        "arch=sm90",
        "not concerned",
    ),
    ("ENV001", "mlm", f"{CP} 2", "", "not concerned"),
    ("ENV001", "mlm", f"{CP} 2", "env.OTHER=1", "needs env.CUDA_DEVICE_MAX_CONNECTIONS"),
    ("ENV001", "mlm", f"{CP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8", "needs arch"),
    ("ENV001", "mlm", f"{CP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm100", "not concerned"),
    (
        "ENV001",
        "mlm",
        f"{CP} 2 --overlap-moe-expert-parallel-comm",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90",
        "not concerned",
    ),
    ("ENV001", "mlm", f"{CP} 2 --use-torch-fsdp2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    ("ENV001", "bridge", FSDP + "model.context_parallel_size=2", "env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error"),
    ("ENV001", "bridge", FSDP, "bridge=0.5.0 env.CUDA_DEVICE_MAX_CONNECTIONS=1", "error crash config"),
    ("ENV001", "bridge", FSDP, "bridge=0.4.2 env.CUDA_DEVICE_MAX_CONNECTIONS=1", "not concerned"),
    (
        "ENV001",
        "bridge",
        "model.context_parallel_size=2",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90",
        "not concerned",
    ),
    ("ENV001", "verl", "", "fsdp=true env.CUDA_DEVICE_MAX_CONNECTIONS=1", "not concerned"),
    ("ENV001", "mlm", "--use-torch-fsdp2", "", "not concerned"),
    ("ENV001", "mlm", "--use-torch-fsdp2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8", "fine"),
    ("ENV001", "mlm", f"{TP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90", "error crash config"),
    ("ENV002", "mlm", "--attention-backend fused", "", "not concerned"),
    ("ENV002", "bridge", "model.attention_backend=null", "env.NVTE_FUSED_ATTN=0", "fine"),  # Bridge sets none of them
    ("ENV002", "mlm", "", "attention_backend=null env.NVTE_FUSED_ATTN=0", "error crash init"),  # the default is auto
    (
        "ENV002",
        "mlm",
        "--attention-backend fused",
        "env.NVTE_FLASH_ATTN=1 env.NVTE_FUSED_ATTN=1 env.NVTE_UNFUSED_ATTN=1",
        "error crash init",
    ),
    # Before megatron-core 0.11 the variables were the choice of the backend: no option of that name, no assertion.
    ("ENV002", "mlm", "--seq-length 64", "env.NVTE_FUSED_ATTN=0", "needs mcore"),
    ("ENV002", "mlm", "--seq-length 64", "env.NVTE_FUSED_ATTN=0 mcore=0.10.0", "fine"),
    ("ENV002", "mlm", "--seq-length 64", "env.NVTE_FUSED_ATTN=0 mcore=0.11.0", "error crash init"),
    ("ENV002", "mlm", "--attention-backend fused", "env.NVTE_FUSED_ATTN=0 mcore=0.10.0", "fine"),
    ("ENV002", "mlm", "--attention-backend fused", "env.NVTE_FUSED_ATTN=0", "error crash init"),
    ("ENV003", "mlm", "--apply-query-key-layer-scaling", "", "needs env.NVTE_APPLY_QK_LAYER_SCALING"),
    ("ENV003", "mlm", "--transformer-impl local", "env.NVTE_APPLY_QK_LAYER_SCALING=1", "not concerned"),
    ("ENV003", "mlm", "--attention-backend local", "env.NVTE_APPLY_QK_LAYER_SCALING=1", "not concerned"),
    ("ENV003", "mlm", "--seq-length 4096", "", "not concerned"),
    ("ENV003", "mlm", "--seq-length 4096", "env.NVTE_APPLY_QK_LAYER_SCALING=yes", "error crash init"),  # no number
    ("ENV007", "mlm", "--attention-backend flash", "te=2.10", "not concerned"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.10 flash_attn=null", "not concerned"),  # not installed
    ("ENV007", "mlm", "--attention-backend fused", "te=2.9 flash_attn=2.8.3", "not concerned"),
    ("ENV007", "mlm", "--attention-backend flash", "flash_attn=2.8.3", "needs te"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.9 flash_attn=3.0.0", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.9 flash_attn=2.8.3", "error crash first-forward"),
    ("ENV007", "mlm", "--attention-backend auto", "te=2.9 flash_attn=2.8.3", "info note never"),
    ("ENV007", "mlm", "--attention-backend auto", "te=1.12 flash_attn=2.8.3", "info note never"),
    ("ENV007", "mlm", "--attention-backend auto", "te=1.11 flash_attn=2.8.3", "error crash first-forward"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.6 flash_attn=2.8.3", "fine"),  # not known
    ("ENV007", "mlm", "--attention-backend flash", "te=1.7 flash_attn=2.5.8", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.10 flash_attn=2.5.9", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.10 flash_attn=2.5.7", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.11 flash_attn=2.6.3", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.13 flash_attn=2.6.4", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.13 flash_attn=2.6.2", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.0 flash_attn=2.7.3", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.0 flash_attn=2.7.4", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.0 flash_attn=2.7.2", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.1 flash_attn=2.7.4.post1", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.5 flash_attn=2.8.1", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.5 flash_attn=2.8.0", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.6 flash_attn=2.8.1", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.9 flash_attn=2.8.2", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.10 flash_attn=2.8.3", "fine"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.10 flash_attn=2.8.4", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.7 flash_attn=2.5.9", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=1.99 flash_attn=2.7.3", "error"),
    ("ENV007", "mlm", "--attention-backend flash", "te=2.5 flash_attn=2.7.5", "error"),
    ("ENV007", "bridge", "", "attention_backend=null te=2.9 flash_attn=2.8.3", "info"),  # null is auto
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    ("ENV001", "mlm", f"{TP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90", "tensor_model_parallel_size"),
    ("ENV001", "mlm", f"{CP} 2", "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90", "context_parallel_size"),
    (
        "ENV001",
        "mlm",
        f"pretrain_gpt.py {TP} $TP {CP} 2\n",
        "env.CUDA_DEVICE_MAX_CONNECTIONS=8 arch=sm90",
        "context_parallel_size",
    ),
    (
        "ENV007",
        "mlm",
        "--attention-backend flash",
        "te=2.9 flash_attn=2.8.3",
        "message: supports: the first forward pass fails",
    ),
    ("ENV007", "mlm", "--attention-backend auto", "te=2.9 flash_attn=2.8.3", "message: is treated as not installed"),
    ("ENV007", "mlm", "--attention-backend auto", "te=2.9 flash_attn=2.8.3", "wanted: flash-attn 2.8.1 or older"),
]
