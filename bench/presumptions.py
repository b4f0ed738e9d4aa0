"""What an unknown Megatron-Bridge recipe is presumed to leave alone: `python bench/presumptions.py --bridge CHECKOUT`.

Counts over all recipes of a checkout how many give each fact of our table another value than Bridge's default: by an
assignment in the recipe, or by the bridge and provider class of the model that it trains. Facts that few recipes change
are presumed where a launch leaves them to a recipe that is not known: `launch/facts/presumed.json`. `--write` renews
that file, `--check` exits 1 where it is not what the checkout gives.

The counts err on the side of change: a value that cannot be read counts as another one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]

from bridge_models import bridge_of, set_by_model  # noqa: E402
from bridge_recipes import UNKNOWN as UNREAD  # noqa: E402
from bridge_recipes import Recipe, Sources, recipes  # noqa: E402

from hcp.core.errors import HcpError  # noqa: E402
from hcp.launch.coerce import coerce  # noqa: E402
from hcp.launch.fact import Setting  # noqa: E402
from hcp.launch.facts.spec import UNKNOWN, FactSpec  # noqa: E402
from hcp.launch.facts.table import FACTS, default_of  # noqa: E402

FILE = ROOT / "src" / "hcp" / "launch" / "facts" / "presumed.json"
FEW = 0.15
"""The largest part of the recipes that may change a presumed fact."""

NEVER = frozenset(
    "tp pp vpp cp ep etp num_layers hidden_size heads num_query_groups head_dim num_experts seq_length "
    "mamba_num_heads mamba_num_groups mamba_head_dim linear_num_key_heads linear_num_value_heads mtp_layers "
    "dataset_seq_length micro_batch_size global_batch_size sequence_parallel calculate_per_token_loss "
    "packed_sequence_size packing_buffer_size pack_sequences_in_batch pad_seq_to_mult hybrid_pattern fp8 fp8_recipe "
    "moe_token_dispatcher_type".split()
)
"""Facts that are not presumed, however few recipes were seen to change them: sizes of the model and of parallelism,
packing, the loss, and what recipes set through objects that are not followed (precision, layer patterns)."""

_SAME = {("cp_comm_type", None): "p2p", ("attention_backend", None): "auto", ("cuda_graph_impl", None): "none"}
"""(fact, None) -> the value that stands for the same."""


def presumable() -> dict[str, Any]:
    """Fact name -> Bridge's default, for the facts that a recipe can set."""
    found = {}
    for name, spec in FACTS.items():
        value = default_of(spec, "bridge")
        if spec.bridge and value is not UNKNOWN:
            found[name] = _SAME.get((name, value), value)
    return found


def changed(recipe: Recipe, sources: Sources) -> dict[str, Any]:
    """Fact name -> the value that the recipe gives it, where that is not the default; `UNREAD` = perhaps not."""
    written = {setting.key: setting.value for setting in recipe.reading.settings}
    model = bridge_of(recipe.model) if recipe.model else written.get("model._target_")
    by_model = set_by_model(sources, str(model)) if model else {}
    found = {}
    for name, default in presumable().items():
        spec = FACTS[name]
        values = [written[key] for key in spec.bridge if key in written]
        if not values:
            values = [by_model[key[6:]] for key in spec.bridge if key.startswith("model.") and key[6:] in by_model]
        others = [value for value in (_typed(spec, given) for given in values) if value != default]
        if others:
            found[name] = others[0]
    return found


def _typed(spec: FactSpec, value: Any) -> Any:
    if value is UNREAD:
        return value
    try:
        value = coerce(spec, Setting(spec.bridge[0], list(value) if isinstance(value, tuple) else value))
    except HcpError:
        return UNREAD
    return _SAME.get((spec.name, value), value) if not isinstance(value, list | dict) else value


def presumed(counts: Counter[str], total: int) -> dict[str, Any]:
    """What `presumed.json` says for these counts."""
    facts = {
        name: {"value": value, "recipes_set": counts[name]}
        for name, value in presumable().items()
        if name not in NEVER and counts[name] <= FEW * total
    }
    return {"recipes": total, "facts": dict(sorted(facts.items()))}


def as_text(data: dict[str, Any]) -> str:
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in data["facts"].items())
    return f'{{\n  "recipes": {data["recipes"]},\n  "facts": {{\n{lines}\n  }}\n}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bridge", type=Path, required=True, metavar="CHECKOUT", help="a Megatron-Bridge checkout")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--check", action="store_true", help=f"compare with {FILE.name}")
    options = parser.parse_args()
    sources = Sources(options.bridge)
    counts: Counter[str] = Counter()
    values: dict[str, Counter[str]] = {}
    nameless: Counter[str] = Counter()
    total = 0
    for recipe in recipes(options.bridge, sources):
        total += 1
        if not recipe.model or bridge_of(recipe.model) is None:
            nameless[recipe.model] += 1
        for name, value in changed(recipe, sources).items():
            counts[name] += 1
            values.setdefault(name, Counter())[str(value)[:20]] += 1
    if not total:
        parser.error(f"{options.bridge} has no recipes in src/megatron/bridge/recipes")
    data = presumed(counts, total)
    print(f"{total} recipes; no Hugging Face model with a known bridge: {sum(nameless.values())}")
    for name in presumable():
        how = "presumed" if name in data["facts"] else "never" if name in NEVER else "too many"
        told = ", ".join(f"{value} {count}" for value, count in values.get(name, Counter()).most_common(6))
        print(f"{counts[name]:5d}  {how:8s}  {name}{': ' + told if told else ''}")
    unknown = sorted(model for model in nameless if model)
    if unknown:
        print("models without a line in bridge_models.BRIDGES:", ", ".join(unknown))
    text = as_text(data)
    if options.write:
        FILE.write_text(text)
    if options.check and text != FILE.read_text():
        print(f"{FILE.name} does not say this: renew it with --write")
        return 1
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
