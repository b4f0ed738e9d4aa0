"""What an unknown Bridge recipe is presumed to leave unchanged: `python lab recipes/presumptions --bridge CHECKOUT`.

The checkout has the Megatron-LM that it pins at 3rdparty/Megatron-LM, or `--megatron-lm` names it: the classes of
`ddp`, `dist` and the model's base stand there.

Counts over all recipes of a checkout how many give each fact of our table another value than Bridge's default: by an
assignment in the recipe, or by the bridge and provider class of the model that it trains. Facts that few recipes change
are presumed if a launch leaves them to an unknown recipe: `launch/facts/presumed.txt`. `--write` renews
that file, `--check` exits 1 where it is not what the checkout gives.

Which bridge makes a model's config stands in its config.json, which is not in the checkout: `bridge_names.BRIDGES` says
it. A value of a model that cannot be read counts as another one; what a recipe computes beyond what `follow/` can tell
is not counted.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bridge_names import BRIDGES
from bridge_recipes import Recipe, recipes
from bridge_sources import UNKNOWN as UNREAD
from bridge_sources import Sources
from program import ROOT, parser_of

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.dialects.table import FACTS, default_of
from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.spec import UNKNOWN, FactSpec

FILE = ROOT / "src" / "megatron_hcp" / "launch" / "facts" / "presumed.txt"
FEW = 0.15
"""The largest part of the recipes that may change a presumed fact."""

NEVER = frozenset(
    "tp pp vpp cp ep etp num_layers hidden_size heads num_query_groups head_dim num_experts seq_length "
    "mamba_num_heads mamba_num_groups mamba_head_dim linear_num_key_heads linear_num_value_heads mtp_layers "
    "dataset_seq_length micro_batch_size global_batch_size max_position_embeddings sequence_parallel "
    "calculate_per_token_loss packed_sequence_size packing_buffer_size pack_sequences_in_batch pad_seq_to_mult "
    "hybrid_pattern fp8 fp8_recipe moe_token_dispatcher_type".split()
)
"""Facts that are not presumed, however few recipes were seen to change them: sizes of the model and of parallelism,
packing, the loss, and what recipes set through objects that are not followed (precision, layer patterns)."""

_SAME: dict[tuple[str, Any], Any] = {
    ("cp_comm_type", None): "p2p",
    ("attention_backend", None): "auto",
    ("cuda_graph_impl", None): "none",
    ("exit_signal", 15): None,
    ("high_priority_stream_groups", ()): None,
}
"""(fact, value) -> the value that stands for the same."""

_CONFIGS = ("provider", "model_config", "config")
_ATTENTION = {"MLAModelProvider": {"multi_latent_attention": True}}
"""Provider -> what the megatron-core class below it sets, which no file of Bridge says."""


def bridge_of(model: str) -> str | None:
    """The class of the bridge that makes the model's config; None if it is not listed."""
    return next((name for pattern, name in BRIDGES if re.match(pattern, model)), None)


def set_by_model(sources: Sources, name: str) -> dict[str, Any]:
    """The fields that a bridge or a provider class gives another value than its base, by name; `UNREAD` values too."""
    fields: dict[str, Any] = {}
    item = sources.classes.get(name)
    if item is None or name == "MegatronModelBridge":
        return fields
    if name.endswith("Provider"):
        return _provider_fields(sources, name)
    for base in item.bases:
        if isinstance(base, ast.Name):
            fields |= set_by_model(sources, base.id)
    for node in (item, *_functions_beside(sources, item)):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute) and _last(inner).endswith("Provider"):
                fields |= _provider_fields(sources, _last(inner))
    for node in (*_functions_beside(sources, item), item):
        fields |= _assigned(node)
    return fields


def _functions_beside(sources: Sources, item: ast.ClassDef) -> list[ast.FunctionDef]:
    """The functions of the class's module: bridges share some of their work through them."""
    module = next(name for name, classes in sources.homes.items() if item in classes)
    return list(sources.functions[module].values())


def _provider_fields(sources: Sources, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = dict(_ATTENTION.get(name, {}))
    item = sources.classes.get(name)
    for base in item.bases if item else ():
        if isinstance(base, ast.Name):
            fields |= _provider_fields(sources, base.id)
    for line in item.body if item else ():
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            fields[line.target.id] = _literal(line.value)
    return fields


def _assigned(node: ast.AST) -> dict[str, Any]:
    """`provider.x = value` and `SomethingProvider(x=value)`, also inside functions."""
    fields: dict[str, Any] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                if isinstance(target, ast.Attribute) and _last(target.value) in _CONFIGS:
                    fields[target.attr] = _literal(inner.value)
        elif isinstance(inner, ast.Call) and _last(inner.func).endswith(("Provider", "PROVIDER_CLASS")):
            fields |= {word.arg: _literal(word.value) for word in inner.keywords if word.arg}
    return fields


def _last(item: ast.AST) -> str:
    return item.id if isinstance(item, ast.Name) else item.attr if isinstance(item, ast.Attribute) else ""


def _literal(item: ast.expr) -> Any:
    """A literal, an enum's member by its name, or the default in `field(default=…)`; else `UNREAD`."""
    if isinstance(item, ast.Call) and _last(item.func) == "field":
        given = next((word.value for word in item.keywords if word.arg == "default"), None)
        return UNREAD if given is None else _literal(given)
    if isinstance(item, ast.Attribute) and _last(item.value) == "AttnBackend":
        return item.attr
    try:
        return ast.literal_eval(item)
    except ValueError:
        return UNREAD


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
    """What `presumed.txt` says for these counts."""
    facts = {
        name: {"value": value, "recipes_set": counts[name]}
        for name, value in presumable().items()
        if name not in NEVER and counts[name] <= FEW * total
    }
    return {"recipes": total, "facts": dict(sorted(facts.items()))}


def as_text(data: dict[str, Any]) -> str:
    """The file: how many recipes there are, then a line for each fact, with its value and how many set another."""
    words = {None: "null", True: "true", False: "false"}
    lines = [f"recipes {data['recipes']}"]
    for name, entry in data["facts"].items():
        value = entry["value"]
        word = words[value] if value is None or isinstance(value, bool) else str(value)
        lines.append(f"{name} {word} {entry['recipes_set']}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--bridge", type=Path, required=True, metavar="CHECKOUT", help="a Megatron-Bridge checkout")
    parser.add_argument("--megatron-lm", type=Path, metavar="DIR", help="the Megatron-LM that it pins")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--check", action="store_true", help=f"compare with {FILE.name}")
    options = parser.parse_args()
    megatron_lm = options.megatron_lm or options.bridge / "3rdparty" / "Megatron-LM"
    if not (megatron_lm / "megatron" / "core").is_dir():
        parser.error(f"{megatron_lm} is no Megatron-LM; name the one that the checkout pins with --megatron-lm")
    sources = Sources(options.bridge)
    counts: Counter[str] = Counter()
    values: dict[str, Counter[str]] = {}
    nameless: Counter[str] = Counter()
    total = 0
    for recipe in recipes(options.bridge, sources, megatron_lm):
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
        print("models without a line in BRIDGES:", ", ".join(unknown))
    text = as_text(data)
    if options.write:
        FILE.write_text(text)
    if options.check and text != FILE.read_text():
        print(f"{FILE.name} does not say this: renew it with --write")
        return 1
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
