"""Random plans, checked by arithmetic of this file alone: `python lab dcp/random_plans [--draws N] [--seed S]`.

Each draw has its own lengths, W, M, TP, layout, process groups, pipeline, memory limit and cost. Its plan is checked as
the JSON that `hcp dcp plan -o` writes, and as the lists that a framework gets from the schedulers that replace its own:
every sequence is in one group, every rank in one group of each micro-batch, upstream has the groups, no rank holds more
than M padded tokens, and the loss weights give the gradient and the logged loss of one process (rational numbers). What
is refused must have no plan.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from program import parser_of

import judge
from megatron_hcp.dcp import ASSUMED_COST, DEFAULT_COST, Cost, Memory, Setup, plan_micro_batches
from megatron_hcp.dcp.adapter import DynamicCPScheduler, HybridCPScheduler
from megatron_hcp.dcp.normalize import (
    GATHERS,
    REDUCTIONS,
    loss_weights,
    megatron_factor,
    real_tokens_of_rank,
)
from megatron_hcp.dcp.plan_json import plan_json, plan_of_json
from megatron_hcp.ground.errors import HcpError

COSTS = (
    DEFAULT_COST, ASSUMED_COST, Cost(comm=0.0), Cost(linear=0.0), Cost.from_facts(judge.CONFIGS["mha"], "b200"),
    Cost.from_facts(judge.CONFIGS["gqa"], "h100", cp_comm_type="a2a"),
)  # fmt: skip
Batches = list[list[tuple[list[int], list[int]]]]
"""[micro-batch][group]: its ranks, and its sequences by number."""


class Question(NamedTuple):
    """What is to be planned."""

    lengths: list[int]
    world_size: int
    most: int
    """M."""
    setup: Setup

    def sizes(self) -> list[int]:
        """Sizes of the process groups that upstream builds: see create_dynamic_dp_cp_groups in parallel_state."""
        ranks, target = self.world_size, self.setup.groups
        if target == "any":
            sizes = list(range(1, ranks + 1))
        elif target == "pow2":
            sizes = [1 << k for k in range(20) if 1 << k < ranks] + [ranks]
        else:  # 2**i for i in range(int(log2(W))); all ranks together are a group anyway
            sizes = sorted({1, ranks, *(1 << i for i in range(ranks.bit_length() - 1))})
        return [size for size in sizes if size % self.setup.min_cp_size == 0]

    def fits(self, lengths: Sequence[int], size: int) -> bool:
        """Whether each rank of a group holds at most M padded tokens, and no more bytes than there are."""
        setup = self.setup
        multiple = size * (setup.tp if setup.sequence_parallel else 1)
        multiple *= 2 if size > 1 and setup.layout == "zigzag" else 1
        rows = sum(length + -length % multiple for length in lengths)
        if max(rows, size * setup.min_local_rows) > size * self.most:
            return False
        memory = setup.memory
        if memory is None:
            return True
        used = rows / size * memory.bytes_per_token + rows * memory.bytes_per_group_token
        return used <= memory.limit_bytes * (1 + 1e-9)

    def has_plan(self) -> bool:
        """Whether W is a number of ranks that upstream starts with, and all ranks together hold the longest sequence.

        They may have to: no rank idles, and in the last micro-batch there may be no other sequence.
        """
        ranks, least = self.world_size, self.setup.min_cp_size
        if self.setup.groups in ("main", "dev") and ranks % 2 and ranks > 1:
            return False
        return ranks % least == 0 and least in self.sizes() and self.fits([max(self.lengths)], ranks)


def drawn(chance: random.Random) -> Question:
    """A question, from the whole range of what may be asked."""
    groups = chance.choice(("main", "dev", "pow2", "any"))
    ranks = 1 << chance.randint(0, 8) if chance.random() < 0.5 else chance.randint(1, 200)
    ranks = min(ranks, 64) if groups == "any" else ranks
    most = chance.choice((16, 257, 1000, 1024, 4096, 8192, 16384, chance.randint(1, 20000)))
    count = max(1, min(400, int(ranks * chance.choice((0.1, 0.5, 1, 2, 5)) * chance.uniform(0.5, 1.5))))
    pp, vpp = chance.choice(((1, 1), (1, 1), (4, 1), (4, 2)))
    memory = None
    if chance.random() < 0.2:
        memory = Memory(most * chance.uniform(0.3, 2), 1.0, chance.choice((0.0, 0.001, 0.01)))
    setup = Setup(
        chance.choice(COSTS), chance.choice((1, 1, 2, 4, 8, 3)), chance.random() < 0.7, groups, pp, vpp,
        chance.choice((1, 1, 1, 2, 4)), chance.choice(("zigzag", "contiguous")), chance.choice((1, 1, 1, 8, 128)),
        memory,
    )  # fmt: skip
    return Question(drawn_lengths(chance, count, most), ranks, most, setup)


def drawn_lengths(chance: random.Random, count: int, most: int) -> list[int]:
    kind = chance.randrange(7)
    if kind == 0:
        return [chance.randint(1, 2 * most) for _ in range(count)]
    if kind == 1:  # a long tail
        return [max(1, min(20 * most, int(most * chance.lognormvariate(-1.5, 1.2)))) for _ in range(count)]
    if kind == 2:  # a limit that most reach
        return [most if chance.random() < 0.8 else chance.randint(1, most) for _ in range(count)]
    if kind == 3:
        return [chance.choice((1, max(1, most - 1), most, most + 1, 2 * most + 1)) for _ in range(count)]
    if kind == 4:
        return [chance.randint(1, most)] * count
    if kind == 5:  # one giant
        return [*(chance.randint(1, max(1, most // 4)) for _ in range(count - 1)), most * chance.randint(1, 4 + count)]
    return [1 << chance.randint(0, 17) for _ in range(count)]


def faults_of(question: Question, batches: Batches) -> list[str]:
    """What no plan may do."""
    found = []
    if Counter(i for batch in batches for _, own in batch for i in own) != Counter(range(len(question.lengths))):
        found.append("a sequence is missing or placed twice")
    for number, batch in enumerate(batches):
        if [rank for ranks, _ in batch for rank in ranks] != list(range(question.world_size)):
            found.append(f"micro-batch {number}: not every rank is in one group")
        for ranks, own in batch:
            size = len(ranks)
            if size not in question.sizes() or (question.setup.groups != "any" and ranks[0] % size):
                found.append(f"micro-batch {number}: no process group of {size} ranks from {ranks[0]} on")
            if not own or not question.fits([question.lengths[i] for i in own], size):
                found.append(f"micro-batch {number}: ranks {ranks[0]} to {ranks[-1]} hold nothing, or more than M")
    return found


def wrong_weights(question: Question, batches: Batches, chance: random.Random) -> list[str]:
    """Where the step of W ranks is not that of one process; sums of losses and gradients are drawn as integers."""
    ranks, total = question.world_size, sum(question.lengths)
    reduction, gather = chance.choice(REDUCTIONS), chance.choice(GATHERS)
    static = chance.choice([size for size in (1, 2, 4, 8) if ranks % size == 0])
    applied = chance.choice((Fraction(1), megatron_factor(static, len(batches))))
    gradient = logged = summed = per_token = Fraction(0)
    wanted = loss = counted = 0
    for batch in batches:
        sizes = [len(own) for own, _ in batch]
        weights = loss_weights(ranks, sizes, reduction=reduction, gather=gather, applied=applied)
        for (_, own), size, weight in zip(batch, sizes, weights):
            value, shares = chance.randint(1, 999), [chance.randint(-99, 99) for _ in range(size)]
            wanted, loss = wanted + sum(shares), loss + value
            # A rank holds a share of the group's gradient. It back-propagates that, or the whole of it.
            back = sum(shares) * (1 if gather == "detached" else size)
            gradient += back * weight.backward * applied / total
            per_token += back * weight.per_token / total
            logged += size * value * weight.report_mean / total / ranks
            summed += size * value * weight.report_sum / total
            lengths = [question.lengths[i] for i in own]
            counted += sum(real_tokens_of_rank(lengths, size, rank, question.setup) for rank in range(size))
    gradient /= ranks if reduction == "mean" else 1
    found = []
    if gradient != Fraction(wanted, total):
        found.append(f"{reduction}, {gather}: the gradient is not that of one process")
    if not logged == summed == Fraction(loss, total):
        found.append("the logged loss is not that of one process")
    if counted != total or per_token != Fraction(wanted, total):
        found.append("the per-token loss is not that of one process")
    return found


class _Ranks:
    def __init__(self, count: int) -> None:
        self.count = count

    def size(self) -> int:
        return self.count


def in_framework(question: Question, chance: random.Random) -> list[str]:
    """What is wrong with the lists that a framework gets: the ids of each rank's samples, per micro-batch."""
    setup, ids = question.setup, [7 + 3 * i for i in range(len(question.lengths))]
    chance.shuffle(ids)
    pairs, align = list(zip(ids, question.lengths)), setup.tp if setup.sequence_parallel else 1
    multiple = chance.choice((1, 1, 2, 4))
    if chance.random() < 0.5:
        multiple, asked = 1, Setup(setup.cost, align, groups="main")
        scheduler: Any = HybridCPScheduler(question.most, _Ranks(question.world_size), cost=setup.cost, tp=align)
    else:
        asked = setup._replace(groups="dev", memory=None)
        scheduler = DynamicCPScheduler(question.most, 1, question.world_size, multiple, None, setup.min_cp_size)
        scheduler.cost, scheduler.tp, scheduler.layout, scheduler.min_local_rows, scheduler.pp, scheduler.vpp = (
            setup.cost, align, setup.layout, setup.min_local_rows, setup.pp, setup.vpp
        )  # fmt: skip
    asked_question = question._replace(setup=asked)
    try:
        lists = scheduler.get_groups_and_subsamples(pairs)
    except HcpError as error:
        too_few = multiple > 1 and "use more sequences per step" in str(error)
        return [f"refused: {error}"] if asked_question.has_plan() and not too_few else []
    if asked.groups == "main":
        lengths, lists = lists
        if lengths != [[[dict(pairs)[sample] for sample in rank] for rank in batch] for batch in lists]:
            return ["the lengths are not those of the ids"]
    found = faults_of(asked_question, grouped(lists, ids))
    if len(lists) % multiple:
        found.append(f"{len(lists)} micro-batches, not a multiple of {multiple}")
    return found


def grouped(lists: list[list[list[int]]], ids: list[int]) -> Batches:
    """Neighbouring ranks with the same samples are a group, as for upstream."""
    number, batches = {sample: index for index, sample in enumerate(ids)}, []
    for batch in lists:
        groups: list[tuple[list[int], list[int]]] = []
        for rank, samples in enumerate(batch):
            own = [number[sample] for sample in samples]
            if groups and groups[-1][1] == own:
                groups[-1][0].append(rank)
            else:
                groups.append(([rank], own))
        batches.append(groups)
    return batches


def check(question: Question, chance: random.Random) -> tuple[str, list[str]]:
    """What became of the question, and what is wrong with that."""
    try:
        plan = plan_micro_batches(question.lengths, question.world_size, question.most, **question.setup._asdict())
    except HcpError as error:
        return "refused", [f"refused, but has a plan: {error}"] if question.has_plan() else []
    written = json.loads(json.dumps(plan_json(plan)))
    batches = [[(group["ranks"], group["samples"]) for group in batch["groups"]] for batch in written["micro_batches"]]
    found = faults_of(question, batches) + wrong_weights(question, batches, chance)
    if plan_of_json(written, "plan") != plan:
        found.append("what is read back is another plan")
    return "planned", found + in_framework(question, chance)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="other seeds draw other questions")
    options = parser.parse_args()
    became: Counter[str] = Counter()
    for number in range(options.draws):
        chance = random.Random(f"{options.seed}/{number}")
        question = drawn(chance)
        what, found = check(question, chance)
        became.update([what, *(["with faults"] if found else [])])
        if found:
            print(f"draw {number}: W {question.world_size} M {question.most} {question.setup.groups}: {found[0]:.200}")
    print(f"{options.draws} draws: {became['planned']} planned, {became['refused']} refused, "
          f"{became['with faults']} with faults")  # fmt: skip
    return int(became["with faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
