"""Commands that start the training of a framework on top of Megatron: slime, miles, ms-swift, NeMo-RL."""

from __future__ import annotations

import re

from megatron_hcp.bash.value import Field, Items
from megatron_hcp.launch.dialects.table import types_of
from megatron_hcp.launch.dialects.which import dialect_of_keys, dialect_of_options
from megatron_hcp.launch.fact import ELASTIC_STARTS, Dialect, Fact, Reading
from megatron_hcp.launch.forms.script.facts import Facts
from megatron_hcp.launch.forms.script.files import Files
from megatron_hcp.launch.forms.script.flags import flags_of, overrides_of
from megatron_hcp.launch.forms.script.started import Launched

SWIFT = frozenset(("sft", "pt", "rlhf"))
"""The training subcommands of ms-swift's `megatron`; its `export` trains nothing."""
_SLIME = re.compile(r"(^|/)train(_async|_multi_turn)?\.py$|^(slime|miles)(\.|$)")
_SWIFT_MODULE = re.compile(r"(^|[/.])swift[/.]cli[/.]_megatron[/.](sft|pt|rlhf)(\.py)?$")
_NEMO_RL = re.compile(r"(^|/)run_\w{0,40}(grpo|sft|dpo|ppo|rm|distillation|gdpo|vlm)\w{0,40}\.py$")
_CONFIG = "--config"
_RLHF = ("megatron rlhf", ".rlhf", "/rlhf.py")
"""How the commands end whose method is DPO unless `rlhf_type` says another one (MegatronRLHFArguments)."""


def framework_of(launched: Launched, names: set[str]) -> Dialect | None:
    """The dialect of a command of one of these frameworks; None for any other, and if Megatron doesn't train.

    `names` are those of its options, with leading dashes, and of its overrides.
    """
    script = launched.started.script or ""
    flags = {name[2:] for name in names if name.startswith("--")}
    if script in {f"megatron {name}" for name in SWIFT} or _SWIFT_MODULE.search(script):
        return "ms-swift"
    if _SLIME.search(script) and dialect_of_options(flags) == "slime":
        return None if trained_by_fsdp(launched) else "slime"
    keys = [name for name in names if not name.startswith("--")]
    if dialect_of_keys(keys) == "nemo-rl" or (_NEMO_RL.search(script) and _CONFIG in names and not flags - {"config"}):
        return "nemo-rl"
    return None


def trained_by_fsdp(launched: Launched) -> bool:
    """Whether a command of slime or miles trains with torch FSDP, which has none of Megatron's parallel sizes."""
    return "fsdp" in _values(launched.started.arguments, "--train-backend")


def framework_reading(
    dialect: Dialect, target: str, items: Items, facts: Facts, files: Files
) -> tuple[Reading, dict[str, str], str | None]:
    """(the reading of a command of ms-swift or NeMo-RL, why facts and keys are unknown, why more may be hidden)."""
    if dialect == "ms-swift":
        return _swift(target, items, facts)
    from megatron_hcp.launch.dialects.nemo_rl.reading import configuration, nemo_rl_reading
    from megatron_hcp.launch.forms.words.settings import settings_of_overrides

    overrides = overrides_of(items)
    named = _values(items, _CONFIG)
    base = configuration(named[-1] if named else None, files.beside)
    files.count_as_used(base.files)
    settings, _ = settings_of_overrides([w for w in overrides.words if not w.text.startswith("-")], base.settings)
    reading = nemo_rl_reading(target, "shell", settings, unseen=base.missing)
    return reading, {**facts.unknown, **overrides.unknown}, overrides.unseen


def _swift(target: str, items: Items, facts: Facts) -> tuple[Reading, dict[str, str], str | None]:
    from megatron_hcp.launch.dialects.ms_swift import ranks_of, with_extra

    gathered = flags_of(items, types_of("ms-swift"), bare=False)
    unseen = gathered.unseen or gathered.model
    first = items[0] if items else None
    if isinstance(first, Field) and first.prefix.endswith((".yaml", ".yml", ".json")):
        unseen = unseen or f"{first.prefix[:60]} holds further arguments and is not read"
    elif any(isinstance(item, Field) and item.prefix.partition("=")[0] == _CONFIG for item in items):
        named = _values(items, _CONFIG)[-1:] or [""]
        unseen = unseen or f"{named[0][:60] or _CONFIG} holds further arguments and is not read"
    elif unseen is None and str(_script(facts)).endswith(_RLHF) and "rlhf_type" not in gathered.unknown:
        stated = any(setting.key == "rlhf_type" for setting in gathered.settings)
        facts.known |= {} if stated else {"rlhf_type": Fact("dpo", "default")}
    start = facts.known.get("start")
    if start is None or start.value not in ELASTIC_STARTS:
        found, hidden = ranks_of(facts.known, facts.unknown)
        facts.known |= found
        facts.unknown |= hidden
    reading = Reading("ms-swift", target, "shell", with_extra(gathered.settings))
    return reading, {**facts.unknown, **gathered.unknown}, unseen


def _script(facts: Facts) -> object:
    return facts.known["script"].value if "script" in facts.known else None


def _values(items: Items, flag: str) -> list[str]:
    """The values of a single-valued option, as far as they are known, in order."""
    texts = [(item.text or "") if isinstance(item, Field) else "" for item in items]
    after = [texts[place + 1] for place, text in enumerate(texts[:-1]) if text == flag]
    return [*after, *(text.partition("=")[2] for text in texts if text.startswith(f"{flag}="))]
