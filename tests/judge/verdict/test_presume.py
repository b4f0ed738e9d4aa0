"""What an unknown recipe is presumed to leave alone, and findings that rest on it."""

from __future__ import annotations

from pathlib import Path

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for


def report(*words: str) -> Report:
    return check_launch(load_launch("", LoadOptions(words=words)), rules_for, fixes=False)


def finding(rule: str, *words: str) -> Finding:
    return next(item for item in report(*words).findings if item.rule.id == rule)


CP4 = "model.context_parallel_size=4"


def test_where_no_recipe_sets_the_key_an_error_stays_one_and_says_what_it_rests_on() -> None:
    found = finding("HCP001", CP4, "model.cp_comm_type=a2a+p2p")
    assert found.severity == "error"
    (sizes,) = found.presumed
    assert sizes[:3] == ("model.hierarchical_context_parallel_sizes", None, 0)
    assert sizes.recipes > 700
    assert not found.problem.message.startswith("if the recipe")


def test_where_some_recipes_set_the_key_the_error_is_a_warning_with_its_condition() -> None:
    found = finding("CP009", CP4, "model.window_size=[128,0]", "model.window_attn_skip_freq=null")
    assert found.severity == "warning"
    assert found.problem.message.startswith("if the recipe leaves model.cp_comm_type at p2p: ")
    assert [item.key for item in found.presumed] == ["model.cp_comm_type"]


def test_a_key_that_is_stated_is_not_presumed() -> None:
    found = finding(
        "CP009", CP4, "model.window_size=[128,0]", "model.cp_comm_type=p2p", "model.window_attn_skip_freq=null"
    )
    assert (found.severity, found.presumed) == ("error", ())


def test_what_passes_at_a_presumed_value_counts_as_checked() -> None:
    said = report(CP4, "model.softmax_type=vanilla")
    assert "HCP001" not in [item.rule.id for item in said.not_checked]
    assert "model.cp_comm_type" in [item.key for item in said.presumed]


def test_who_states_kv_heads_has_no_latent_attention() -> None:
    levels = (CP4, "model.cp_comm_type=a2a+p2p", "model.hierarchical_context_parallel_sizes=[4,1]")
    heads = ("model.num_attention_heads=32", "model.tensor_model_parallel_size=1")
    found = finding("HCP007", *levels, *heads, "model.num_query_groups=1")
    assert (found.severity, found.presumed) == ("error", ())


def test_nothing_is_presumed_of_a_launch_that_hides_words(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("torchrun scripts/training/run_recipe.py --recipe llama3 $EXTRA model.context_parallel_size=4\n")
    launch = load_launch(str(file), LoadOptions())
    assert launch.dialect == "bridge"
    assert not [fact for fact in launch.facts.values() if fact.origin == "presumed"]


def verl(model: str, tmp_path: Path, config: str | None = None) -> list[str]:
    """What is presumed of a launch of verl with context parallelism, by the last part of its key."""
    file = tmp_path / "run.sh"
    file.write_text(
        f"python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer actor_rollout_ref.model.path={model} "
        "actor_rollout_ref.actor.megatron.context_parallel_size=4\n"
    )
    launch = load_launch(str(file), LoadOptions(model_file=config))
    return [item.key.rpartition(".")[2] for item in check_launch(launch, rules_for, fixes=False).presumed]


def test_nothing_is_presumed_of_a_public_model_or_of_one_whose_config_is_given(tmp_path: Path) -> None:
    assert {"window_size", "softmax_type", "mla"} <= {*verl("/models/mine", tmp_path)}
    assert verl("Qwen/Qwen3-30B-A3B", tmp_path) == []
    assert verl("deepseek-ai/DeepSeek-V3", tmp_path) == []
    (tmp_path / "config.json").write_text(
        '{"model_type": "qwen2", "num_attention_heads": 16, "hidden_size": 2048, "num_hidden_layers": 4}'
    )
    assert verl("/models/mine", tmp_path, str(tmp_path / "config.json")) == []


def test_what_no_rule_asks_for_is_not_called_presumed() -> None:
    """Ten recipes set rotary_interleaved, and no rule reads it."""
    assert "model.rotary_interleaved" not in [item.key for item in report(CP4).presumed]


def test_what_leaves_a_family_of_rules_out_is_presumed_aloud() -> None:
    """26 recipes set use_megatron_fsdp: the rules about it are not even loaded, because it is presumed off."""
    assert "dist.use_megatron_fsdp" in [item.key for item in report(CP4).presumed]
