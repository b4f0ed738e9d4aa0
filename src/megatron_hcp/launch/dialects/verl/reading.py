"""verl: its trainers' YAML (complete or partial), and its overrides. One reading per Megatron model of the launch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from megatron_hcp.launch.dialects.verl.config_names import ENGINES, backend, out_of_sight
from megatron_hcp.launch.dialects.verl.keys import default, index
from megatron_hcp.launch.fact import Acceptance, Elsewhere, Fact, Form, Reading, Setting, has_references
from megatron_hcp.launch.facts.spec import UNKNOWN

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.yaml.settings import YamlDoc

ACTOR, REF, CRITIC, ENGINE = "actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic", "engine"

_INHERITED = frozenset(
    (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "dynamic_context_parallel",
        "max_seqlen_per_dp_cp_rank",
        "use_remove_padding",
        "pad_to_length",
        "pad_to_length_bucket",
    )
)
"""Keys of ref.megatron that take the actor's value if they are absent (verl 0.7.1 to 0.9.1; the dynamic ones since
0.9.0); `override_transformer_config` does as a whole."""

_BATCHES = ("use_dynamic_bsz", "ppo_mini_batch_size")
"""Keys that the critic takes from the actor if it has none; for ref's forward passes the actor's first one decides."""

_OWN_COMM_TYPE = ("mistral", "ministral", "glm-5", "glm5", "glm_5", "kimi-k3")
"""Models for which Megatron-Bridge sets cp_comm_type itself: what an absent key means in verl depends on the model."""

_NO_MEGATRON = {
    "cp": 1,
    "tp": 1,
    "pp": 1,
    "ep": 1,
    "etp": 1,
    "hcp_sizes": None,
    "hybrid_context_parallel": False,
    "dynamic_context_parallel": False,
}


def read_verl_yaml(doc: YamlDoc) -> Reading:
    """A reading of a verl YAML; an absent key has verl's default. A Hydra `defaults` list chooses the backend."""
    return verl_reading(
        doc.file, "yaml", [*_defaults_list(doc), *doc.settings], text=doc.text, acceptances=doc.acceptances
    )


def verl_reading(
    target: str,
    form: Form,
    settings: Iterable[Setting],
    *,
    text: str | None = None,
    acceptances: tuple[Acceptance, ...] = (),
    role: str = "",
) -> Reading:
    """The main model's reading (the actor, or the fine-tuning engine) with ref and critic in `others`.

    Only models that Megatron trains are read in full: any other strategy has no Megatron context parallelism, and the
    facts say so (`strategy`, cp 1).
    """
    resolved, unknown = list(settings), dict[str, str]()
    if has_references(resolved):
        from megatron_hcp.launch.forms.yaml.interpolate import resolve

        resolved, unknown = resolve(resolved, _default)
    by_key = {setting.key: setting for setting in resolved}
    role = role or _role(by_key.keys() | unknown.keys())
    strategy = _strategy(by_key, role, unknown)
    unseen = out_of_sight(by_key)
    if unseen is not None and (strategy.origin == "default" or strategy.value not in ENGINES):
        strategy = Fact("megatron", "derived")  # nothing says so, but something that can't be read may
    facts: dict[str, Fact] = {"strategy": strategy}
    if role != ENGINE:
        facts["start"] = Fact("ray", "derived")
    if strategy.value != "megatron":
        facts |= {name: Fact(value, "derived", strategy.location, strategy.key) for name, value in _NO_MEGATRON.items()}
        # Keys of the other backend's section have no effect.
        section = "engine." if role == ENGINE else f"{role}.megatron."
        resolved = [setting for setting in resolved if not setting.key.startswith(section)]
        note = f"{strategy.value} trains the model, not megatron: there is no megatron context parallelism to check"
        return Reading(
            dialect="verl",
            target=target,
            form=form,
            settings=tuple(resolved),
            facts=facts,
            unknown=unknown,
            complete=False,
            acceptances=acceptances,
            text=text,
            role=role,
            notes=(note,),
        )
    unknown = unknown | _unknown_by_model(role, by_key) | _unknown_by_role(role, by_key)
    main = Reading(
        dialect="verl",
        target=target,
        form=form,
        settings=tuple(resolved),
        facts=facts,
        unknown=unknown,
        unseen=unseen,
        acceptances=acceptances,
        text=text,
        role=role,
    )
    return main._replace(others=tuple(_others(main, by_key)))


def _default(key: str) -> Any:
    """verl's default of a key that is in the table of names."""
    role = next((role for role in (ACTOR, REF, CRITIC, ENGINE) if key.startswith(role + ".")), ACTOR)
    entry = index(role).get(key)
    return UNKNOWN if entry is None else default(entry.fact)


def _defaults_list(doc: YamlDoc) -> list[Setting]:
    """Hydra's `defaults:` as the equivalent words: `- override model_engine: megatron`."""
    listed = next((setting for setting in doc.settings if setting.key == "defaults"), None)
    out: list[Setting] = []
    for item in listed.value if listed is not None and isinstance(listed.value, list) else ():
        groups = item.items() if isinstance(item, dict) else (("--config-name", item),)
        for group, choice in groups:
            if isinstance(choice, str) and choice != "_self_" and listed is not None:
                out.append(Setting(group.removeprefix("override ").lstrip("./"), choice, listed.location))
    return out


def _role(keys: Collection[str]) -> str:
    if any(key.startswith("actor_rollout_ref.") for key in keys):
        return ACTOR
    sections = ("engine.", "model.", "optim.", "data.max_length", "data.max_token_len_per_gpu")
    if any(key.startswith(sections) or key in ("engine", "optim") for key in keys):
        return ENGINE
    return ACTOR


def _strategy(by_key: dict[str, Setting], role: str, unknown: Collection[str] = ()) -> Fact:
    """The backend that trains the role's model, and how that is known: its key, a config group, the keys present.

    For `unknown` keys only the values couldn't be read. A backend among them counts as megatron, so that more is
    checked.
    """
    if {role, f"{role}.strategy", *_GROUPS[role], "model_engine"} & set(unknown):
        return Fact("megatron", "derived")
    for key in (f"{role}.strategy", *_GROUPS[role], "model_engine", "--config-name"):
        setting = by_key.get(key)
        if setting is None or not isinstance(setting.value, str):
            continue
        name = backend(setting.value)
        if key == "--config-name":
            name = "megatron" if "megatron" in name else ""
        if name:
            return Fact(name, "launch", setting.location, setting.key)
    if role == REF:
        return _strategy(by_key, ACTOR, unknown)
    section = "engine." if role == ENGINE else f"{role}.megatron."
    fields = {key.removeprefix(section).partition(".")[0] for key in (*by_key, *unknown) if key.startswith(section)}
    if fields & _INHERITED if role == ENGINE else fields:
        return Fact("megatron", "derived")
    return Fact("fsdp", "default")


_GROUPS = {
    ACTOR: ("actor@actor_rollout_ref.actor",),
    REF: ("ref@actor_rollout_ref.ref",),
    CRITIC: ("critic@critic", "critic"),
    ENGINE: ("engine@engine", "engine"),
}
"""Hydra's config group of a role's section: `engine=megatron` chooses the file that fills it."""


def _unknown_by_model(role: str, by_key: dict[str, Setting]) -> dict[str, str]:
    model = by_key.get(f"{_MODELS.get(role, 'actor_rollout_ref.model')}.path")
    written = any(key.endswith(".override_transformer_config.cp_comm_type") for key in by_key)
    if model is None or written or not any(part in str(model.value).lower() for part in _OWN_COMM_TYPE):
        return {}
    return {"cp_comm_type": Elsewhere(f"Megatron-Bridge sets it for the model {model.value}")}


_MODELS = {CRITIC: "critic.model", ENGINE: "model"}


def _unknown_by_role(role: str, by_key: dict[str, Setting]) -> dict[str, str]:
    """Defaults in the table that apply only to verl's PPO trainer."""
    if role != ENGINE:
        return {}
    by_name = index(role)
    written = {by_name[key].fact for key in by_key if key in by_name}
    reason = Elsewhere("verl's fine-tuning trainer has no such key, or another default")
    names = (
        "nodes",
        "gpus_per_node",
        "use_dynamic_bsz",
        "ppo_max_token_len_per_gpu",
        "max_prompt_length",
        "max_response_length",
        "micro_batch_size",
        "global_batch_size",
    )
    return {name: reason for name in names if name not in written}


def _others(main: Reading, by_key: dict[str, Setting]) -> Iterable[Reading]:
    """ref and critic, if the launch has them and Megatron trains them."""
    if main.role != ACTOR:
        return
    unknown = {key: reason for key, reason in main.unknown.items() if not key.startswith(ACTOR + ".")}
    if any(key in main.unknown or _true(by_key, key) for key in ("algorithm.use_kl_in_reward", f"{ACTOR}.use_kl_loss")):
        yield from _other(main, REF, (*_inherited(by_key), *main.settings), _strategy(by_key, REF, unknown), unknown)
    if _needs_critic(by_key) or {"critic.enable", "algorithm.adv_estimator"} & main.unknown.keys():
        unknown.pop("cp_comm_type", None)
        yield from _other(main, CRITIC, main.settings, _strategy(by_key, CRITIC, unknown), unknown)


def _other(
    main: Reading, role: str, settings: tuple[Setting, ...], strategy: Fact, unknown: dict[str, str]
) -> Iterable[Reading]:
    if strategy.value == "megatron":
        keys = {setting.key for setting in settings}
        left = dict(unknown)
        for name in _BATCHES if role == CRITIC else _BATCHES[:1]:
            own, actors = f"{role}.{name}", f"{ACTOR}.{name}"
            if own not in keys and actors in main.unknown:
                left[own] = main.unknown[actors]
            elif own not in keys or role == REF:
                settings += tuple(setting._replace(key=own) for setting in settings if setting.key == actors)
        facts = {**main.facts, "strategy": strategy}
        yield Reading(
            dialect="verl", target=main.target, form=main.form, settings=settings, facts=facts, unknown=left, role=role
        )


def _inherited(by_key: dict[str, Setting]) -> list[Setting]:
    """The actor's settings that ref inherits, under ref's keys and at the actor's location."""
    return [by_key[actors]._replace(key=key) for actors, key in inherited_keys(by_key) if key not in by_key]


def inherited_keys(keys: Collection[str]) -> list[tuple[str, str]]:
    """(the actor's key, ref's key) of those keys that ref inherits if it has none of its own."""
    section, overrides = f"{ACTOR}.megatron.", "override_transformer_config"
    own_overrides = any(key.startswith(f"{REF}.megatron.{overrides}") for key in keys)
    names = [key.removeprefix(section) for key in keys if key.startswith(section)]
    return [
        (section + name, f"{REF}.megatron.{name}")
        for name in names
        if name in _INHERITED or (f"{name}.".startswith(f"{overrides}.") and not own_overrides)
    ]


def _needs_critic(by_key: dict[str, Setting]) -> bool:
    enable = by_key.get("critic.enable")
    if enable is not None and enable.value is not None:
        return _true(by_key, "critic.enable")
    estimator = by_key.get("algorithm.adv_estimator")
    return estimator is None or estimator.value == "gae"


def _true(by_key: dict[str, Setting], key: str) -> bool:
    setting = by_key.get(key)
    return setting is not None and str(setting.value).lower() == "true"


def left_open(main: Reading, other: Reading, unknown: Mapping[str, str]) -> dict[str, str]:
    """Why keys of a further model are unknown: ref leaves open what it inherits from an actor that leaves it open."""
    if other.role != REF:
        return {}
    own = {setting.key for setting in main.settings}
    return {key: unknown[actors] for actors, key in inherited_keys(unknown) if key not in own}
