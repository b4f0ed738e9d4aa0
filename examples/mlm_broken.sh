#!/bin/bash
# This launch has two faults. `hcp check examples/mlm_broken.sh` finds them before you allocate any GPUs.

set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-1}

DISTRIBUTED_ARGS=(
    --nproc-per-node "$GPUS_PER_NODE"
    --nnodes "$NUM_NODES"
    --rdzv-backend c10d
    --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}"
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 131064
    --max-position-embeddings 131072
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --no-create-attention-mask-in-dataloader
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    --context-parallel-size 8 \
    --cp-comm-type a2a+p2p \
    --micro-batch-size 1 \
    --global-batch-size 16 \
    --train-iters 100 --eval-interval 1000 \
    --lr 1e-5 \
    --bf16 \
    --mock-data \
    --tokenizer-type NullTokenizer \
    --vocab-size 128256
