"""Random command lines of slime and miles, and our verdict on them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.megatron_lm_tables import TABLES as OF_MEGATRON
from agree.process import Upstream, commit_of
from agree.settings_drawn import drawn_options
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import UpstreamTree
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.launch.upstream import checkout_version
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.reader.checkout import roots_of, texts_of, units_of

_SOUND = (
    "--actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-rollout 10 "
    "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --micro-batch-size 1"
)
_FILES = (
    "config",
    "path",
    "-load",
    "--load",
    "addrs",
    "provider",
    "--eval-prompt-data",
    "--hf-checkpoint",
    "-dir",
    "--save",
)
"""How options end that name files which a drawn line does not have."""
_MEGATRON: Mapping[str, Sequence[Sequence[str]]] = {
    "--tensor-model-parallel-size": (("1",), ("2",), ("4",), ("3",)),
    "--pipeline-model-parallel-size": (("1",), ("2",)),
    "--context-parallel-size": (("1",), ("2",), ("4",)),
    "--sequence-parallel": ((),),
    "--global-batch-size": (("256",), ("64",), ("100",)),
    "--fp16": ((),),
    "--decoder-first-pipeline-num-layers": (("1",), ("2",)),
    "--num-experts": (("4",),),
    "--expert-model-parallel-size": (("2",),),
    "--moe-token-dispatcher-type": (("allgather",), ("alltoall",)),
    "--moe-pad-expert-input-to-capacity": ((),),
    "--recompute-granularity": (("full",), ("selective",)),
    "--overlap-grad-reduce": ((),),
    "--overlap-param-gather": ((),),
    "--mtp-num-layers": (("1",),),
    "--optimizer-cpu-offload": ((),),
    "--position-embedding-type": (("rope",),),
}
_CONNECTIONS = "env.CUDA_DEVICE_MAX_CONNECTIONS=1"
_MOST = 5


def drawn(count: int, seed: int, options: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[list[str]]:
    """Random command lines: a sound one with a few of slime's options and a few of Megatron-LM's."""
    rng = random.Random(seed)
    for _ in range(count):
        words = _SOUND.split()
        for space in (options, _MEGATRON):
            for name in rng.sample(sorted(space), rng.randint(0, min(_MOST, len(space)))):
                if name not in words:
                    words += [name, *rng.choice(space[name])]
        yield words


def compare(checkout: Path, commands: int, seed: int, *, megatron_lm: Path) -> Result:
    """Judges random command lines of slime's or miles' checkout, on a Megatron-LM's."""
    upstream = Upstream("slime_start_upstream.py", str(checkout), str(megatron_lm))
    name, mcore = upstream.ready["name"], upstream.ready["version"]
    roots = roots_of(name)
    version = checkout_version(name, checkout) or ""
    units = units_of(texts_of(str(checkout), roots), roots)
    options = {key: words for key, words in drawn_options(units).items() if not key.endswith(_FILES)}
    stated = parse_assumptions([f"mcore={mcore}", f"{name}={version}", "te=2.20.0", "arch=sm90", _CONNECTIONS])
    tree = UpstreamTree(name, str(checkout), version, cached=False)
    tally = Tally(TABLES)
    for words in drawn(commands, seed, options):
        answer = upstream.ask({"words": words})["refusal"]
        try:
            reading = read_target("", dialect="slime", words=tuple(words))._replace(upstream=(tree,))
            launch = build_launch(reading, assumed=stated)
        except HcpError:  # a value that is no size: hcp stops there
            tally.counts["not read"] += 1
            continue
        report = check_launch(launch, rules_for, fixes=False)
        tally.add(" ".join(words), Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    return Result(name, version, commit_of(checkout), {"commands": commands, "seed": seed, "mcore": mcore}, tally)


TABLES = Tables(
    owners=(
        (r"max_tokens_per_gpu must be set", ("SLIME001",)),
        (r"is not equal to rollout_batch_size", ("SLIME003",)),
        *OF_MEGATRON.owners,
    ),
    unrelated=(
        *OF_MEGATRON.unrelated,
        (r"Namespace' object has no attribute", "an option of sglang's, or of a newer Megatron-LM than `--on` names"),
    ),
    beyond={**OF_MEGATRON.beyond, "SLIME005": "reads config.json", "MEM001": "raised while training"},
)
