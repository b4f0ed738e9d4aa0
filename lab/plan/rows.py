"""The measured steps that the planner is fitted to and judged by, as models, layouts and jobs.

Rows are JSON lines, published by Megatron-Bridge (docs/performance-summary.md) and SimuMax (docs/b200); the models'
sizes are in models.json, taken from each config.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.plan.layout import Layout, PlanJob
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.plan.time.step import model_flops

MODELS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("models.json").read_text())
_BRIDGE_NAMES = {
    "LLAMA3_70B": "llama3-70b", "LLAMA3.1_405B": "llama3-405b", "Qwen3_235B_a22B": "qwen3-235b",
    "Qwen3_30B_a3B": "qwen3-30b", "GPT OSS 120B": "gpt-oss-120b", "DeepSeekV3": "deepseek-v3", "Kimi_K2": "kimi-k2",
}  # fmt: skip
_BRIDGE_RELEASES = {
    "25.09": "0.1", "25.11": "0.2", "26.02": "0.3.0", "26.02.01": "0.3.1", "26.04": "0.4.0", "26.04.01": "0.4.1",
    "26.06": "0.5.0", "26.06.01": "0.5.1", "26.08": "0.6.0",
}  # fmt: skip
"""NVIDIA's container, and the release of Megatron-Bridge in it."""
_EP_OVERLAP: dict[str, tuple[tuple[str, bool | None], ...]] = {
    "kimi-k2": (("", False),),
    "qwen3-30b h100": (("", True), ("26.02.01", False)),
    "qwen3-235b h100": (("", True),),
    "deepseek-v3 h100": (("", True), ("26.02", False)),
    "deepseek-v3 b200": (("", None), ("26.04.01", True), ("26.06", None)),
    "qwen3-30b b200": (("", False), ("26.06.01", None)),
    "qwen3-235b b200": (("", True), ("26.02", False), ("26.06.01", None)),
    "qwen3-235b b300": (("", True), ("26.04", False), ("26.06.01", None)),
}
"""Whether recipes of a model (on a GPU) overlap EP's exchange, from each container on; None: as others on that GPU do.
Source: moe_a2a_overlap in scripts/performance/configs of Megatron-Bridge v0.2.0 to v0.5.1; kimi_k2.py of 0.6.2. The
row of DeepSeek-V3 on B200 in 26.04.01 has the layout of v0.4.2's recipe, not of v0.4.1's."""
_SENDS_ONCE: dict[str, tuple[tuple[str, bool | None], ...]] = {
    "qwen3-30b h100": (("", False), ("26.02", True)),
    "qwen3-30b b200": (("", False), ("26.02.01", True)),
    "qwen3-235b h100": (("", False), ("26.02.01", True), ("26.04", False)),
    "qwen3-235b b200": (("", False), ("26.02.01", True), ("26.04", False), ("26.06.01", True)),
    "qwen3-235b b300": (("", False), ("26.02.01", True), ("26.04", False), ("26.06", True)),
    "gpt-oss-120b h100": (("", False),),
    "gpt-oss-120b b200": (("", False), ("26.04", True), ("26.06", False)),
    "gpt-oss-120b b300": (("", False), ("26.04", True)),
    "gpt-oss-120b gb200": (("", False), ("26.04", True)),
    "gpt-oss-120b gb300": (("", False), ("26.06", True)),
    "deepseek-v3 b200": (("", False), ("26.02", True)),
    "kimi-k2 h100": (("", False),), "kimi-k2 b200": (("", False),), "kimi-k2 b300": (("", False),),
}  # fmt: skip
"""Whether recipes dispatch by DeepEP or HybridEP, which send a token once, from each container on; others do. Source:
moe_flex_dispatcher_backend in scripts/performance/configs of Megatron-Bridge v0.2.0 to v0.5.1: without one,
utils/overrides.py takes the all-to-all."""
_AS_RUN: dict[tuple[str, str, str, str], dict[str, int]] = {
    ("26.02.01", "qwen3-30b", "h100", "FP8"): {"pp": 1, "vp": 1, "ep": 16},
    ("26.02.01", "llama3-70b", "gb300", "MXFP8"): {"vp": 5, "mbs": 1},
    ("26.02.01", "llama3-70b", "gb300", "NVFP4"): {"pp": 4, "vp": 5, "mbs": 1},
}
"""What ran where the table prints another layout, by container, model, GPU and precision.

The first is printed as in 26.02, where that layout took 51.3 s; it took 28.9 s, and what the recipe has took 29.5 s in
26.04. The others lack 98 and 363 GiB as printed. Source: qwen3_workload_base_configs.py and
llama3_workload_base_configs.py, Megatron-Bridge v0.3.1. Other rows that differ from their recipe are left as printed:
nothing shows which of the two ran."""
_WITHOUT_TP_OVERLAP = ("qwen3-235b h100",)
"""Recipes that leave TP's collectives alone, beside those in NVFP4. Source: tp_comm_overlap in the same folders."""
_PRECISIONS = {"BF16": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4"}
_GPUS_PER_NODE = {"gb200": 4, "gb300": 4}
_SIMUMAX_OTHERWISE = {"llama3_405b": {"num_key_value_heads": 16}}
"""As it was measured; the published model has 8."""
_SIMUMAX_NAMES = {
    "llama3_70b": "llama3-70b", "llama3_405b": "llama3-405b", "deepseekv2": "deepseek-v2", "deepseekv3": "deepseek-v3"
}  # fmt: skip


class Measured(NamedTuple):
    """One measured step."""

    name: str
    model: PlanModel
    layout: Layout
    job: PlanJob
    seconds: float
    group: str
    """counted: pre-training, no FSDP, no Mamba, a precision; else why it is printed apart."""
    peak_gib: float | None = None


def model_named(name: str, layers: int | None = None, **other: int) -> PlanModel:
    """That model, whole or cut to its first layers, without multi-token prediction where it is cut; `other` fields."""
    values = {**MODELS[name], **other}
    if layers is not None:
        values["num_hidden_layers"] = layers
        values["first_k_dense_replace"] = min(1, values.get("first_k_dense_replace", 0))
        values.pop("num_nextn_predict_layers", None)
    return plan_model(values, name)


def _said(table: dict[str, tuple[tuple[str, bool | None], ...]], model: str, gpu: str, release: str) -> bool | None:
    """What the table says of that container."""
    spans = table.get(model, table.get(f"{model} {gpu}", ()))
    return next((value for since, value in reversed(spans) if release >= since), None)


def bridge_rows(path: str | Path, stated: bool = False, as_printed: bool = False) -> Iterator[Measured]:
    """The rows of Megatron-Bridge whose models have sizes; `stated`: with the release as a version.

    `as_printed`: with the table's layout even where another one ran.

    Its recipes of performance reduce gradients in bf16 and gather fp8 weights.
    """
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        name = _BRIDGE_NAMES.get(row["model"])
        if name is None:
            continue
        gpu = gpu_named(row["system"].removeprefix("DGX-").lower())
        precision = _PRECISIONS.get(row["precision"])
        group = "counted"
        if row["kind"] != "Pre-Training":
            group = row["kind"]
        elif row["fsdp"]:
            group = "FSDP"
        elif precision is None:
            group = "precision unsaid"
        sizes = {axis: row[axis] or 1 for axis in ("tp", "pp", "cp", "vp", "ep", "mbs")}
        sizes |= {} if as_printed else _AS_RUN.get((row["release"], name, gpu.name, row["precision"]), {})
        layout = Layout(**sizes, cp_comm_type="p2p")
        versions = {"bridge": _BRIDGE_RELEASES[row["release"]]} if stated else {}
        job = PlanJob(
            row["gpus"], _GPUS_PER_NODE.get(gpu.name, 8), gpu, gpu.nvlink_domain, row["seq"], row["gbs"],
            precision or "bf16", False, versions, fp32_gradients=False,
            overlaps_ep=_said(_EP_OVERLAP, name, gpu.name, row["release"]),
            sends_once=_said(_SENDS_ONCE, name, gpu.name, row["release"]),
            overlaps_tp=precision != "nvfp4" and f"{name} {gpu.name}" not in _WITHOUT_TP_OVERLAP,
        )  # fmt: skip
        seconds = row["gbs"] * row["seq"] / row["gpus"] / row["tokens_per_s_per_gpu"]
        label = f"{row['release']} {name} {gpu.name} {row['precision']} {layout}"
        yield Measured(label, model_named(name), layout, job, seconds, group)


_CASE = re.compile(
    r"(?P<model>llama3_70b|llama3_405b|deepseekv2|deepseekv3)_(?P<words>.*?)_?mbc(?P<count>\d+)_cef", re.ASCII
)


def simumax_rows(path: str | Path) -> Iterator[Measured]:
    """The steps that SimuMax measured on one B200 box: eight GPUs, bf16, micro-batch 1, a2a."""
    gpu = gpu_named("b200")
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        case = _CASE.match(row["case"])
        assert case, row["case"]
        size = {key: int(value) for key, value in re.findall(r"(tp|cp|pp|dp|ep|seq|l)(\d+)", case["words"])}
        layout = Layout(
            tp=size.get("tp", 1), cp=size.get("cp", 1), pp=size.get("pp", 1), ep=size.get("ep", 1), cp_comm_type="a2a"
        )
        length = size.get("seq", 4096)
        batch = int(case["count"]) * 8 // (layout.tp * layout.cp * layout.pp)
        job = PlanJob(8, 8, gpu, 8, length, batch, sends_once=False)
        model = model_named(_SIMUMAX_NAMES[case["model"]], size["l"], **_SIMUMAX_OTHERWISE.get(case["model"], {}))
        yield Measured(row["case"], model, layout, job, row["ms"] / 1000, "simumax", row["alloc_gib"])


LONG_TOKENS = 4 << 20
"""Tokens of a step in NeMo's table of long sequences: its batch size times its length.
Source: performance_long_sequence.md of NeMo; the measurements are of its container 24.03.01."""
_LONG_VERSIONS = {"te": "1.5", "mcore": "0.6"}
"""Of that container: 24.05 has 1.6 and 0.7, by the software component versions of NeMo's user guide."""


def long_rows(path: str | Path) -> Iterator[Measured]:
    """The layouts of NeMo's table of long sequences: Llama 2 7B, fp8, H100; seconds out of their TFLOP/s.

    Gradients in bf16 and bf16 weights beside those in fp8, as the container's launch of that model in fp8 has them; its
    configuration leaves ub_tp_comm_overlap off and knows no cross_entropy_loss_fusion yet. Source:
    examples/training/llama/h100/llama2_7b_fp8.sh, conf/training/llama/llama2_7b.yaml, NeMo-Framework-Launcher 24.03.01.
    """
    gpu, model = gpu_named("h100"), model_named("llama2-7b")
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        length = row["seq_k"] * 1024
        layout = Layout(tp=row["tp"], cp=row["cp"], pp=row["pp"])
        job = PlanJob(
            row["gpus"], 8, gpu, 8, length, LONG_TOKENS // length, "fp8", False, _LONG_VERSIONS, fp32_gradients=False,
            fp8_weights=False, overlaps_tp=False, loss_in_place=False,
        )  # fmt: skip
        seconds = model_flops(model, length) * LONG_TOKENS / row["gpus"] / row["tflops_with_cp"] / 1e12
        yield Measured(f"long {row['seq_k']}k {layout}", model, layout, job, seconds, "long")
