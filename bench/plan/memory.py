"""Peak memory beside measured steps: `python bench/plan/memory.py ROWS.jsonl [--terms]`.

A row is {"case": "llama3_70b_l12_tp2_cp4_pp1_dp1_seq32768_mbc4_cef", "alloc_gib": 68.43}: model, layers, sizes,
micro-batches of a step on one box of eight B200. Sequence 4096 where none is named, micro-batch 1, a2a, etp 1.
Exit 1 where a dense row is more than 0.3 % off, or one with experts more than 0.8 %.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from hcp.core.cost.gpus import gpu_named
from hcp.plan.layout import Layout, PlanJob
from hcp.plan.memory import memory
from hcp.plan.model import PlanModel, plan_model

_LLAMA = {"hidden_act": "silu", "vocab_size": 128256, "tie_word_embeddings": False}
_LATENT = {
    "hidden_act": "silu", "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "llama3_70b": {
        **_LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    },
    "llama3_405b": {
        **_LLAMA, "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128,
        "num_key_value_heads": 16,  # as measured; the model published since has 8
    },
    "deepseekv2": {
        **_LATENT, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
        "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "vocab_size": 102400,
    },
    "deepseekv3": {
        **_LATENT, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "vocab_size": 129280,
    },
}  # fmt: skip
"""The models' config.json on Hugging Face, as far as it decides sizes; layers by row."""
DENSE_LIMIT, MOE_LIMIT = 0.003, 0.008


def case_of(name: str) -> tuple[PlanModel, Layout, PlanJob]:
    """What was run, out of the name of a case."""
    kind = next(key for key in CONFIGS if name.startswith(key))
    size = {key: int(value) for key, value in re.findall(r"_(l|tp|cp|pp|dp|ep|seq|mbc)(\d+)(?=_|$)", name)}
    config = {**CONFIGS[kind], "num_hidden_layers": size["l"]}
    if "first_k_dense_replace" in config:  # the truncated models keep one dense layer, also of V3's three
        config["first_k_dense_replace"] = 1
    layout = Layout(tp=size["tp"], cp=size.get("cp", 1), pp=size["pp"], ep=size.get("ep", 1), etp=1, cp_comm_type="a2a")
    batch = size["mbc"] * size["dp"]
    job = PlanJob(8, 8, gpu_named("b200"), 8, size.get("seq", 4096), batch, versions={"te": "2.11.0"})
    return plan_model(config, name), layout, job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--terms", action="store_true", help="print the terms of each row")
    options = parser.parse_args()
    errors: dict[bool, list[float]] = {False: [], True: []}
    for line in options.rows.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        model, layout, job = case_of(row["case"])
        found = memory(model, layout, job)
        error = found.peak / row["alloc_gib"] - 1
        errors[bool(model.sizes.experts)].append(abs(error))
        print(f"{error:+8.2%}  {found.peak:7.2f} of {row['alloc_gib']:7.2f} GiB  stage {found.stage}  {row['case']}")
        if options.terms:
            print("".join(f"{'':10}{value:8.3f}  {name}\n" for name, value in found.terms.items()))
    for moe, limit in ((False, DENSE_LIMIT), (True, MOE_LIMIT)):
        if errors[moe]:
            worst = max(errors[moe])
            print(f"{'MoE' if moe else 'dense'}: median {median(errors[moe]):.2%}, max {worst:.2%}, limit {limit:.1%}")
    return int(max(errors[False], default=0) > DENSE_LIMIT or max(errors[True], default=0) > MOE_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
