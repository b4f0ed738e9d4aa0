"""Bridge's YAML in every form that its versions write."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.bridge.reading import _ENUMS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.forms.words.settings import Word
from megatron_hcp.launch.readers.target import read_target, read_text
from megatron_hcp.launch.readers.words import reading_of_words


def launch(text: str) -> Launch:
    return build_launch(read_text(text, "x.yaml"))


def value(text: str, name: str) -> object:
    return launch(text).facts[name].value


FULL = "_target_: megatron.bridge.training.config.ConfigContainer\nmodel:\n  context_parallel_size: 4\n"


def test_a_dumped_container_is_complete_and_a_part_is_not() -> None:
    assert launch(FULL).facts["hcp_sizes"].origin == "default"
    part = launch("model:\n  context_parallel_size: 4\n").facts
    assert part["hcp_sizes"].origin == "presumed"
    assert "seq_length" not in part
    # A dump has every field; a provider of one model has defaults of its own for what somebody left out.
    assert launch(
        "model: {_target_: a.MyProvider, context_parallel_size: 4, num_attention_heads: 8}\n"
    ).reading.complete
    assert not launch("model: {_target_: a.MyProvider, context_parallel_size: 4}\n").reading.complete
    assert launch("model: {_target_: a.GPTModelProvider, context_parallel_size: 4}\n").reading.complete


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [1]}", "flash"),
        ("{_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [5]}", "auto"),
        ("{_target_: megatron.core.transformer.enums.AttnBackend, _call_: true, _args_: [2], _name_: fused}", "fused"),
        ("flash", "flash"),
        ("null", None),
    ],
)
def test_an_enum_reads_as_its_members_name(written: str, read: object) -> None:
    text = f"{FULL}  attention_backend: {written}\n"
    assert value(text, "attention_backend") == read


def test_types_functions_and_classes_stay_what_they_are() -> None:
    text = FULL + (
        "  params_dtype: {_target_: torch.bfloat16, _call_: false}\n"
        "  activation_func: {_target_: torch.nn.functional.silu, _call_: false}\n"
        "  generation_config: {_target_: t.G.from_dict, _call_: true, config_dict: {a: 1}}\n"
        "  init_method: {_target_: f, _partial_: true, _args_: [], std: 0.02}\n"
    )
    read = {setting.key: setting.value for setting in launch(text).reading.settings}
    assert read["model.params_dtype"] == "torch.bfloat16"
    assert read["model.activation_func"] == "torch.nn.functional.silu"
    assert read["model.generation_config.config_dict.a"] == 1 and read["model.init_method.std"] == 0.02


@pytest.mark.upstream
def test_the_enum_values_are_upstreams_in_every_release(upstream: Path) -> None:
    files = sorted(upstream.glob("megatron-core-*/megatron/core/transformer/enums.py"))
    assert files
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, members in _ENUMS.items():
            body = next(n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
            found = {n.value.value: n.targets[0].id for n in body if isinstance(n, ast.Assign)}  # type: ignore
            assert found == members, path


@pytest.mark.parametrize(
    ("dataset", "packing"),
    [
        ("{_target_: a.GPTDatasetConfig}", "none"),
        ("{_target_: a.FinetuningDatasetConfig, packed_sequence_specs: null}", "none"),
        ("{_target_: a.FinetuningDatasetConfig, packed_sequence_specs: {packed_sequence_size: 4096}}", "offline"),
        ("{_target_: a.FinetuningDatasetConfig, packed_sequence_specs: {packed_sequence_size: -1}}", "none"),
        (
            "{_target_: a.GPTSFTDatasetConfig, enable_offline_packing: true, offline_packing_specs: "
            "{packed_sequence_size: 4096, pad_seq_to_mult: 8}}",
            "offline",
        ),
        ("{_target_: a.DirectHFSFTDatasetConfig, enable_in_batch_packing: true}", "in_batch"),
        ("{_target_: a.MockVLMConversationProvider, pack_sequences_in_batch: true}", "in_batch"),
        ("{_target_: a.EnergonDatasetConfig, packing_buffer_size: 64}", "energon"),
        ("{_target_: a.EnergonDatasetConfig, packing_buffer_size: null}", "none"),
    ],
)
def test_packing_is_read_under_the_names_of_every_version(dataset: str, packing: str) -> None:
    text = f"{FULL}dataset: {dataset}\n"
    assert value(text, "packing") == packing and value(text, "thd") == (packing != "none")


@pytest.mark.parametrize(
    ("dataset", "finetune"),
    [
        ("GPTDatasetConfig", False),
        ("MockGPTDatasetConfig", False),
        ("FinetuningDatasetConfig", True),
        ("HFDatasetConfig", True),
        ("GPTSFTDatasetConfig", True),
        ("DirectHFSFTDatasetConfig", True),
        ("EnergonDatasetConfig", True),
        ("MockVLMSFTDatasetConfig", True),
        ("TheirOwnProvider", None),
    ],
)
def test_finetuning_is_told_by_the_datasets_class(dataset: str, finetune: bool | None) -> None:
    fact = launch(f"{FULL}dataset: {{_target_: pkg.{dataset}}}\n").facts.get("finetune")
    assert (None if fact is None else fact.value) == finetune


def test_packing_specs_in_an_override_list_mean_finetuning() -> None:
    facts = build_launch(read_text("dataset.packed_sequence_specs.packed_sequence_size=4096", "x")).facts
    assert facts["finetune"].value is True and facts["packing"].value == "offline"


@pytest.mark.parametrize(
    ("precision", "fp8", "recipe"),
    [
        ("bf16_mixed", None, "tensorwise"),
        ("bf16_with_mxfp8_mixed", "e4m3", "mxfp8"),
        ("bf16_with_fp8_delayed_scaling_mixed", "hybrid", "delayed"),
        ("bf16_with_fp8_current_scaling_mixed", "hybrid", "tensorwise"),
        ("nanov2_bf16_with_fp8_current_scaling_mixed", "hybrid", "blockwise"),
        ("bf16_with_fp8_subchannel_scaling_mixed", "hybrid", "blockwise"),
        ("bf16_with_nvfp4_mixed", None, "tensorwise"),
    ],
)
def test_the_mixed_precision_recipe_decides_over_the_models_own_fields(
    precision: str, fp8: str | None, recipe: str
) -> None:
    facts = launch(f"{FULL}  fp8: e5m2\nmixed_precision: {precision}\n").facts
    assert (facts["fp8"].value, facts["fp8_recipe"].value) == (fp8, recipe)
    spelled = launch(f"{FULL}  fp8: e5m2\nmixed_precision: {{fp8: hybrid, fp8_dot_product_attention: true}}\n").facts
    assert spelled["fp8"].value == "hybrid" and spelled["fp8_dot_product_attention"].value is True


@pytest.mark.upstream
def test_the_named_recipes_set_what_upstreams_functions_set(upstream: Path) -> None:
    from megatron_hcp.launch.dialects.bridge.reading import _precision

    for path in sorted(upstream.glob("megatron-bridge-*/megatron/bridge/training/mixed_precision.py")):
        checked = 0
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or not node.decorator_list or "mixed" not in node.name:
                continue
            theirs: dict[str, object] = {"fp8": None, "fp8_recipe": "tensorwise"}
            for item in ast.walk(node):
                if not isinstance(item, ast.Assign) or not isinstance(item.value, ast.Constant):
                    continue
                target = item.targets[0]
                if isinstance(target, ast.Attribute) and target.attr in theirs:
                    theirs[target.attr] = item.value.value
            ours = {setting.key.rpartition(".")[2]: setting.value for setting in _precision(node.name, None)}
            assert {name: ours[name] for name in theirs} == theirs, (path, node.name)
            checked += 1
        assert checked > 5


def test_a_model_config_with_a_nested_transformer_is_read_and_written_there() -> None:
    from megatron_hcp.launch.dialects.table import FACTS, keys_of

    text = (
        "_target_: m.ConfigContainer\nmodel:\n  _target_: m.BridgeGPTModelConfig\n  seq_length: 8192\n"
        "  transformer: {context_parallel_size: 4, cp_comm_type: a2a, num_layers: 4}\n"
    )
    read = launch(text)
    assert [read.facts[name].value for name in ("cp", "cp_comm_type", "seq_length")] == [4, "a2a", 8192]
    assert keys_of(FACTS["hcp_sizes"], "bridge", read.reading.role)[0].startswith("model.transformer.")


def test_environment_defaults_are_environment_facts() -> None:
    facts = launch(FULL + "env_vars: {CUDA_DEVICE_MAX_CONNECTIONS: 1, NVTE_FUSED_ATTN: null}\n").facts
    assert facts["env.CUDA_DEVICE_MAX_CONNECTIONS"].value == "1" and "env.NVTE_FUSED_ATTN" not in facts


def test_the_sequence_length_of_the_dataset_stands_in_for_the_models() -> None:
    assert value("dataset: {seq_length: 4096}\n", "seq_length") == 4096
    assert value("dataset: {seq_length: 4096}\nmodel: {seq_length: 8192}\n", "seq_length") == 8192


@pytest.mark.parametrize(
    ("keys", "name", "expected"),
    [
        # Bridge v0.4.2, models/mamba/mamba_provider.py: the older name is used only if it isn't null.
        ("model.hybrid_override_pattern=null model.hybrid_layer_pattern=M*M*", "hybrid_pattern", "M*M*"),
        ("model.hybrid_layer_pattern=M*M* model.hybrid_override_pattern=null", "hybrid_pattern", "M*M*"),
        ("model.hybrid_override_pattern=M-M- model.hybrid_layer_pattern=null", "hybrid_pattern", "M-M-"),
        ("model.hybrid_override_pattern=null model.hybrid_layer_pattern=null", "hybrid_pattern", None),
        ("model.hybrid_layer_pattern=M*M* model.hybrid_layer_pattern=null", "hybrid_pattern", None),
        ("train.eval_iters=null validation.eval_iters=32", "eval_iters", 32),
        ("dataset.seq_length=null dataset.sequence_length=8192", "dataset_seq_length", 8192),
        # training/mixed_precision.py, update_config_with_precision_overrides: every field, whatever its value.
        ("mixed_precision.fp8=null model.fp8=hybrid", "fp8", None),
    ],
)
def test_a_null_under_one_key_leaves_the_fact_to_another_key(keys: str, name: str, expected: object) -> None:
    read = build_launch(reading_of_words("bridge", [Word(word) for word in keys.split()], "-"))
    assert read.facts[name].value == expected


@pytest.mark.parametrize(
    ("dist", "ddp", "fsdp"), [("false", "true", True), ("true", "false", True), ("false", "false", False)]
)
def test_either_section_switches_megatron_fsdp_on_for_both(dist: str, ddp: str, fsdp: bool) -> None:
    # ConfigContainer._validate_and_apply_megatron_fsdp_configs sets both where one is set.
    sections = f"dist:\n  use_megatron_fsdp: {dist}\nddp:\n  use_megatron_fsdp: {ddp}\n"
    assert value(FULL + sections, "fsdp") is fsdp


def test_an_unresolved_reference_is_unknown_with_its_reason() -> None:
    read = launch("model: {context_parallel_size: '${oc.env:CP}', tensor_model_parallel_size: '${.pp}', pp: 2}\n")
    assert "the environment variable CP" in read.unknown["cp"] and read.facts["tp"].value == 2


def test_the_example_is_what_its_comment_says(root: Path) -> None:
    facts = build_launch(read_target(str(root / "examples" / "bridge_hcp.yaml"))).facts
    wanted = {
        "tp": 2,
        "cp": 8,
        "hcp_sizes": (4, 2),
        "cp_comm_type": "a2a+p2p",
        "attention_backend": "fused",
        "kv_heads": 8,
        "head_dim": 128,
        "packing": "none",
        "finetune": False,
        "seq_length": 131072,
        "vision": False,
    }
    assert {name: facts[name].value for name in wanted} == wanted
    data = yaml.safe_load((root / "examples" / "bridge_hcp.yaml").read_text(encoding="utf-8"))
    assert list(data["model"]) == sorted(data["model"])  # as yaml.safe_dump writes it
