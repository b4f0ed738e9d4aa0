"""Written by bench/plan/fit.py: the constants of the time model, fitted to published steps."""

from __future__ import annotations

FITTED: dict[str, float] = {
    "gemm.bf16": 0.46,
    "gemm.fp8": 0.57,
    "gemm.mxfp8": 0.63,
    "gemm.nvfp4": 0.42,
    "gemm.half_size": 0.23,
    "gemm.half_size_growth": 0.5,
    "bias.passes": 1.0,
    "gemm.grouped": 0.71,
    "attention.hopper": 0.65,
    "attention.blackwell": 0.5,
    "gemm.unaligned": 0.85,
    "casts.nvfp4": 1.5,
    "attention.backward": 0.85,
    "bandwidth": 0.73,
    "tp.exposed": 0.26,
    "ep.exposed": 0.99,
    "ep.overlapped": 0.25,
    "dp.exposed": 0.29,
    "host.dense": 5.0e-3,
    "host.moe": 8.8e-3,
    "host.moe_graphs": 4.0e-3,
    "gpu.h100": 1.06,
    "gpu.b200": 0.82,
    "gpu.b300": 0.91,
    "gpu.gb200": 0.93,
    "gpu.gb300": 1.09,
}
