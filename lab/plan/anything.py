"""Random models on random clusters: `python lab plan/anything [--cases 3000] [--seed 1]`.

Sizes are drawn as people would choose them and as nobody would: odd layers, one head, vocabularies of 7, nodes of 3
GPUs, a sequence of one token. Each case goes through what `hcp plan` does, to the printed text. Wanted: layouts that
fit and are legal; or what is wrong with the least of them, and the nearest change with which there is an answer; or one
line of an error. Lines of the text fit 80 columns. Exit 1 where a case crashes, has no reason, or prints a longer line.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from typing import Any

from program import parser_of

from megatron_hcp.cli.reports.plan import plan_lines
from megatron_hcp.cli.reports.plan_json import Shown, plan_json
from megatron_hcp.cost.gpus import GPUS, gpu_named
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.plan.answer import judge, plan_job
from megatron_hcp.plan.change import flips, nearest, remedy
from megatron_hcp.plan.constants import rates_for
from megatron_hcp.plan.layout import PRECISIONS, Layout, PlanJob
from megatron_hcp.plan.legal import forbidden
from megatron_hcp.plan.model import plan_model
from megatron_hcp.plan.space import possible_fixed
from megatron_hcp.plan.why import why_not

COLUMNS = 80


def a_model(chance: random.Random) -> dict[str, Any]:
    """The values of a config.json."""
    pick = chance.choice
    heads = pick((1, 2, 6, 8, 12, 16, 24, 32, 40, 64, 96, 128))
    values: dict[str, Any] = {
        "num_hidden_layers": pick((1, 2, 7, 16, 24, 32, 36, 61, 80, 126)),
        "hidden_size": heads * pick((16, 64, 80, 128)), "num_attention_heads": heads,
        "num_key_value_heads": pick([size for size in (1, 2, 4, 8, heads) if heads % size == 0]),
        "intermediate_size": pick((7, 1024, 2752, 5632, 11008, 28672)),
        "vocab_size": pick((7, 32000, 50257, 128256, 201088)), "tie_word_embeddings": chance.random() < 0.3,
    }  # fmt: skip
    if chance.random() < 0.5:
        experts = pick((2, 8, 60, 64, 128, 160, 256, 384))
        values |= {
            "num_experts": experts, "num_experts_per_tok": min(experts, pick((1, 2, 4, 6, 8))),
            "moe_intermediate_size": pick((128, 768, 1536, 2880)), "n_shared_experts": pick((0, 1, 2)),
            "first_k_dense_replace": pick((0, 0, 1, 3)), "num_nextn_predict_layers": pick((0, 0, 1)),
        }  # fmt: skip
    if chance.random() < 0.2:
        values |= {
            "kv_lora_rank": 512, "q_lora_rank": pick((None, 1536)), "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        }  # fmt: skip
    elif chance.random() < 0.2:
        values |= {"sliding_window": pick((1, 128, 4096)), "attention_bias": True}
    return values


def a_job(chance: random.Random) -> PlanJob:
    """A cluster and a step."""
    pick = chance.choice
    node = pick((1, 2, 3, 4, 8, 8, 8, 16))
    world = node * pick((1, 1, 2, 3, 4, 5, 16, 32, 128, 1000))
    lengths = (1, 2, 511, 512, 4096, 8192, 65536, 100_000, 131072, 1 << 20)
    releases: tuple[dict[str, str], ...] = ({}, {"te": "2.4"}, {"te": "2.14", "mcore": "0.16.1"})
    return PlanJob(
        world, node, gpu_named(pick(list(GPUS))), pick((node, node, 8, 36, 72)), pick(lengths),
        pick((1, 3, 8, world, 4 * world, 960, 4096)), pick(PRECISIONS), chance.random() < 0.2, pick(releases),
        fp32_gradients=chance.random() < 0.7, sharded_optimizer=chance.random() < 0.8,
    )  # fmt: skip


def answered(chance: random.Random) -> tuple[str, list[str]]:
    """The outcome of a case and its text: planned, error, or what is wrong."""
    try:
        model, job = plan_model(a_model(chance)), a_job(chance)
        asked = chance.choice(
            ({}, {}, {}, {"tp": 2}, {"cp": 2, "cp_comm_type": "a2a"}, {"pp": 4}, {"recompute": "full"})
        )
        fixed = possible_fixed(model, asked)
        rates = rates_for(job)
        planned = plan_job(model, job, rates, fixed, 5)
        found = planned.found
        if planned.best:
            best = planned.best[0]
            others = [judge(model, Layout(tp=4, cp=2, cp_comm_type="a2a"), job, rates)]
            shown = Shown(
                model, job, rates, planned.best, [], legal=found.legal, frontier=planned.frontier,
                flips=flips(model, best.layout, [item.layout for item in planned.best[1:]], job, rates),
                reasons=[(other, why_not(model, other, best, job, rates)) for other in others],
            )  # fmt: skip
            amiss = [item for item in planned.best if not item.fits or forbidden(model, item.layout, job)]
            verdict = "illegal or too large" if amiss else "planned"
        else:
            least = judge(model, found.least.layout if found.least else Layout(**fixed), job, rates)
            change = remedy(model, job, rates, fixed)
            shown = Shown(model, job, rates, [], [], legal=found.legal, least=least, remedy=change)
            verdict = "a change" if change else "no change"
            if not least.rules and least.fits:
                verdict = "no reason"
        one = judge(model, Layout(), job, rates)
        near = None if one.fits else nearest(model, Layout(), job, rates)
        explained = Shown(model, job, rates, [one], [], nearest=near)
        plan_json(shown), plan_json(explained)
        return verdict, [*plan_lines(shown), *plan_lines(explained)]
    except HcpError as refused:
        return "error", [str(refused)]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    came: Counter[str] = Counter()
    bad = 0
    for number in range(words.cases):
        name = f"{words.seed}:{number}"
        try:
            verdict, lines = answered(random.Random(name))
        except Exception:
            verdict, lines = "crash", []
            print(f"{name}: {traceback.format_exc(limit=-3)}")
        came[verdict] += 1
        wide = [line for line in lines if len(line) > COLUMNS]
        if verdict == "error":
            wide = []
            bad += len(lines) != 1 or "\n" in lines[0]
        if verdict not in ("planned", "a change", "error") or wide:
            bad += 1
            print(f"{name}: {verdict}", *wide[:2], sep="\n  ")
    print(", ".join(f"{count} {verdict}" for verdict, count in came.most_common()), f"; {bad} amiss")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
