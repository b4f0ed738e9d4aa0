"""Written by bench/plan/fit.py: the constants of the time model, fitted to published steps."""

from __future__ import annotations

FITTED: dict[str, float] = {
    "gemm.bf16": 0.4796,
    "gemm.fp8": 0.6594,
    "gemm.mxfp8": 0.5993,
    "gemm.nvfp4": 0.5065,
    "gemm.half_size": 0.1801,
    "bias.passes": 2.043,
    "gemm.grouped.hopper": 0.2918,
    "gemm.grouped.blackwell": 0.8193,
    "gemm.unaligned": 0.7535,
    "casts.nvfp4": 1.719,
    "attention.hopper": 0.7357,
    "attention.blackwell": 0.4861,
    "attention.graphed": 1.94,
    "bandwidth": 0.8771,
    "tp.exposed": 0.1875,
    "ep.exposed": 0.9357,
    "ep.overlapped": 0.2243,
    "dp.exposed": 0.3163,
    "host.dense": 0.003,
    "host.moe": 0.004,
    "gpu.h100": 0.9877,
    "gpu.b200": 0.8887,
    "gpu.b300": 1.007,
    "gpu.gb200": 0.9269,
    "gpu.gb300": 1.165,
    "attention.backward": 0.85,
    "pp.exposed": 0.05,
}
