"""The table of known models beside the models' own config.json: `python lab recipes/known_models --configs DIR`.

DIR holds files `OWNER--MODEL_config.json`, as ai-dynamo/aiconfigurator keeps them. Every size of
launch/facts/known_models.txt whose model, or the one that its line names as its source, has a file there is
compared with what `--model` reads in it. The exit status is 1 if one differs, or if no model was compared.

The table has sizes as Bridge writes them into the model's configuration: those that no release changes. A line: the
model's name on the Hugging Face Hub, where the sizes stand, FIELD=JSON. The first source is a class of Megatron-Bridge
0.3.1 (src/megatron/bridge/models/*/*_provider.py), slime/FILE is scripts/models/FILE.sh of slime, modelopt is
Megatron-LM's examples/post_training/modelopt/conf, config.json the model's own, config.json/OTHER that of the same
model in another precision or at another stage of training, model-card its page on the Hub.

csa is DeepSeek-V4's attention by the names of its config.json: sizes as Bridge's test of its converter has them, layers
as in examples/moe_recipes/deepseek_v4_flash of Megatron-LM's dev branch. Windows, sinks and shared experts are what all
of Bridge's recipes of the model, or of one of equal sizes, agree on; Mamba's sizes of Nemotron 3 Nano are those of its
recipe in Bridge 0.6.2. config is what the model's config.json has beside the sizes (of Gemma 2 and 3, what Bridge's
class has): windows, an indexer, types of layers, of which a framework's release makes what it can. A line NAME =OTHER:
a model of the same sizes that grew out of OTHER, or OTHER under its name on ModelScope (as ms-swift registers it). A
model at another stage of training or in another precision needs no line: see known_models.py.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from program import ROOT, parser_of

from megatron_hcp.launch.dialects.table import index_of
from megatron_hcp.launch.facts.known_models import FOR_PLANS, fields_of
from megatron_hcp.launch.hf import read_model

FILE = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "known_models.txt"
BY_BRIDGE = ("window_attn_skip_freq", "mtp_num_layers")
"""Fields that Bridge writes otherwise than config.json has them."""


def config_of(configs: Path, model: str, source: str) -> Path | None:
    """The config.json that a line's sizes can be compared with."""
    owner, _, name = model.partition("/")
    kind, _, other = source.partition("/")
    found = configs / f"{owner}--{other if kind == 'config.json' and other else name}_config.json"
    return found if found.is_file() else None


def differences(model: str, config: Path) -> list[str]:
    """The sizes of a model that its config.json has otherwise."""
    theirs, index = read_model(str(config)), index_of("bridge")
    found = []
    for field, ours in fields_of(model).items():
        if field in FOR_PLANS:
            continue
        fact = theirs.get(index[f"model.{field}"].fact)
        if field in BY_BRIDGE or (ours is None and fact is None):
            continue
        if fact is None or (list(fact.value) if isinstance(fact.value, tuple) else fact.value) != ours:
            found.append(
                f"{model}: {field} is {None if fact is None else fact.value!r} in {config.name}, {ours!r} here"
            )
    return found


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--configs", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        model, source = line.split()[:2]
        config = config_of(options.configs, model, source)
        if config is None:
            counts["without a config.json there"] += 1
            continue
        different = differences(model, config)
        counts["different" if different else "equal"] += 1
        print(*different, sep="\n", end="\n" if different else "")
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return int(bool(counts["different"]) or not counts["equal"])


if __name__ == "__main__":
    sys.exit(main())
