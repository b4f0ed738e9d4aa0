"""GPU specifications from data sheets, and how much of them training sustains."""

from __future__ import annotations

from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError


class Gpu(NamedTuple):
    """One GPU: the figures of its data sheet, dense (no sparsity); links in one direction."""

    name: str
    bf16_flops: float  # per second
    memory_bytes: float
    memory_bandwidth: float  # bytes per second
    nvlink_bandwidth: float  # bytes per second, to the other GPUs of its NVLink domain
    network_bandwidth: float  # bytes per second, to other nodes: one adapter per GPU
    nvlink_domain: int  # GPUs connected by NVLink in the usual system
    reported_mib: int = 0  # memory as nvidia-smi reports it, in MiB


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 312e12, 80e9, 2.04e12, 300e9, 25e9, 8, 81920),
        Gpu("h100", 989e12, 80e9, 3.35e12, 450e9, 50e9, 8, 81559),
        Gpu("h200", 989e12, 141e9, 4.8e12, 450e9, 50e9, 8, 143771),
        Gpu("h800", 989e12, 80e9, 3.35e12, 200e9, 50e9, 8, 81559),
        Gpu("h20", 148e12, 96e9, 4.0e12, 450e9, 50e9, 8, 97871),
        Gpu("b200", 2250e12, 180e9, 8.0e12, 900e9, 50e9, 8, 183359),
        Gpu("b300", 2250e12, 288e9, 8.0e12, 900e9, 100e9, 8, 275040),
        Gpu("gb200", 2500e12, 186e9, 8.0e12, 900e9, 50e9, 72, 189471),
        Gpu("gb300", 2500e12, 288e9, 8.0e12, 900e9, 100e9, 72, 284208),
        Gpu("l40s", 362e12, 48e9, 0.864e12, 32e9, 25e9, 1, 46068),
    )
}
"""Data sheets of NVIDIA's SXM modules and superchips; network of the DGX system of that GPU; l40s: PCIe 4.0 x16.

Reported memory: the total that nvidia-smi prints with ECC on, which published logs of these GPUs show.
"""

SUSTAINED_GEMM, SUSTAINED_ATTENTION = 0.46, 0.65
"""Fractions of the bf16 peak that GEMMs and fused attention reach in training: initial fit to published steps."""
SUSTAINED_NVLINK, SUSTAINED_NETWORK = 0.75, 0.8
"""Fractions of the link bandwidths that send and receive reach between GPUs: 340 of 450, 40 of 50 GB/s on H100."""


def gpu_named(name: str) -> Gpu:
    """The GPU of that name, case-insensitive.

    Raises:
        HcpError: not in the table.

    >>> gpu_named("H100").nvlink_domain
    8
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise HcpError(
            f"gpu: found {name!r:.40}", wanted=f"one of {', '.join(GPUS)}", do="or measure it: hcp dcp calibrate"
        )
    return gpu
