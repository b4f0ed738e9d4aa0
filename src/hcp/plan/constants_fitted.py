"""Written by bench/plan/fit.py: the constants of the time model, fitted to published steps."""

from __future__ import annotations

FITTED: dict[str, float] = {
    "gemm.bf16": 0.4652,
    "gemm.fp8": 0.6518,
    "gemm.mxfp8": 0.5963,
    "gemm.nvfp4": 0.4585,
    "gemm.half_size": 0.1734,
    "gemm.half_size_growth": 0.5443,
    "bias.passes": 2.232,
    "gemm.grouped": 0.8816,
    "gemm.unaligned": 0.7618,
    "casts.nvfp4": 1.867,
    "attention.hopper": 0.8326,
    "attention.blackwell": 0.5095,
    "bandwidth": 0.8409,
    "tp.exposed": 0.401,
    "ep.exposed": 1.239,
    "ep.overlapped": 0.1875,
    "dp.exposed": 0.3408,
    "host.dense": 0.003,
    "host.moe": 0.009187,
    "host.moe_graphs": 0.004,
    "gpu.h100": 0.901,
    "gpu.b200": 0.913,
    "gpu.b300": 1.068,
    "gpu.gb200": 0.9406,
    "gpu.gb300": 1.183,
    "attention.backward": 0.85,
    "pp.exposed": 0.2,
}
