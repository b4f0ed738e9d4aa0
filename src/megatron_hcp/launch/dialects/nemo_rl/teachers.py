"""What of the cluster others than NeMo-RL's policy and generation take: teachers and a reward model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from megatron_hcp.launch.fact import Fact, Setting

_SECTION = "on_policy_distillation."
_MODELS = f"{_SECTION}teacher_model_by_agent_name."
_REWARD = "reward_model"
_APART = f"{_SECTION}non_colocated_teachers."


def _nodes_of_teachers(values: Mapping[str, Setting]) -> int | None:
    """The nodes of all teachers, each with its own; None where a number can't be read.

    Source: create_teacher_configs_from_opd_config, nemo_rl/models/policy/teacher_worker_group.py: the agents that share
    a checkpoint share a teacher, unless deduplicate_shared_teacher_checkpoints is false.
    """
    if not (_is_on(values, f"{_SECTION}enabled") and _is_on(values, f"{_APART}enabled")):
        return 0
    shares = values.get(f"{_SECTION}deduplicate_shared_teacher_checkpoints")
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


def _of_reward_model(values: Mapping[str, Setting]) -> tuple[int, int] | None:
    """(nodes, GPUs of each) of a reward model that an environment of the data asks for; None where it can't be read.

    Source: setup, nemo_rl/algorithms/grpo.py: it takes whole nodes, or GPUs of the only one.
    """
    asked = [value.value for key, value in values.items() if key.startswith("data.") and key.endswith(".env_name")]
    if _REWARD not in asked and (asked or not any(key.startswith(f"env.{_REWARD}.") for key in values)):
        return 0, 0
    counts = [values.get(f"env.{_REWARD}.resources.{name}") for name in ("num_nodes", "gpus_per_node")]
    nodes, gpus = (None if count is None else count.value for count in counts)
    return (nodes, gpus) if type(nodes) is type(gpus) is int else None


def _is_on(values: Mapping[str, Setting], key: str) -> bool:
    return key in values and values[key].value is True


def what_is_left(
    settings: Iterable[Setting], values: Mapping[str, Setting], unknown: Mapping[str, str]
) -> dict[str, Fact] | None:
    """What teachers and a reward model leave of the cluster, as facts; None where that can't be read."""
    if any(_takes_nodes(setting) for setting in settings) or any(key.startswith(_SECTION) for key in unknown):
        return None
    teachers, reward = _nodes_of_teachers(values), _of_reward_model(values)
    if teachers is None or reward is None:
        return None
    nodes, gpus = reward
    cluster = [values.get(f"cluster.{name}") for name in ("num_nodes", "gpus_per_node")]
    total, each = (None if count is None else count.value for count in cluster)
    if nodes and total == 1:  # a reward model takes GPUs of the only node, before generation does
        apart = values.get("policy.generation.colocated.enabled")
        if apart is None or apart.value is not True or type(each) is not int or each <= gpus:
            return None
        return {"nodes": Fact(1, "derived"), "gpus_per_node": Fact(each - gpus, "derived")}
    return {"teacher_nodes": Fact(teachers + nodes, "derived")} if teachers + nodes else {}


def _takes_nodes(setting: Setting) -> bool:
    """Whether a setting gives part of the cluster to something other than policy, generation, teachers and rewards.

    The nodes of NeMo-Gym (`env.nemo_gym.num_gpu_nodes`) come on top of `cluster.num_nodes`. A distilled policy's
    teacher has its place, and does not generate, whatever it inherits: setup, nemo_rl/algorithms/distillation.py.
    """
    parts = setting.key.split(".")
    counts = parts[-1] == "num_nodes" and parts[0] not in ("cluster", "policy")
    known = setting.key.startswith((_SECTION, "env.reward_model.", "teacher.generation."))
    return counts and not known and isinstance(setting.value, int) and setting.value > 0
