"""Random command lines of ms-swift's `megatron sft` and `megatron rlhf`, and our verdict on them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.process import Upstream, commit_of
from agree.settings_drawn import drawn_options
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Beside, UpstreamTree
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.script import read_launches
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.framework_roots import MS_SWIFT
from megatron_hcp.validators.reader.checkout import texts_of, units_of

_SOUND = "--model Qwen/Qwen3-8B --dataset data"
_APART = tuple(
    "model adapters plugins path dir _url server device_map kwargs deepspeed fsdp register load_args config info "
    "report_to _to system attention_backend tokens dims scaling groups layout memory torch_dtype mm_per_prompt "
    "megatron_init".split()
)
"""How options end that name files, models, packages or texts with a grammar of their own, and the one that ms-swift's
own Ray driver sets to leave Megatron's start out."""
_MORE: Mapping[str, Sequence[Sequence[str]]] = {
    "--tensor_model_parallel_size": (("1",), ("2",), ("4",)),
    "--pipeline_model_parallel_size": (("1",), ("2",)),
    "--context_parallel_size": (("1",), ("2",)),
    "--global_batch_size": (("16",), ("8",), ("12",)),
    "--micro_batch_size": (("1",), ("2",)),
    "--attention_backend": (("flash",), ("fused",), ("flash_5",)),
    "--num_generations": (("8",), ("4",), ("3",)),
}
_MOST = 6


def drawn(count: int, seed: int, options: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Random (command, words): a sound line with some options."""
    rng = random.Random(seed)
    for _ in range(count):
        words = _SOUND.split()
        for space, most in ((options, _MOST), (_MORE, len(_MORE) // 2)):
            for name in rng.sample(sorted(space), rng.randint(0, min(most, len(space)))):
                if name not in words:
                    words += [name, *rng.choice(space[name])]
        yield rng.choice(("sft", "sft", "rlhf")), words


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random command lines of ms-swift's checkout, in a job of eight ranks."""
    upstream = Upstream("ms_swift_start_upstream.py", str(checkout))
    version = upstream.ready["version"].partition(".dev")[0]
    units = units_of(texts_of(str(checkout), MS_SWIFT), MS_SWIFT)
    options = {key: words for key, words in drawn_options(units).items() if not key.endswith(_APART)}
    tree = UpstreamTree("ms-swift", str(checkout), version, cached=False)
    stated = parse_assumptions([f"ms_swift={version}", "te=2.20.0", "arch=sm90"])
    tally = Tally(TABLES)
    for program, words in drawn(commands, seed, options):
        answer = upstream.ask({"program": program, "words": words})["refusal"]
        line = f"NPROC_PER_NODE=8 megatron {program} {' '.join(words)}"
        try:
            (reading,) = read_launches(line, "job.sh", beside=Beside("/nowhere", ()))
            launch = build_launch(reading._replace(upstream=(tree,)), assumed=stated)
        except HcpError:  # a value that is no size: hcp stops there
            tally.counts["not read"] += 1
            continue
        report = check_launch(launch, rules_for, fixes=False)
        tally.add(line, Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    return Result("ms-swift", version, commit_of(checkout), {"commands": commands, "seed": seed}, tally)


_BUILT = "raised where groups or the model are made, behind ms-swift's own checks"
TABLES = Tables(
    owners=((r"is not divisible by micro batch size|to have at least one micro-batch", ("SWIFT001",)),),
    unrelated=(),
    beyond=dict.fromkeys("CP008 MEM001 PIPE001 PIPE002 PIPE003 PIPE004 TOPO003 TOPO004 TP001".split(), _BUILT),
)
