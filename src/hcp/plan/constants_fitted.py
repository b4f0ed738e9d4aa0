"""Written by bench/plan/fit.py: the constants of the time model, fitted to published steps."""

from __future__ import annotations

FITTED: dict[str, float] = {
    "gemm.bf16": 0.4649,
    "gemm.fp8": 0.6467,
    "gemm.mxfp8": 0.5889,
    "gemm.nvfp4": 0.4601,
    "gemm.half_size": 0.1731,
    "gemm.half_size_growth": 0.5442,
    "bias.passes": 2.203,
    "gemm.grouped": 0.8797,
    "gemm.unaligned": 0.7672,
    "casts.nvfp4": 1.863,
    "attention.hopper": 0.8323,
    "attention.blackwell": 0.5117,
    "bandwidth": 0.8487,
    "tp.exposed": 0.4083,
    "ep.exposed": 1.243,
    "ep.overlapped": 0.1898,
    "dp.exposed": 0.3395,
    "host.dense": 0.003,
    "host.moe": 0.009198,
    "host.moe_graphs": 0.004,
    "gpu.h100": 0.9019,
    "gpu.b200": 0.9124,
    "gpu.b300": 1.069,
    "gpu.gb200": 0.9321,
    "gpu.gb300": 1.177,
    "attention.backward": 0.85,
    "pp.exposed": 0.05,
}
