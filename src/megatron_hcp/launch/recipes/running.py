"""How Bridge's recipes run a job, for `hcp plan`: from `running.txt`, which lab/recipes/running.py writes."""

from __future__ import annotations

import json
import os

from megatron_hcp.launch.fact import Setting

_FILE = os.path.join(os.path.dirname(__file__), "running.txt")
_OVERLAPS = ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "tp_comm_overlap")
_PRECISION = ("fp8", "fp8_recipe", "fp8_param", "fp8_dot_product_attention", "fp4", "grad_reduce_in_fp32")
_MODEL = (
    "recompute_modules", "recompute_method", "recompute_num_layers", "moe_flex_dispatcher_backend", "cuda_graph_impl",
    "cuda_graph_scope", "offload_modules", "fine_grained_activation_offloading", "cross_entropy_loss_fusion",
    "cross_entropy_fusion_impl",
)  # fmt: skip
_OPTIMIZER = ("exp_avg_dtype", "exp_avg_sq_dtype", "optimizer_cpu_offload", "optimizer_offload_fraction")
KEYS = (
    *(f"mixed_precision.{name}" for name in _PRECISION), "ddp.grad_reduce_in_fp32",
    *(f"model.{name}" for name in _MODEL), *(f"comm_overlap.{name}" for name in _OVERLAPS),
    *(f"optimizer.{name}" for name in _OPTIMIZER), "tokenizer.tokenizer_model",
)  # fmt: skip
"""What the file holds of a recipe, in the order in which a later key of the same last word decides."""


def running_of(recipe: str, release: str | None) -> tuple[Setting, ...]:
    """What a performance recipe sets of how a job runs; of an unknown release, what all of the file agree on.

    Empty for a recipe or a release that the file lacks: nothing is known of it, which is not that its keys are off.
    """
    with open(_FILE, encoding="utf-8") as file:
        file.readline()
        releases, lines, rows = (part.split("\n") for part in file.read().rstrip("\n").split("\n\n"))
    found = []
    for name, which, places in (row.split("|") for row in rows if row.startswith(f"{recipe}|")):
        known = [releases[int(at)] for at in which.split(",")]
        if name == recipe and (release is None or any(_same(one, release) for one in known)):
            found.append({lines[int(place)] for place in places.split()})
    agreed = set.intersection(*found) if found else set()
    pairs = dict(line.split(" ", 1) for line in agreed)
    return tuple(Setting(key, json.loads(pairs[key])) for key in KEYS if key in pairs)


def _same(known: str, release: str) -> bool:
    return known.partition("+")[0] == release.removeprefix("v").partition("+")[0]
