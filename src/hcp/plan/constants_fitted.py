"""Written by bench/plan/fit.py: the constants of the time model, fitted to published steps."""

from __future__ import annotations

FITTED: dict[str, float] = {
    "gemm.bf16": 0.4666,
    "gemm.fp8": 0.6477,
    "gemm.mxfp8": 0.5885,
    "gemm.nvfp4": 0.4615,
    "gemm.half_size": 0.1726,
    "gemm.half_size_growth": 0.5433,
    "bias.passes": 2.195,
    "gemm.grouped": 0.8791,
    "gemm.unaligned": 0.7689,
    "casts.nvfp4": 1.859,
    "attention.hopper": 0.8087,
    "attention.blackwell": 0.5141,
    "bandwidth": 0.8531,
    "tp.exposed": 0.4102,
    "ep.exposed": 1.247,
    "ep.overlapped": 0.1909,
    "dp.exposed": 0.3391,
    "host.dense": 0.003,
    "host.moe": 0.009205,
    "host.moe_graphs": 0.004,
    "gpu.h100": 0.905,
    "gpu.b200": 0.9087,
    "gpu.b300": 1.066,
    "gpu.gb200": 0.9255,
    "gpu.gb300": 1.17,
    "attention.backward": 0.85,
}
