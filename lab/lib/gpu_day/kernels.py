"""Attention, GEMM, grouped GEMM, memory traffic and kernel launches, with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu_day.machine import has_gpu
from gpu_day.timing import device, seconds

Rows = list[dict[str, Any]]
_GEMMS = [(m, n, k) for m in (512, 2048, 8192) for n, k in ((4096, 4096), (8192, 8192), (28672, 8192), (4096, 1536))]
_GROUPS = [(experts, rows, n, k) for experts, n, k in ((16, 1536, 2048), (32, 4096, 7168)) for rows in (64, 512, 4096)]
_ATTENTION = [(heads, kv, tokens, 128) for heads, kv in ((32, 8), (16, 16)) for tokens in (2048, 8192, 32768)]
_COPIES = [1 << size for size in (20, 24, 28, 31)]


def gemm(small: bool) -> Rows:
    """x (m, k) times w (k, n): FLOP/s of each type that torch multiplies here."""
    shapes = [(64, 96, 128), (128, 128, 96)] if small else _GEMMS
    found = []
    for name, multiply in _multiplications().items():
        for m, n, k in shapes:
            took = seconds(multiply(m, n, k))
            found.append({"type": name, "m": m, "n": n, "k": k, "s": took, "flops": 2 * m * n * k / took})
    return found


def _multiplications() -> dict[str, Callable[[int, int, int], Callable[[], Any]]]:
    found: dict[str, Callable[[int, int, int], Callable[[], Any]]] = {}
    types = {"bf16": torch.bfloat16, "fp16": torch.float16} if has_gpu() else {"fp32": torch.float32}
    for name, dtype in types.items():

        def plain(m: int, n: int, k: int, dtype: torch.dtype = dtype) -> Callable[[], Any]:
            x, w = torch.randn(m, k, device=device(), dtype=dtype), torch.randn(k, n, device=device(), dtype=dtype)
            return lambda: x @ w

        found[name] = plain
    if has_gpu() and torch.cuda.get_device_capability() >= (8, 9):
        found["fp8"] = _scaled
    return found


def _scaled(m: int, n: int, k: int) -> Callable[[], Any]:
    """Per-tensor FP8, as torch's _scaled_mm takes it: the second matrix by columns."""
    one = torch.ones((), device=device())
    x = torch.randn(m, k, device=device()).to(torch.float8_e4m3fn)
    w = torch.randn(n, k, device=device()).to(torch.float8_e4m3fn).t()
    return lambda: torch._scaled_mm(x, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def grouped_gemm(small: bool) -> Rows:
    """So many experts with as many rows each: torch's grouped product where it has one, and one by one."""
    shapes = [(4, 16, 32, 48)] if small else _GROUPS
    dtype = torch.bfloat16 if has_gpu() else torch.float32
    found = []
    for experts, rows, n, k in shapes:
        x = torch.randn(experts * rows, k, device=device(), dtype=dtype)
        w = torch.randn(experts, k, n, device=device(), dtype=dtype)
        ends = torch.arange(1, experts + 1, device=device(), dtype=torch.int32) * rows
        ways: dict[str, Callable[[], Any]] = {
            "one by one": lambda: [part @ one for part, one in zip(x.split(rows), w)],  # noqa: B023
        }
        if has_gpu() and hasattr(torch, "_grouped_mm"):
            ways["grouped"] = lambda: torch._grouped_mm(x, w, offs=ends)  # noqa: B023
        for way, work in ways.items():
            took = seconds(work)
            found.append(
                {"way": way, "experts": experts, "rows": rows, "n": n, "k": k, "s": took,
                 "flops": 2 * experts * rows * n * k / took}
            )  # fmt: skip
    return found


def attention(small: bool) -> Rows:
    """Causal attention of one sequence, forward and backward."""
    shapes = [(4, 2, 64, 16)] if small else _ATTENTION
    dtype = torch.bfloat16 if has_gpu() else torch.float32
    found = []
    for heads, kv, tokens, dim in shapes:
        q = torch.randn(1, heads, tokens, dim, device=device(), dtype=dtype, requires_grad=True)
        k, v = (torch.randn(1, kv, tokens, dim, device=device(), dtype=dtype, requires_grad=True) for _ in range(2))

        def forward() -> Any:
            return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # noqa: B023

        both = seconds(lambda: forward().sum().backward())
        alone = seconds(forward)
        flops = 2.0 * heads * tokens * tokens * dim
        found.append(
            {"heads": heads, "kv_heads": kv, "tokens": tokens, "dim": dim, "forward_s": alone, "both_s": both,
             "forward_flops": flops / alone, "both_flops": 3.5 * flops / both}
        )  # fmt: skip
    return found


def memory_traffic(small: bool) -> Rows:
    """Copies within the memory: bytes read and written for a second."""
    found = []
    for size in [1 << 16] if small else _COPIES:
        x = torch.empty(size, device=device(), dtype=torch.uint8)
        y = torch.empty_like(x)
        took = seconds(lambda: y.copy_(x))  # noqa: B023
        found.append({"bytes": size, "s": took, "bytes_per_s": 2 * size / took})
    return found


def kernel_launch(small: bool) -> Rows:
    """Seconds that the host takes to start a kernel: many small ones in a row, and those in a graph."""
    count = 50 if small else 2000
    x = torch.ones(16, device=device())

    def many() -> None:
        for _ in range(count):
            x.add_(1.0)

    found = [{"way": "one by one", "count": count, "s": seconds(many) / count}]
    if has_gpu():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            many()
        found.append({"way": "in a CUDA graph", "count": count, "s": seconds(graph.replay) / count})
    return found
