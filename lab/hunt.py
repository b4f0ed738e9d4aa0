"""Hunts faults of upstream: `python lab hunt CHECKOUT… --draws N`, a draft report for docs/upstream on standard output.

Draws launches of Megatron-LM from what can be combined (`AXES`), with one of the checkouts, and has upstream's own code
run on each: the whole step in real arithmetic beside the same without context parallelism (`hcp verify --engine
upstream`). What fails or differs is made smaller, choice by choice, as long as it does so at the same place; what comes
to the same place is one finding. A finding says what hcp knows of its smallest launch, and how to see it without hcp.
Nothing here calls a finding a fault: a person explains it first, and looks for upstream's own threads.
"""

from __future__ import annotations

import random
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from program import at_least_one, parser_of

from megatron_hcp.dryrun import conversations
from megatron_hcp.dryrun.small import small_run
from megatron_hcp.dryrun.step import StepRun, run_step
from megatron_hcp.dryrun.words import is_packed, words_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.upstream import upstreams_of
from megatron_hcp.rules.registry import RULES

BASE = (
    "--use-mcore-models --transformer-impl transformer_engine --num-layers 4 --hidden-size 1024 --ffn-hidden-size 4096 "
    "--num-attention-heads 16 --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope "
    "--normalization RMSNorm --swiglu --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0 "
    "--micro-batch-size 1 --global-batch-size 16 --train-iters 100 --eval-interval 100 --eval-iters 1 --lr 1e-5 "
    "--no-create-attention-mask-in-dataloader"
)
_MOE = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512"
AXES: dict[str, tuple[str, ...]] = {
    "CP": (
        "--context-parallel-size 2",
        "--context-parallel-size 2 --cp-comm-type a2a",
        "--context-parallel-size 2 --cp-comm-type all_gather",
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2",
    ),
    "packing": ("", "--sft", "--reset-position-ids --reset-attention-mask --eod-mask-loss"),
    "loss": ("", "--calculate-per-token-loss"),
    "MTP": ("", "--mtp-num-layers 1"),
    "attention": (
        "",
        "--group-query-attention --num-query-groups 4",
        "--multi-latent-attention --qk-layernorm --kv-lora-rank 128 --q-lora-rank 256",
        "--window-size 512,0",
        "--softmax-type learnable",
    ),
    "experts": (
        "",
        f"{_MOE} --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.01",
        f"{_MOE} --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01",
        f"{_MOE} --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.01",
        f"{_MOE} --moe-router-load-balancing-type none --moe-z-loss-coeff 0.001",
    ),
    "recomputation": (
        "",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity selective --recompute-modules core_attn mlp",
    ),
    "weights": ("--untie-embeddings-and-output-weights", "", "--untie-embeddings-and-output-weights --qk-layernorm"),
}
"""What a draw chooses one of; the first is what a launch is made smaller to."""
_PROCESSES, _SECONDS = 4, 120.0


class Drawn(NamedTuple):
    """A choice for each axis, and where it runs."""

    checkout: Path
    te: str
    choices: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(shlex.split(f"{BASE} {' '.join(self.choices)}"))


class Outcome(NamedTuple):
    """What came of it: `place` is empty where nothing differs or where it is not decided."""

    verdict: str
    place: str
    says: str = ""
    explained: tuple[str, ...] = ()


def draw(rng: random.Random, checkouts: list[Path], te: str) -> Drawn:
    return Drawn(rng.choice(checkouts), te, tuple(rng.choice(choices) for choices in AXES.values()))


def outcome_of(run: StepRun) -> Outcome:
    """The first place that differs (module, without the layers' numbers), or upstream's line that raised."""
    if run.verdict == "failed" and run.error is not None:
        error = run.error
        return Outcome("failed", f"{error['file']} {error['function']}", f"{error['type']}: {error['message']}"[:200])
    if run.verdict != "different":
        return Outcome(run.verdict, "", str((run.error or {}).get("missing", ""))[:200])
    different = run.own["different"]
    forward = next((one for one in different if one["phase"] == "forward"), None)
    worst = max(different, key=lambda one: one["error"] if one["error"] is not None else 9e99)
    place = forward["module"] if forward else "only gradients or losses"
    size = "not a number" if worst["error"] is None else f"{worst['error']:.1e}"
    says = f"{size} in {worst['module']}"
    gone = f"; gone with {run.explained[0]}" if run.explained else ""
    return Outcome("different", place + gone, says, run.explained)


def read(drawn: Drawn) -> Launch:
    """The launch.

    Raises:
        HcpError: its checkout is none.
    """
    options = LoadOptions(
        dialect="mlm",
        words=drawn.words,
        assumes=(f"te={drawn.te} world_size=8",),
        upstream=upstreams_of([str(drawn.checkout)]),
    )
    return load_launch("", options)


def run(drawn: Drawn) -> Outcome:
    """What came of a launch."""
    try:
        return outcome_of(run_step(read(drawn), _PROCESSES, _SECONDS))
    except HcpError as error:
        return Outcome("unusable", "", str(error)[:200])


def shrunk(drawn: Drawn, outcome: Outcome, again: Callable[[Drawn], Outcome]) -> Drawn:
    """With as many of the axes' first choices as the same outcome has, at the same place."""
    for axis, choices in enumerate(AXES.values()):
        if drawn.choices[axis] == choices[0]:
            continue
        smaller = drawn._replace(choices=(*drawn.choices[:axis], choices[0], *drawn.choices[axis + 1 :]))
        if again(smaller)[:2] == outcome[:2]:
            drawn = smaller
    return drawn


def known(drawn: Drawn) -> list[str]:
    """The rules that speak of the launch."""
    return sorted({finding.id for finding in check_launch(read(drawn), RULES, fixes=False, verdict=False).findings})


def report(found: dict[Outcome, list[Drawn]]) -> Iterator[str]:
    """The findings as Markdown, each with its smallest launch."""
    for number, (outcome, launches) in enumerate(found.items(), 1):
        least = min(launches, key=lambda one: sum(bool(choice) for choice in one.choices))
        yield f"\n## {number}. {outcome.verdict}: {outcome.place}\n"
        where = f"{least.checkout.name}, Transformer Engine {least.te}"
        yield f"{outcome.says}. {len(launches)} launches, the smallest on {where}."
        yield f"Nothing differs with: {'; '.join(outcome.explained) or 'none of the changes that were tried'}."
        yield f"hcp check says: {', '.join(known(least)) or 'nothing'}.\n"
        launch = read(least)
        pair = small_run(launch, _PROCESSES).pairs[0]
        yield "```bash\n# what ran here, with context parallelism and without"
        yield f"pretrain_gpt.py {shlex.join(pair.words)}\npretrain_gpt.py {shlex.join(pair.alone)}"
        yield "# the same on 8 GPUs" + f", with conversations (JSON lines) in {conversations.NAME}" * is_packed(launch)
        yield f"torchrun --nproc-per-node 8 pretrain_gpt.py {shlex.join(words_of(launch).words)}\n```"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--draws", type=at_least_one, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600.0, help="no draw begins later")
    parser.add_argument("--te", default="2.19", help="the release of Transformer Engine, unpacked in $HCP_UPSTREAM")
    asked = parser.parse_args()
    rng, begun = random.Random(asked.seed), time.monotonic()
    found: dict[Outcome, list[Drawn]] = {}
    verdicts: list[str] = []
    for _ in range(asked.draws):
        if time.monotonic() - begun > 60 * asked.minutes:
            break
        drawn = draw(rng, asked.checkouts, asked.te)
        outcome = run(drawn)
        verdicts.append(outcome.verdict)
        print(drawn.checkout.name, *drawn.choices, "=>", *outcome[:3], file=sys.stderr, flush=True)
        if outcome.place:
            same = next((one for one in found if one[:2] == outcome[:2]), None)
            if same is None:
                found[outcome] = [shrunk(drawn, outcome, run)]
            else:
                found[same].append(drawn)
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))
    print(f"# Hunt: {len(verdicts)} launches, seed {asked.seed}: {counts}", *report(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
