#!/usr/bin/env bash
# A day with one GPU, in at most 40 minutes and without a network: lab/gpu_day.sh FOLDER [--minutes 40] [--small]
# Writes FOLDER/day.json and FOLDER/day.md. PYTHON is the interpreter with torch, and where there is one with
# Transformer Engine and megatron-core. Without a GPU it runs at small sizes on the CPU, which measures nothing of use.
set -euo pipefail
lab=$(cd "$(dirname "$0")" && pwd)
export HF_HUB_OFFLINE=1 CUDA_DEVICE_MAX_CONNECTIONS=1
exec "${PYTHON:-python3}" "$lab" gpu_day "$@"
