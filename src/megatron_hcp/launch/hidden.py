"""Which facts a launch hides: settings that it has but that couldn't be read."""

from __future__ import annotations

import re
from typing import Literal

from megatron_hcp.bash.reason import ByVariable, WhyUnknown
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.complete import INPUTS
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.dialects.table import FACTS, index_of, keys_of
from megatron_hcp.launch.fact import BY_RELEASE, Elsewhere, Launch

Hides = Literal["word", "recipe", "model", "release"]
"""What hides a fact: a word or file that can't be read, an unknown recipe, something that the launch refers to (the
model's config.json, a checkpoint), or the release, in which the recipe has another value."""

_LINE = r"\bline (\d{1,9})\b(?: of (\S+\w))?"
_CLUSTER = frozenset(
    "nodes gpus_per_node ntasks_per_node world_size dp nvlink_domain placement start te mcore mcore_branch bridge "
    "verl torch cudnn flash_attn nvrx einops arch".split()
)
"""What the cluster or its container determines, not the launch: only a note if it is missing."""
_SITE = frozenset(
    "checkpoint_save checkpoint_load data_path data_cache_path log_directory srun.container_mounts "
    "sbatch.container_mounts".split()
)
"""Where the site keeps its files: only a note, even if the launch hides it."""
OF_MODEL = frozenset(
    "num_layers hidden_size ffn_hidden_size heads num_query_groups group_query_attention kv_heads head_dim mla "
    "qk_head_dim qk_pos_emb_head_dim v_head_dim num_experts attention_variant linear_num_key_heads "
    "linear_num_value_heads hybrid_pattern mamba_num_heads mamba_num_groups mamba_head_dim window_size "
    "window_attn_skip_freq softmax_type position_embedding_type rope_type rope_scaling".split()
)
"""What a model's config.json decides, and nobody else unless the launch overrides it."""
_BY_KEYS_TOGETHER = frozenset(("vision", "finetune"))
"""Bridge: facts that have no key but depend on which keys are present."""


_BY_TYPE = {"version": "VERSION", "size": "N", "int": "N", "bool": "true|false"}
_CHOICES = {
    "log_directory": "present|missing",
    "srun.container_mounts": "HOST:CONTAINER",
    "sbatch.container_mounts": "HOST:CONTAINER",
}


class Hidden(NamedTuple):
    """Why a fact can't be read. `do` is what to do about everything that this reason hides; "" = state the facts.

    `variable` is the number of the script's argument (`@`: all), or else the variable, that decides it; "" if there is
    none. `by`: a branch of the script that asks for that variable decides, or a command's output.
    """

    hides: Hides
    reason: str
    location: Location | None
    do: str
    variable: str = ""
    by: Literal["", "branch", "command"] = ""


def hidden(launch: Launch, name: str) -> Hidden | None:
    """What hides an unknown fact; None if the launch has no such setting, as with a version."""
    return _hidden(launch, name, ())


def hides_any(launch: Launch) -> bool:
    """Whether `hidden` can return anything for this launch: False if the launch states everything."""
    reading = launch.reading
    return (
        bool(launch.unknown)
        or reading.unseen is not None
        or _is_partial(launch)
        or FRAMEWORKS[launch.dialect].model_decides
    )


def _is_partial(launch: Launch) -> bool:
    """Whether an unknown recipe sets what the launch omits."""
    return not launch.reading.complete and FRAMEWORKS[launch.dialect].has_recipes


def _hidden(launch: Launch, name: str, above: tuple[str, ...]) -> Hidden | None:
    reading = launch.reading
    if name in launch.facts and launch.facts[name].value is not None:
        # Known, but not as a value that can be checked: a pattern that only upstream evaluates.
        fact = launch.facts[name]
        written = fact.key or name
        return Hidden("word", f"{written} is an expression that is not evaluated", fact.location, "")
    if name in _SITE:
        return None
    if name in launch.unknown:
        reason = launch.unknown[name]
        by_release = reason.endswith(BY_RELEASE)
        hides: Hides = "release" if by_release else "model" if isinstance(reason, Elsewhere) else "word"
        return _unread(launch, name, reason, hides)
    section = name.partition(".")[0]
    if section in launch.unknown:
        return _unread(launch, name, launch.unknown[section], "word")
    for part in INPUTS.get(name, ()):
        if part not in above and part not in launch.facts:
            found = _hidden(launch, part, (*above, name))
            if found is not None:
                return found
    if name in _CLUSTER:
        return None
    spec = FACTS.get(name)
    keys = keys_of(spec, launch.dialect, reading.role) if spec else ()
    if reading.unseen is not None and (keys or name in _BY_KEYS_TOGETHER):
        return _unread(launch, name, reading.unseen, "word")
    if _is_partial(launch) and (keys or name in _BY_KEYS_TOGETHER):
        return Hidden("recipe", "the recipe is unknown, and it sets what this launch omits", None, "")
    if FRAMEWORKS[launch.dialect].model_decides and name in OF_MODEL and not launch.model:
        reason = "the launch doesn't show the model's sizes and layers"
        return Hidden("model", reason, None, "pass the model's config.json, or its public name, with --model")
    return None


def _unread(launch: Launch, name: str, reason: str, hides: Hides) -> Hidden:
    _, sourced, rest = reason.partition(" may be set by ")
    do = reason.do if isinstance(reason, WhyUnknown) else ""
    if sourced:  # one message for all variables that the file may set
        file, _, where = rest.rpartition(", which ")
        is_file = where.endswith(" sources")
        reason = f"{where} {file}{', which is not read' if is_file else ''}"
        do = "give that file with --source" if is_file else ""
    elif hides == "model" and not launch.model and "--model" not in reason:
        do = "give the model's config.json with --model"
    variable = (reason.argument or reason.variable) if isinstance(reason, ByVariable) else ""
    by = reason.by if isinstance(reason, WhyUnknown) else ""
    key = next((key for key in launch.reading.unknown if _is_of(launch, key, name)), None)
    place = _place(launch, reason, key)
    if by == "branch" and variable:
        reason = f"the launch {reason}"
    elif key and reason.startswith(_WITHOUT_SUBJECT):
        reason = f"{key} {reason}" if not reason.startswith("it ") else f"{key}: {reason}"
    return Hidden(hides, reason, place, do, variable, by)


_WITHOUT_SUBJECT = ("is ", "changes ", "depends ", "it is ")


def _is_of(launch: Launch, key: str, name: str) -> bool:
    entry = index_of(launch.dialect, launch.reading.role).get(key)
    return name == (entry.fact if entry is not None else key)


def _place(launch: Launch, reason: str, key: str | None) -> Location | None:
    """The line that a reason names, else the first that has the key."""
    text = launch.reading.text
    if text is None or launch.reading.form not in ("shell", "args-yaml", "yaml"):
        return None
    named = re.search(_LINE, reason)
    if named is not None and named[2] is not None:
        return Location(named[2], int(named[1]), 1, int(named[1]), 1)  # of a file that the script sources
    if named is not None:
        number = int(named[1])
    elif key is None:
        return None
    else:
        words = (key, key.replace("_", "-"), key.rpartition(".")[2] + ":")
        lines = enumerate(text.split("\n"), 1)
        number = next((number for number, line in lines if any(word in line for word in words)), 0)
    return Location(launch.reading.target, number, 1, number, 1) if number else None


def key_to_set(launch: Launch, name: str) -> str:
    """What a user writes to state the fact: `--set KEY=…` for a setting, `--assume NAME=…` for anything else."""
    index = index_of(launch.dialect, launch.reading.role)
    spec = FACTS.get(name)
    assumed = f"--assume {name}={_CHOICES.get(name) or (_BY_TYPE.get(spec.type, 'VALUE') if spec else 'VALUE')}"
    if name in _CLUSTER:
        return assumed
    if launch.unknown.get(name, "").endswith(BY_RELEASE):
        return BY_RELEASE.removeprefix("; add ")
    written = next((key for key in launch.reading.unknown if key in index and index[key].fact == name), None)
    keys = (written,) if written else keys_of(spec, launch.dialect, launch.reading.role) if spec else ()
    return f"--set {keys[0]}=VALUE" if keys else assumed
