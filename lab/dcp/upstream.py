"""Our copies of the published schedulers against the real ones: `python lab dcp/upstream --dev DIR --main DIR`.

DIR is a checkout (or an unpacked wheel) with megatron/core, for verl one with verl/utils. Each real scheduler runs in a
process of its own, on random lengths of several shapes, including lengths on which it fails: ours must fail there too.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from program import parser_of

from megatron_hcp.dcp.published.dev import packing_aware
from megatron_hcp.dcp.published.main import balanced_cp
from megatron_hcp.dcp.published.open_group import Batches
from megatron_hcp.dcp.published.pr5869 import even_parts
from megatron_hcp.dcp.published.static import dp_balanced
from megatron_hcp.ground.errors import HcpError

WORLD_SIZES = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 64)

RUNNER = """
import json, os, sys, types
kind, folder = sys.argv[1:]
sys.path.insert(0, folder)

class Absent(types.ModuleType):  # needs triton, and the schedulers do not use it
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

name = "megatron.core.transformer.moe.ops.paged_stash"
sys.modules[name] = Absent(name)

def scheduler(case):
    pairs = list(enumerate(case["lengths"]))
    world_size, most = case["world_size"], case["max_seqlen"]
    if kind == "main":
        from megatron.core.pipeline_parallel.hybrid_cp_schedule import BalancedCPScheduler
        group = types.SimpleNamespace(size=lambda: world_size)
        return BalancedCPScheduler(most, group).get_groups_and_subsamples(pairs, None)[1]
    if kind == "verl":
        import ast
        with open(os.path.join(folder, "verl/utils/seqlen_balancing.py")) as file:
            tree = ast.parse(file.read())
        names = {"karmarkar_karp", "get_seqlen_balanced_partitions"}
        body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
        import heapq
        space = {"heapq": heapq}
        exec(compile(ast.Module(body, []), "seqlen_balancing", "exec"), space)
        works = [24576 * length + length**2 for length in case["lengths"]]
        return space["get_seqlen_balanced_partitions"](works, case["parts"], False)
    from megatron.core.datasets import data_schedule
    if kind == "dev":
        real = data_schedule.DefaultDynamicCPScheduler(most, 1, world_size, None)
    else:
        cp = case["cp"]
        real = data_schedule.DpBalancedScheduler(most, cp, world_size // cp, None)
    return real.get_groups_and_subsamples(pairs)

results = []
for case in json.load(sys.stdin):
    try:
        results.append(scheduler(case))
    except (AssertionError, IndexError, ValueError) as error:
        results.append(type(error).__name__)
sys.stdout.write("\\n" + json.dumps(results))
"""


class Case(NamedTuple):
    lengths: list[int]
    world_size: int
    max_seqlen: int
    cp: int
    parts: int


def cases(count: int, seed: int = 0) -> list[Case]:
    """Random lengths of every shape, on world sizes that are powers of two and others."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        world_size, max_seqlen = chance.choice(WORLD_SIZES), chance.choice((64, 100, 1024, 4096))
        number = chance.choice((1, 2, 3, world_size - 1, world_size, 2 * world_size + 1, chance.randint(1, 200)))
        draw = chance.choice(SHAPES)
        top = max_seqlen * world_size
        lengths = [max(1, min(top, draw(chance, max_seqlen, top))) for _ in range(max(1, number))]
        sizes = [size for size in range(1, world_size + 1) if world_size % size == 0]
        found.append(Case(lengths, world_size, max_seqlen, chance.choice(sizes), chance.randint(1, len(lengths))))
    return found


SHAPES: tuple[Callable[[random.Random, int, int], int], ...] = (
    lambda chance, most, top: chance.randint(1, most),
    lambda chance, most, top: chance.randint(1, top),
    lambda chance, most, top: int(chance.lognormvariate(math.log(most / 2), 1)),
    lambda chance, most, top: most,
    lambda chance, most, top: most + 1,
    lambda chance, most, top: most * chance.choice((1, 2, 4)) + chance.choice((-1, 0, 1)),
    lambda chance, most, top: most if chance.random() < 0.9 else chance.randint(1, most),
)
"""A length, from M and from M on all ranks."""


def upstream(kind: str, folder: Path, some: Sequence[Case]) -> list[Any]:
    """What the real scheduler returns for each case, or the name of its error."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUNNER, kind, str(folder)],
        input=json.dumps([case._asdict() for case in some]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{kind}: the real scheduler does not run:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def by_rank(batches: Batches) -> list[list[list[int]]]:
    """As upstream writes a plan: the samples of each rank of each micro-batch."""
    return [[samples for size, samples in batch for _ in range(size)] for batch in batches]


def ours(kind: str, case: Case) -> Any:
    try:
        if kind == "verl":
            works = [24576 * length + length**2 for length in case.lengths]
            return even_parts(works, case.parts)
        if kind.startswith("static"):
            return by_rank(dp_balanced(case.lengths, case.world_size, case.max_seqlen, case.cp))
        plan = {"dev": packing_aware, "main": balanced_cp}[kind]
        return by_rank(plan(case.lengths, case.world_size, case.max_seqlen))
    except HcpError:
        return None


def differences(kind: str, folder: Path, some: Sequence[Case]) -> list[Case]:
    """The cases in which upstream's plan differs from ours; an error of upstream is fine where we refuse too."""
    if kind.startswith("static"):  # upstream packs what doesn't fit; we refuse
        some = [case for case in some if max(case.lengths) <= case.cp * case.max_seqlen]
    return [
        case
        for case, real in zip(some, upstream(kind, folder, some))
        # Main's dp_balanced stops where it would have to split its first pack; dev's, and ours, splits it.
        if not (kind == "static-main" and isinstance(real, str))
        and ours(kind, case) != (None if isinstance(real, str) else real)
    ]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    for kind, what in (("dev", "Megatron-LM dev"), ("main", "Megatron-LM main"), ("verl", "verl")):
        parser.add_argument(f"--{kind}", type=Path, metavar="DIR", help=f"a checkout of {what}")
    options = parser.parse_args()
    some = cases(options.cases, options.seed)
    failed = 0
    for kind, folder in (
        ("dev", options.dev),
        ("static", options.dev),
        ("main", options.main),
        ("static-main", options.main),
        ("verl", options.verl),
    ):
        if folder is not None:
            different = differences(kind, folder, some)
            failed += bool(different)
            refused = sum(ours(kind, case) is None for case in some)
            print(
                f"{kind:11s} {len(some)} cases, {len(different)} different, {refused} without a plan of ours",
                flush=True,
            )
            for case in different[:3]:
                print("      ", case)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
