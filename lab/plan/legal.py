"""Random layouts, judged by the search and by the rules: `python lab plan/legal [--layouts 10000] [--seed 0]`.

Each layout of a random model, cluster and software is written as a launch of Megatron-LM, which `hcp check`'s rules
judge; of the rules about layouts, the planner's `forbidden` must name the same ones. Exits with 1 if they differ.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

from program import parser_of

from megatron_hcp.cost.gpus import gpu_named
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.words import reading_of_words
from megatron_hcp.plan.layout import CP_TYPES, PRECISIONS, Layout, PlanJob, pipeline_string
from megatron_hcp.plan.legal import RECIPES, forbidden
from megatron_hcp.plan.model import PlanModel, plan_model
from megatron_hcp.rules.registry import RULES

MCORE = ("0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
TE = ("1.9.0", "1.11.0", "1.13.0", "2.4.0", "2.5.0", "2.8.0", "2.11.0", "2.14.0", "2.15.0", "2.18.0", "2.20.2")
ABOUT_SOFTWARE = frozenset(("KEY", "KNOWN", "ENV", "LEN", "ACCEPT", "ASSUME", "START"))
"""Families of rules that a layout does not decide: of keys, known faults of releases, environment, lengths, and
upstream's own guards, which judge whole launches: a drawn one states its sizes and little else."""


def random_model(chance: random.Random) -> tuple[PlanModel, dict[str, Any]]:
    """A model, and the facts of it that a launch states."""
    pick = chance.choice
    latent, experts = chance.random() < 0.25, chance.random() < 0.5
    heads = pick((8, 12, 16, 32, 40, 64))
    groups = heads if latent else pick([size for size in (1, 2, 3, 4, 6, 8, heads) if heads % size == 0])
    layers = pick((1, 4, 7, 16, 30, 61))
    facts: dict[str, Any] = {
        "num_layers": layers, "hidden_size": 1024, "heads": heads, "num_query_groups": groups,
        "group_query_attention": not latent, "vocab_size": 32000, "ffn_hidden_size": pick((4096, 4100, 2816)),
        "mtp_layers": pick((None, None, 1)), "mla": latent, "position_embedding_type": "rope",
        "max_position_embeddings": 1 << 20,
    }  # fmt: skip
    values = {
        **{key: value for key, value in facts.items() if value is not None},
        "num_attention_heads": heads, "softmax_type": "vanilla",
    }  # fmt: skip
    if latent:
        facts |= {"qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": pick((128, 192)), "kv_lora_rank": 512}
        values |= {name: facts[name] for name in ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "kv_lora_rank")}
    if experts:
        dense = pick((0, 1)) if layers > 1 else 0
        freq = (0,) * dense + (1,) * (layers - dense)
        facts |= {
            "num_experts": pick((8, 12, 64)), "moe_router_topk": 2, "moe_ffn_hidden_size": pick((1024, 1026)),
            "moe_shared_expert_intermediate_size": pick((None, 1024)), "moe_layer_freq": freq,
        }  # fmt: skip
        values |= {name: facts[name] for name in ("num_experts", "moe_router_topk", "moe_ffn_hidden_size")}
        values |= {"moe_layer_freq": list(freq)}
        values |= {"moe_shared_expert_intermediate_size": facts["moe_shared_expert_intermediate_size"] or 0}
    elif not latent and chance.random() < 0.3:
        facts["window_size"] = (1023, 0)
        values["window_size"] = (1023, 0)
    if chance.random() < 0.3:
        mixers = a_mixer(chance, layers)
        facts |= mixers
        values |= mixers
    elif not latent and chance.random() < 0.2:
        facts["softmax_type"] = values["softmax_type"] = pick(("learnable", "off-by-one"))
    return plan_model(values, "random"), facts


def a_mixer(chance: random.Random, layers: int) -> dict[str, Any]:
    """Layers beside attention, by the names of facts."""
    pick = chance.choice
    kind = pick(("dsa", "gated_delta_net", "mamba"))
    if kind == "mamba":
        heads = {"mamba_num_heads": pick((16, 24, 64)), "mamba_num_groups": pick((1, 2, 8)), "mamba_head_dim": 64}
        return {"hybrid_pattern": "M*" * (layers // 2) + "M" * (layers % 2), **heads}
    if kind == "dsa":
        return {"attention_variant": kind, "rope_fusion": False}
    return {"attention_variant": kind, "linear_num_key_heads": pick((8, 16)), "linear_num_value_heads": pick((16, 24))}


def random_layout(chance: random.Random) -> tuple[Layout, PlanJob]:
    """A layout and its job, most of them nearly legal."""
    pick = chance.choice
    cp = pick((1, 1, 2, 3, 4, 8))
    kind = pick(CP_TYPES)
    sizes = None
    if kind == "a2a+p2p" and chance.random() < 0.9:
        inner = pick([size for size in range(1, cp + 1) if cp % size == 0])
        sizes = (inner, cp // inner if chance.random() < 0.9 else 2)
    layout = Layout(
        tp=pick((1, 1, 2, 3, 4, 8)), cp=cp, pp=pick((1, 1, 2, 4)), vp=pick((1, 1, 1, 2, 3)), ep=pick((1, 1, 2, 4, 8)),
        etp=pick((1, 1, 1, 2)), mbs=pick((1, 1, 2)), cp_comm_type=kind, hcp_sizes=sizes if cp > 1 else None,
    )  # fmt: skip
    world = layout.tp * cp * layout.pp * pick((1, 2, 4, 8)) if chance.random() < 0.85 else pick((8, 24, 64))
    versions = {"mcore": pick(MCORE), "te": pick(TE)}
    return layout, PlanJob(
        world, 8, gpu_named("h100"), 8, pick((4096, 4104, 6144, 8192)), pick((48, 64, 96, 120)),
        precision=pick(PRECISIONS), versions=versions,
    )  # fmt: skip


def launch_of(model: PlanModel, facts: dict[str, Any], layout: Layout, job: PlanJob) -> Launch:
    """The launch of Megatron-LM that the layout amounts to."""
    words: dict[str, object] = {
        "--tensor-model-parallel-size": layout.tp, "--context-parallel-size": layout.cp,
        "--pipeline-model-parallel-size": layout.pp, "--expert-model-parallel-size": layout.ep,
        "--expert-tensor-parallel-size": layout.etp, "--micro-batch-size": layout.mbs,
        "--global-batch-size": job.global_batch, "--seq-length": job.seq_length,
        "--max-position-embeddings": 1 << 20,
    }  # fmt: skip
    text = pipeline_string(model, layout)
    if text is not None:
        words["--pipeline-model-parallel-layout"] = text
    elif layout.vp > 1:
        words["--num-virtual-stages-per-pipeline-rank"] = layout.vp
    if layout.cp > 1:
        words["--cp-comm-type"] = layout.cp_comm_type
    written = [word for pair in words.items() for word in map(str, pair)]
    if layout.hcp_sizes:
        written += ["--hierarchical-context-parallel-sizes", *map(str, layout.hcp_sizes)]
    if layout.tp > 1:
        written.append("--sequence-parallel")
    stated = {
        **facts,
        **job.versions,
        "world_size": job.world_size,
        "gpus_per_node": job.gpus_per_node,
        "start": "torchrun",
    }
    if job.precision in RECIPES:
        stated |= {"fp8": "hybrid", "fp8_recipe": RECIPES[job.precision]}
    assumed = {name: Fact(value, "assumed") for name, value in stated.items() if value is not None}
    return build_launch(reading_of_words("mlm", [Word(word) for word in written], "-"), assumed=assumed)


def judged(launch: Launch) -> set[str]:
    """The rules about layouts that find an error in the launch."""
    report = check_launch(launch, RULES, fixes=False)
    errors = {finding.rule.id for finding in report.findings if finding.severity == "error"}
    return {rule for rule in errors if rule.rstrip("0123456789") not in ABOUT_SOFTWARE}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--layouts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    seen: Counter[str] = Counter()
    different = legal = 0
    for _ in range(options.layouts):
        model, facts = random_model(chance)
        layout, job = random_layout(chance)
        ours, theirs = set(forbidden(model, layout, job)), judged(launch_of(model, facts, layout, job))
        seen.update(ours | theirs)
        legal += not ours
        if ours != theirs:
            different += 1
            print(f"search {sorted(ours - theirs)} rules {sorted(theirs - ours)}: {layout} {job} {facts}")
    print(", ".join(f"{rule} {count}" for rule, count in sorted(seen.items())))
    print(f"{options.layouts} layouts, {legal} legal: {different} different")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
