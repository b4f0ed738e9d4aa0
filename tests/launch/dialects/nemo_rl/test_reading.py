"""NeMo-RL's YAML: what it inherits, what its references make, and what of the cluster trains the policy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Beside, Elsewhere, Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.readers.target import read_target, read_text

BASE = """\
cluster: {num_nodes: 1, gpus_per_node: 8}
policy:
  model_name: x
  train_global_batch_size: 512
  max_total_sequence_length: 512
  make_sequence_length_divisible_by: ${policy.megatron_cfg.tensor_model_parallel_size}
  sequence_packing:
    enabled: true
    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}
  train_micro_batch_size: 4
  dtensor_cfg: {enabled: true, context_parallel_size: 1}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 2, context_parallel_size: 1, sequence_parallel: true}
"""
CHILD = """\
defaults: base.yaml
policy:
  max_total_sequence_length: 1024
  dtensor_cfg: {enabled: false}
  megatron_cfg: {enabled: true, context_parallel_size: 4}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "child.yaml").write_text(CHILD)
    return tmp_path


def facts(target: Path, *words: str) -> dict[str, object]:
    return {name: fact.value for name, fact in load_launch(str(target), LoadOptions(words=words)).facts.items()}


def of_text(text: str) -> Launch:
    return build_launch(read_text(text, "<stdin>"))


def test_a_child_takes_over_what_it_does_not_say(folder: Path) -> None:
    found = facts(folder / "child.yaml")
    assert (found["tp"], found["cp"], found["strategy"], found["world_size"]) == (2, 4, "megatron", 8)


def test_a_power_of_ten_without_a_dot_is_a_number_as_it_is_for_omegaconf(folder: Path) -> None:
    (folder / "base.yaml").write_text(f"{BASE}  lr: 3e-7\n")
    (folder / "child.yaml").write_text(f"{CHILD}  eps: -1e8\n  name: '3e-7'\n  other: 3e-7x\n")
    reading = load_launch(str(folder / "child.yaml"), LoadOptions()).reading
    found = {setting.key: setting.value for setting in reading.settings}
    assert (found["policy.lr"], found["policy.eps"]) == (3e-7, -1e8)
    assert (found["policy.name"], found["policy.other"]) == ("3e-7", "3e-7x")


def test_references_are_those_of_the_merged_configuration(folder: Path) -> None:
    found = facts(folder / "child.yaml")
    assert (found["sequence_multiple"], found["train_mb_tokens"]) == (2, 1024 * 4)


def test_words_change_what_references_make_of_them(folder: Path) -> None:
    found = facts(folder / "child.yaml", "policy.max_total_sequence_length=2048", "cluster.num_nodes=2")
    assert (found["train_mb_tokens"], found["world_size"]) == (2048 * 4, 16)


def test_a_setting_changes_what_references_make_of_it(folder: Path) -> None:
    changed = load_launch(
        str(folder / "child.yaml"), LoadOptions(sets=("policy.megatron_cfg.tensor_model_parallel_size=4",))
    )
    assert changed.facts["sequence_multiple"].value == 4


def test_a_place_is_that_of_the_file_that_says_it(folder: Path) -> None:
    launch = load_launch(str(folder / "child.yaml"), LoadOptions())
    places = [launch.facts[name].location for name in ("cp", "tp")]
    assert [os.path.basename(place.file) for place in places if place] == ["child.yaml", "base.yaml"]


def test_several_bases_are_merged_in_their_order_and_bases_have_bases(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "more.yaml").write_text(
        "defaults: last.yaml\npolicy: {megatron_cfg: {context_parallel_size: 2}}\n"
    )
    (folder / "deep" / "last.yaml").write_text("cluster: {num_nodes: 4}\n")
    (folder / "two.yaml").write_text("defaults: [child.yaml, deep/more.yaml]\npolicy: {model_name: y}\n")
    found = facts(folder / "two.yaml")
    assert (found["cp"], found["tp"], found["cluster_nodes"]) == (2, 2, 4)


def test_a_section_marked_as_override_takes_nothing_over(folder: Path) -> None:
    (folder / "own.yaml").write_text("defaults: base.yaml\ncluster: {_override_: true, num_nodes: 2}\n")
    launch = load_launch(str(folder / "own.yaml"), LoadOptions())
    assert launch.facts["cluster_nodes"].value == 2
    assert "cluster_gpus_per_node" not in launch.facts
    assert not any(setting.key.endswith("_override_") for setting in launch.reading.settings)


@pytest.mark.parametrize("name", ["../base.yaml", "/etc/base.yaml", "missing.yaml"])
def test_a_base_elsewhere_is_not_read_and_hides_what_it_says(folder: Path, name: str) -> None:
    below = folder / "below"
    below.mkdir()
    (below / "child.yaml").write_text(CHILD.replace("base.yaml", name))
    launch = load_launch(str(below / "child.yaml"), LoadOptions())
    assert name in str(launch.reading.unseen) and "is not read" in str(launch.reading.unseen)
    assert "tp" not in launch.facts and launch.facts["cp"].value == 4


def test_a_link_is_not_followed(folder: Path) -> None:
    below = folder / "below"
    below.mkdir()
    (below / "base.yaml").symlink_to(folder / "base.yaml")
    (below / "child.yaml").write_text(CHILD)
    assert "is not read" in str(read_target(str(below / "child.yaml")).unseen)


def test_a_named_source_stands_for_a_base_elsewhere(folder: Path) -> None:
    text = CHILD.replace("base.yaml", "../../base.yaml")
    for source in (folder, folder / "base.yaml"):
        reading = read_text(text, "child.yaml", beside=Beside(str(folder / "none"), (str(source),)))
        assert reading.unseen is None and build_launch(reading).facts["tp"].value == 2


def test_a_base_above_the_file_is_read_where_a_named_folder_holds_it(folder: Path) -> None:
    """NeMo-RL's recipes name `../../grpo_math_1B.yaml`; a file of that name elsewhere is another one."""
    checkout = folder / "checkout"
    recipes = checkout / "examples" / "recipes" / "llm"
    recipes.mkdir(parents=True)
    (checkout / "examples" / "base.yaml").write_text((folder / "base.yaml").read_text())
    (checkout / "base.yaml").write_text("policy: {megatron_cfg: {enabled: true, tensor_model_parallel_size: 32}}\n")
    text = CHILD.replace("base.yaml", "../../base.yaml")
    reading = read_text(text, "child.yaml", beside=Beside(str(recipes), (str(checkout),)))
    assert reading.unseen is None and build_launch(reading).facts["tp"].value == 2
    reading = read_text(text.replace("../../", "../../../../"), "x.yaml", beside=Beside(str(recipes), (str(recipes),)))
    assert "outside" in str(reading.unseen)


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_a_base_above_the_file_is_read_within_its_repository(
    folder: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the working folder is; what lies beside the repository isn't read."""
    recipes = folder / "repository" / "recipes" / "llm"
    recipes.mkdir(parents=True)
    (folder / "repository" / mark).touch()
    (folder / "repository" / "base.yaml").write_text(BASE)
    (recipes / "child.yaml").write_text(CHILD.replace("base.yaml", "../../base.yaml"))
    (recipes / "outside.yaml").write_text(CHILD.replace("base.yaml", "../../../base.yaml"))
    for place, name in ((folder, str(recipes / "child.yaml")), (recipes, "child.yaml"), (recipes, "./child.yaml")):
        monkeypatch.chdir(place)
        launch = load_launch(name, LoadOptions())
        assert (launch.reading.unseen, launch.facts["tp"].value) == (None, 2)
    assert "outside the file's repository" in str(load_launch("outside.yaml", LoadOptions()).reading.unseen)


def test_a_link_out_of_the_repository_is_not_followed(folder: Path) -> None:
    recipes = folder / "repository" / "recipes"
    recipes.mkdir(parents=True)
    (folder / "repository" / ".git").mkdir()
    (folder / "repository" / "shared").symlink_to(folder)
    (recipes / "child.yaml").write_text(CHILD.replace("base.yaml", "../shared/base.yaml"))
    assert "leads elsewhere" in str(read_target(str(recipes / "child.yaml")).unseen)


def test_standard_input_has_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert "is not read" in str(read_text(CHILD, "<stdin>").unseen)


def test_a_configuration_that_inherits_from_itself_ends(folder: Path) -> None:
    (folder / "a.yaml").write_text("defaults: b.yaml\npolicy: {model_name: x}\n")
    (folder / "b.yaml").write_text("defaults: a.yaml\ncluster: {num_nodes: 2}\n")
    assert "itself" in str(read_target(str(folder / "a.yaml")).unseen)


def test_a_file_that_only_inherits_a_policy_is_nemo_rls(folder: Path) -> None:
    (folder / "data.yaml").write_text("defaults: child.yaml\ndata: {train: x}\n")
    assert read_target(str(folder / "data.yaml")).dialect == "nemo-rl"
    with pytest.raises(HcpError, match="no key of a known dialect"):
        read_text("defaults: child.yaml\ndata: {train: x}\n", "<stdin>")


def test_megatrons_keys_count_where_megatron_trains() -> None:
    launch = of_text(BASE)
    assert launch.facts["strategy"].value == "dtensor" and launch.facts["tp"].value == 1
    fp8 = "fp8_cfg: {enabled: %s, fp8: hybrid}"
    on, off = (
        of_text(
            BASE.replace("{enabled: false, tensor", "{enabled: true, " + fp8 % word + ", tensor").replace(
                "{enabled: true, context", "{enabled: false, context"
            )
        )
        for word in ("true", "false")
    )
    assert on.facts["fp8"].value == "hybrid" and off.facts["fp8"].value is None


@pytest.mark.parametrize(
    ("cluster", "resources", "ranks"),
    [
        # grpo.py setup: whole nodes of several, some GPUs of one.
        ("num_nodes: 4, gpus_per_node: 8", "num_nodes: 1, gpus_per_node: 8", 24),
        ("num_nodes: 1, gpus_per_node: 8", "num_nodes: null, gpus_per_node: 2", 6),
        ("num_nodes: 1, gpus_per_node: 8", "num_nodes: null, gpus_per_node: null", None),  # refused
    ],
)
def test_generation_of_its_own_takes_its_part_of_the_cluster(cluster: str, resources: str, ranks: int | None) -> None:
    text = BASE.replace("num_nodes: 1, gpus_per_node: 8", cluster)
    text += f"  generation: {{colocated: {{enabled: false, resources: {{{resources}}}}}}}\n"
    fact = of_text(text).facts.get("world_size")
    assert (fact and fact.value) == ranks


TEACHERS = "on_policy_distillation: {enabled: true, teacher_model_by_agent_name: {a: x, b: x, c: y}, "


@pytest.mark.parametrize(
    ("teachers", "nodes"),
    [
        ("non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: 1}}", 6),  # x and y
        ("non_colocated_teachers: {enabled: true}", 6),
        ("non_colocated_teachers: {enabled: true, teacher_overrides: {c: {num_nodes: 3}}}", 4),
        (
            "deduplicate_shared_teacher_checkpoints: false, "
            "non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: 2}}",
            2,
        ),
        ("non_colocated_teachers: {enabled: false, default_teacher_cfg: {num_nodes: 2}}", 8),
        ("non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: 8}}", None),  # refused
        ("non_colocated_teachers: {enabled: true, default_teacher_cfg: {num_nodes: '${oc.env:N}'}}", None),
    ],
)
def test_teachers_of_their_own_take_nodes_of_the_cluster_one_teacher_for_a_checkpoint(
    teachers: str, nodes: int | None
) -> None:
    fact = of_text(f"{BASE.replace('num_nodes: 1', 'num_nodes: 8')}{TEACHERS}{teachers}}}\n").facts.get("nodes")
    assert (fact and fact.value) == nodes


@pytest.mark.parametrize(
    ("other", "is_known"),
    [
        ("env: {reward_model: {resources: {num_nodes: 1}}}", False),
        # nemo-rl's own recipe: cluster.num_nodes is policy-only, and the nodes of NeMo-Gym are separate
        ("env: {nemo_gym: {num_gpu_nodes: 2}}", True),
    ],
)
def test_ranks_are_unknown_where_something_takes_nodes_of_the_cluster(other: str, is_known: bool) -> None:
    launch = of_text(f"{BASE}{other}\n")
    assert ("world_size" in launch.facts) is is_known
    assert not any(isinstance(reason, Elsewhere) for reason in launch.unknown.values())


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("${add:1,2}", 3),
        ("${mul:2, ${policy.train_micro_batch_size}}", 8),
        ("${div:8,2}", 4),
        ("${max:3,${mul:1,5}}", 5),
        ("${div:8,0}", None),
        ("${mul:2}", None),
        ("${mul:a,b}", None),
        ("${sub:2,1}", None),
    ],
)
def test_nemo_rls_own_resolvers_are_evaluated_and_no_others(value: str, result: int | None) -> None:
    text = BASE.replace("${policy.megatron_cfg.tensor_model_parallel_size}", value)
    launch = of_text(text)
    fact = launch.facts.get("sequence_multiple")
    assert (fact and fact.value) == result
    assert (result is None) == ("policy.make_sequence_length_divisible_by" in launch.reading.unknown)


def test_a_configuration_that_an_unknown_variable_names_is_out_of_sight(folder: Path) -> None:
    (folder / "examples/configs").mkdir(parents=True)
    (folder / "examples/configs/grpo_math_1B.yaml").write_text(BASE)
    (folder / "run.sh").write_text('uv run examples/run_grpo.py --config="$CFG"\n')
    unseen = read_target(str(folder / "run.sh")).unseen
    assert unseen is not None and "CFG" in unseen
