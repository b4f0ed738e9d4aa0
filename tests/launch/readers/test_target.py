"""Every target is told apart by its text, another framework's is refused by name, and bad input is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.frameworks import FRAMEWORKS
from megatron_hcp.launch.fact import Dialect, Reading
from megatron_hcp.launch.readers.target import read_target, read_text
from support.hostile import READ_TEXTS_AS, SLOW_TEXTS, TEXTS
from support.selection import examples


def refusal(text: str, name: str = "x") -> str:
    with pytest.raises(HcpError) as error:
        read_text(text, name)
    assert "\n" not in str(error.value) and str(error.value).count(";") >= 2  # found; wanted; do
    return str(error.value)


def value(reading: Reading, name: str) -> object:
    return build_launch(reading).facts[name].value


@pytest.mark.parametrize(
    ("name", "text", "dialect", "form"),
    [
        ("a.yaml", "model:\n  context_parallel_size: 4\n", "bridge", "yaml"),
        ("a", "model:\n  context_parallel_size: 4\n", "bridge", "yaml"),
        ("a.json", '{"model": {"context_parallel_size": 4}}', "bridge", "yaml"),
        ("<stdin>", '{"model": {"context_parallel_size": 4}}', "bridge", "yaml"),
        ("a.txt", "# c\nmodel.context_parallel_size=4 train.train_iters=2\n", "bridge", "overrides"),
        ("a", "'model.context_parallel_size=4'\n+model.cp_comm_type=p2p\n", "bridge", "overrides"),
        ("a", "actor_rollout_ref.actor.megatron.context_parallel_size=4\n", "verl", "overrides"),
        ("a", "engine=megatron engine.context_parallel_size=4 model.path=x\n", "verl", "overrides"),
        ("a", "actor_rollout_ref:\n  actor:\n    megatron: {context_parallel_size: 4}\n", "verl", "yaml"),
        ("a", "engine: {context_parallel_size: 4}\nmodel: {path: x}\n", "verl", "yaml"),
        ("a", "--context-parallel-size 4\n--cp-comm-type p2p  # ring\n", "mlm", "args"),
    ],
)
def test_form_and_dialect_come_from_name_and_text(name: str, text: str, dialect: str, form: str) -> None:
    reading = read_text(text, name)
    assert (reading.dialect, reading.form) == (dialect, form)
    assert value(reading, "cp") == 4


@pytest.mark.parametrize(
    "words",
    [
        ["model.context_parallel_size=4", "+model.cp_comm_type=p2p"],
        ["--recipe", "x", "model.context_parallel_size=4"],
        ["--context-parallel-size", "4"],
        ["--context-parallel-size=4"],
        ["model_engine=megatron", "actor_rollout_ref.actor.megatron.context_parallel_size=4"],
    ],
)
def test_words_alone_are_a_launch(words: list[str]) -> None:
    assert value(read_target("", words=words), "cp") == 4


def test_words_after_a_target_are_appended_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: {_target_: m.P, num_attention_heads: 8, context_parallel_size: 4, cp_comm_type: a2a}\n")
    reading = read_target(str(path), words=["++model.context_parallel_size=8", "~model.cp_comm_type"])
    facts = build_launch(reading).facts
    assert facts["cp"].value == 8 and facts["cp_comm_type"].origin == "default"
    flags = read_target("-", words=["--context-parallel-size", "8"], stdin=lambda: b"--context-parallel-size 4")
    assert value(flags, "cp") == 8


def test_the_dialect_can_be_forced() -> None:
    text = "model:\n  context_parallel_size: 4\n"
    assert read_text(text, "a.yaml", dialect="bridge-provider").dialect == "bridge-provider"
    assert read_text("my.own_key=1 model.context_parallel_size=2", "a", dialect="bridge").dialect == "bridge"
    with pytest.raises(HcpError, match="no key of the dialect mlm"):
        read_text(text, "a.yaml", dialect="mlm")


FOREIGN = {
    "a NeMo-RL": "generation: {backend: vllm}\neval: {metric: x}\ncluster: {gpus_per_node: 8}\n",
    "a NeMo configuration": "trainer: {devices: 8}\nexp_manager: {}\nmodel: {context_parallel_size: 2}\n",
    "a NeMo AutoModel": "model: {_target_: nemo_automodel.X.from_pretrained}\ndistributed: {cp_size: 2}\n",
    "a torchtitan": "parallelism: {context_parallel_degree: 4}\njob: {dump_folder: x}\n",
    "a DeepSpeed": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}',
    "a Hugging Face Accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n",
    "an Axolotl": "base_model: x\ndatasets: []\nsequence_len: 4096\n",
    "a LLaMA-Factory": "model_name_or_path: x\nstage: sft\n",
    "a Megatron-LM --yaml-cfg": "language_model: {num_layers: 1}\nmodel_parallel: {context_parallel_size: 4}\n",
    "a Kubernetes": "apiVersion: v1\nkind: Pod\nspec: {}\n",
    "a SkyPilot": "resources: {accelerators: H100}\nrun: |\n  torchrun x\n",
    "one section of a verl": "_target_: verl.workers.config.McoreEngineConfig\ntensor_model_parallel_size: 1\n",
    "a model's config.json": '{"architectures": ["LlamaForCausalLM"], "hidden_size": 1}',
    "one of hcp's own files (hcp.card/1)": "schema: hcp.card/1\nskill: x\n",
    "no key of a known dialect": "foo: {bar: 1}\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_another_frameworks_file_is_named_and_refused(name: str) -> None:
    assert name in refusal(FOREIGN[name], "x.yaml")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["generation.vllm_cfg.tensor_parallel_size=2"], "NeMo-RL"),
        (["trainer.strategy.context_parallel_size=2"], "NeMo"),
        (["--parallelism.context_parallel_degree", "2"], "torchtitan"),
        (["hello"], "wanted a launch of Megatron"),
        (["foo.bar=1"], "wanted a launch of Megatron"),
        (["model.context_parallel_size=2", "stray"], "is not an override"),
    ],
)
def test_another_frameworks_words_are_refused(words: list[str], name: str) -> None:
    with pytest.raises(HcpError, match=name):
        read_target("", words=words)


@pytest.mark.parametrize("dialect", FRAMEWORKS)
def test_no_words_are_no_launch_of_any_dialect(dialect: Dialect) -> None:
    with pytest.raises(HcpError, match="after -- is not"):
        read_target("", dialect=dialect, words=[])


@pytest.mark.parametrize("words", [["~model"], ["model.context_parallel_size=2", "~model"]])
def test_words_of_which_nothing_is_left_are_said_to_leave_nothing(words: list[str]) -> None:
    with pytest.raises(HcpError, match="words after -- that leave no setting"):
        read_target("", dialect="bridge", words=words)


def test_a_section_name_alone_makes_no_bridge_launch() -> None:
    """Many frameworks have `model:` and `train:`; only a known key makes the file Bridge's."""
    assert "no key of a known dialect" in refusal("model: {d_model: 512}\ntrain: {steps: 3}\n", "x.yaml")


def test_a_refusal_names_the_sections_in_the_files_order_every_time(hcp, tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text("title: x\nsummary: y\nmodel: {a: 1}\nitems: []\nmore: {b: 1}\n")
    said = [hcp("check", "card.yaml", cwd=tmp_path, env={"PYTHONHASHSEED": seed}).stderr for seed in ("0", "1")]
    assert "(it has title, summary, model, items, more)" in said[0] and said[0] == said[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nprint(1)\n", "looks like Python, which is never executed"),
        ("#!/usr/bin/env python3\nx = 1\n", "is Python, which is never executed"),
        ("a: 1\na: 2\n", "written twice"),
        ("model:\n  context_parallel_size: !!python/object/apply:os.system [ls]\n", "the tag !!python"),
    ],
)
def test_text_that_is_no_launch_is_refused(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("context_parallel_size", "four", "wanted a whole number"),
        ("context_parallel_size", "-4", "at least 1"),
        ("context_parallel_size", "9" * 40, "wanted a whole number"),
        ("seq_length", "{a: 1}", "wanted"),
        ("sequence_parallel", "maybe", "wanted true or false"),
        ("hierarchical_context_parallel_sizes", "[a, b]", "wanted a whole number"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_line_with_its_place(key: str, value: str, said: str) -> None:
    reading = read_text(f"model:\n  num_layers: 4\n  {key}: {value}\n", "x.yaml")
    if value.startswith("{"):
        assert "seq_length" not in build_launch(reading).facts  # a mapping there is another key
        return
    with pytest.raises(HcpError, match=r"x\.yaml:3:\d+: model\.") as error:
        build_launch(reading)
    assert said in str(error.value)


def test_a_text_that_the_shell_splits_is_refused_with_the_way_to_quote_it() -> None:
    """upstream's examples/gpt3/train_gpt3_175b_distributed.sh (core_v0.18.2) expands its arrays unquoted."""
    script = 'A=(--step-batch-size-schedule "0:16 2.4B:320")\ntorchrun pretrain_gpt.py --num-layers 2 {}\n'
    assert value(read_text(script.format('"${A[@]}"'), "x.sh"), "step_batch_size_schedule") == "0:16 2.4B:320"
    with pytest.raises(HcpError, match=r'wanted one value \(a text with blanks needs quotes, .*"\$\{ARGS\[@\]\}"\)'):
        build_launch(read_text(script.format("${A[@]}"), "x.sh"))


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    def refused(path: Path | str, data: bytes | None = None) -> str:
        if data is not None:
            Path(path).write_bytes(data)
        with pytest.raises(HcpError) as error:
            read_target(str(path))
        assert "\n" not in str(error.value)
        return str(error.value)

    file = tmp_path / "a.yaml"
    assert "does not exist" in refused(file)
    assert "put overrides after --" in refused("model.context_parallel_size=4")
    assert "is a directory" in refused(tmp_path)
    assert "is binary" in refused(file, b"model:\0\1\2")
    assert "not UTF-8 (byte 0xff at offset 7)" in refused(file, b"model: \xff\xfe")
    assert "is empty" in refused(file, b" \n\n")
    assert "cannot be read" in refused("a\0b")
    assert "too large" in refused(file, b"a: 1\n" * 10_000_000)  # 50 MB
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "cannot be read" in refused(loop)
    if os.path.exists("/dev/zero"):
        assert "too large" in refused("/dev/zero") or "binary" in refused("/dev/zero")


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfmodel:\r\n  context_parallel_size: 4\r\n")
    assert value(read_target(str(path)), "cp") == 4
    words = b"\xef\xbb\xbfmodel.context_parallel_size=4\r\n"
    assert value(read_target("-", stdin=lambda: words), "cp") == 4


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW_TEXTS else ()) for name in TEXTS]
)
def test_hostile_text_is_read_or_refused_in_one_line(name: str) -> None:
    for target, dialect in READ_TEXTS_AS:
        try:
            build_launch(read_text(TEXTS[name], target, dialect=dialect))
        except HcpError as error:
            assert "\n" not in str(error)


@given(st.binary(max_size=200), st.sampled_from(["x.yaml", "x.txt", "x", "x.json"]))
@settings(max_examples=examples(quick=12, full=400), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_are_read_or_refused(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for dialect in (None, "bridge", "verl"):
        try:
            build_launch(read_target(str(path), dialect=dialect))
        except HcpError as error:
            assert "\n" not in str(error)


scalar = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("${model.a}")
keys = st.sampled_from(
    [
        "model",
        "context_parallel_size",
        "cp_comm_type",
        "actor_rollout_ref",
        "actor",
        "megatron",
        "override_transformer_config",
        "hierarchical_context_parallel_sizes",
        "engine",
        "_target_",
        "trainer",
        "nnodes",
        "dataset",
        "packed_sequence_specs",
        "env_vars",
        "window_size",
    ]
)
tree = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=20
)


@given(
    st.dictionaries(keys, tree, min_size=1, max_size=5), st.sampled_from([None, "bridge", "bridge-provider", "verl"])
)
@settings(max_examples=examples(quick=12, full=400))
def test_any_tree_of_known_keys_is_read_or_refused(data: dict[str, object], dialect: Dialect | None) -> None:
    try:
        reading = read_text(json.dumps(data), "x.yaml", dialect=dialect)
        for one in (reading, *reading.others):
            build_launch(one)
    except HcpError as error:
        assert "\n" not in str(error)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["bridge_hcp.yaml", "verl_dcp.yaml", "bridge_overrides.txt"])
def test_reading_an_example_imports_nothing_heavy(root: Path, name: str) -> None:
    program = (
        "import sys; from megatron_hcp.launch.readers.target import read_target; "
        "from megatron_hcp.launch.build import build_launch; build_launch(read_target(sys.argv[1])); "
        "print(sorted({'omegaconf', 'tree_sitter', 'jinja2', 'rich', 'torch', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(root / "examples" / name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
