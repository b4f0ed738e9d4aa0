"""How many nodes of the cluster the teachers of on-policy distillation take from NeMo-RL's policy."""

from __future__ import annotations

from collections.abc import Mapping

from megatron_hcp.launch.fact import Setting

SECTION = "on_policy_distillation."
_MODELS = f"{SECTION}teacher_model_by_agent_name."
_APART = f"{SECTION}non_colocated_teachers."


def nodes_of_teachers(values: Mapping[str, Setting]) -> int | None:
    """The nodes of all teachers, each with its own; None where a number can't be read.

    Source: create_teacher_configs_from_opd_config, nemo_rl/models/policy/teacher_worker_group.py: the agents that share
    a checkpoint share a teacher, unless deduplicate_shared_teacher_checkpoints is false.
    """
    if not (_is_on(values, f"{SECTION}enabled") and _is_on(values, f"{_APART}enabled")):
        return 0
    shares = values.get(f"{SECTION}deduplicate_shared_teacher_checkpoints")
    default = values.get(f"{_APART}default_teacher_cfg.num_nodes")
    seen: set[object] = set()
    total = 0
    for key, model in values.items():
        if not key.startswith(_MODELS) or (model.value in seen and (shares is None or shares.value is True)):
            continue
        seen.add(model.value)
        own = values.get(f"{_APART}teacher_overrides.{key.removeprefix(_MODELS)}.num_nodes", default)
        nodes = 1 if own is None else own.value  # TeacherResourceConfig's default
        if type(nodes) is not int:
            return None
        total += nodes
    return total


def _is_on(values: Mapping[str, Setting], key: str) -> bool:
    return key in values and values[key].value is True
