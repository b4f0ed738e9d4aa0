"""Random overrides of NeMo-RL's GRPO configuration on Megatron, and our verdict on them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from agree.compare import Refusal, Result, Tables, Tally, errors_of
from agree.process import Upstream, commit_of
from agree.settings_drawn import Space, drawn_settings
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Beside, Reading, UpstreamTree
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.script import read_launches
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.framework_roots import NEMO_RL
from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.checkout import texts_of, units_of

_CONFIG = "examples/configs/grpo_math_1B_megatron.yaml"
_SECTIONS = ("policy.", "grpo.", "loss_fn.", "cluster.", "data.")
_APART = ("model_name", "path", "env_vars", "name", "train_iters", "seed", "tokenizer", "chat_template")
_SIZES: Space = {
    "cluster.gpus_per_node": (1, 2, 8),
    "cluster.num_nodes": (1, 2),
    "policy.megatron_cfg.tensor_model_parallel_size": (1, 2, 4, 3),
    "policy.megatron_cfg.pipeline_model_parallel_size": (1, 2),
    "policy.megatron_cfg.context_parallel_size": (1, 2),
    "grpo.batch_multiplier": (1, 2),
}
_MOST = 5


def overrides(count: int, seed: int, space: Space) -> Iterator[list[str]]:
    """Random override lists: some sizes, and some settings that upstream's conditions read."""
    rng = random.Random(seed)
    for _ in range(count):
        keys = [*rng.sample(sorted(_SIZES), rng.randint(0, 3)), *rng.sample(sorted(space), rng.randint(0, _MOST))]
        yield [f"{key}={_written(rng.choice(_SIZES.get(key) or space[key]))}" for key in dict.fromkeys(keys)]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(checkout: Path, words: list[str]) -> Reading:
    line = f"python examples/run_grpo.py --config {_CONFIG} {' '.join(words)}"
    (reading,) = read_launches(line, "job.sh", beside=Beside(str(checkout), (str(checkout),)))
    return reading


def compare(checkout: Path, commands: int, seed: int, *, megatron_lm: Path) -> Result:
    """Judges random overrides of the configuration in NeMo-RL's checkout; its imports need `megatron_lm`."""
    upstream = Upstream("nemo_rl_upstream.py", str(checkout), str(megatron_lm))
    version = upstream.ready["version"]
    units = units_of(texts_of(str(checkout), NEMO_RL), NEMO_RL)
    base = {item.key: item.value for item in _read(checkout, []).settings if item.value is not None}
    lines = tuple(f"{key}\t{value!r}" for key, value in base.items())
    space = drawn_settings({**units, "settings": Unit("settings", "settings", (), "", lines)}, _SECTIONS)
    space = {
        key: [value for value in values if isinstance(value, str) is isinstance(base[key], str)]  # pydantic holds types
        for key, values in space.items()
        if not key.endswith(_APART)
    }
    space = {key: values for key, values in space.items() if values}
    tree = UpstreamTree("nemo-rl", str(checkout), version, cached=False)
    stated = parse_assumptions([f"nemo_rl={version}", "te=2.20.0", "arch=sm90", "env.TORCH_CUDA_ARCH_LIST=9.0"])
    tally = Tally(TABLES)
    for words in overrides(commands, seed, space):
        answer = upstream.ask({"config": str(checkout / _CONFIG), "overrides": words})["refusal"]
        try:
            launch = build_launch(_read(checkout, words)._replace(upstream=(tree,)), assumed=stated)
        except HcpError:  # a value that is no size: hcp stops there
            tally.counts["not read"] += 1
            continue
        report = check_launch(launch, rules_for, fixes=False)
        tally.add(" ".join(words), Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    return Result("nemo-rl", version, commit_of(checkout), {"commands": commands, "seed": seed}, tally)


_BUILT = "raised where the workers build the model"
TABLES = Tables(
    owners=((r"must be divisible by PP \* CP \* TP|is insufficient for the parallelism", ("TOPO003",)),),
    unrelated=(),
    beyond=dict.fromkeys("CP008 PIPE001 PIPE004 TP001 TOPO004".split(), _BUILT),
)
