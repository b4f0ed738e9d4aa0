"""`MODEL_ARGS:` files: values become words as upstream's test runner makes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.dialects.mlm.args_yaml import read_args_yaml
from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.forms.yaml.settings import load_yaml
from megatron_hcp.launch.readers.target import read_text
from support.selection import examples

TEXT = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NCCL_ALGO: Ring
  X: ${PLACE}/x
  NVTE_FLAG: true
MODEL_ARGS:
  --num-layers: 12
  --context-parallel-size: 4  # hcp: ignore=TOPO001 only one node
  --cp-comm-type: a2a+p2p
  --hierarchical-context-parallel-sizes: "[2 2]"
  --sequence-parallel: true
  --seq-length: 1024
  --data-path: ${DATA_PATH}/text
  --moe-layer-freq: ([0]*3+[1]*11)
  --recompute-modules: [mlp, "moe act"]
  --lr-warmup-fraction: .01
  --empty:
TEST_TYPE: regular
LAUNCHER: ft_launcher
"""


def read(text: str, name: str = "x.yaml") -> Reading:
    return read_args_yaml(load_yaml(text, name, last_wins=True))


def test_values_become_words() -> None:
    reading = read(TEXT, "model_config.yaml")
    assert {s.key: s.value for s in reading.settings} == {
        "num_layers": ["12"],
        "context_parallel_size": ["4"],
        "cp_comm_type": ["a2a+p2p"],
        "hierarchical_context_parallel_sizes": ["2", "2"],
        "sequence_parallel": [],
        "seq_length": ["1024"],
        "moe_layer_freq": ["([0]*3+[1]*11)"],
        "recompute_modules": ["mlp", "moe act"],
        "lr_warmup_fraction": ["0.01"],
        "empty": [],
    }
    assert (reading.dialect, reading.form, reading.complete, reading.text) == ("mlm", "args-yaml", True, TEXT)
    assert set(reading.unknown) == {"data_path", "env.X"}
    assert {name: fact.value for name, fact in reading.facts.items()} == {
        "env.CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "env.NCCL_ALGO": "Ring",
        "env.NVTE_FLAG": "true",
        "start": "ft_launcher",
    }
    assert [(a.rule, a.location.line) for a in reading.acceptances] == [("TOPO001", 8)]


def test_a_size_that_is_filled_in_later_is_unknown_and_no_wrong_number() -> None:
    launch = build_launch(read(TEXT.replace("size: 4", "size: ${CP}"), "model_config.yaml"))
    assert "cp" not in launch.facts
    assert launch.unknown["cp"] == "is filled in when the test runs"


def test_the_launch_has_the_flags_meaning_and_the_values_places() -> None:
    facts = build_launch(read(TEXT, "model_config.yaml")).facts
    assert (facts["cp"].value, facts["hcp_sizes"].value, facts["sequence_parallel"].value) == (4, (2, 2), True)
    place = facts["hcp_sizes"].location
    assert place is not None and TEXT.split("\n")[place.line - 1][place.column - 1 : place.end_column - 1] == '"[2 2]"'


def test_a_flag_set_to_false_gets_the_word_false() -> None:
    # Upstream's runner makes `--x false` of it, which argparse refuses for a flag without a value.
    assert read("MODEL_ARGS:\n  --x: false\n").settings[0].value == ["false"]


def test_of_a_flag_that_is_written_twice_the_last_counts() -> None:
    reading = read("MODEL_ARGS:\n  --x: 1\n  --y: 2\n  --x: 3\n")
    assert {s.key: s.value for s in reading.settings} == {"y": ["2"], "x": ["3"]}
    assert reading.notes == ("'--x' is written twice, first in line 2; the last one counts, as for argparse",)


def test_anchors_are_expanded() -> None:
    text = "BASE: &base\n  --x: 1\n  --y: 2\nMODEL_ARGS:\n  <<: *base\n  --y: 3\n"
    assert {s.key: s.value for s in read(text).settings} == {"x": ["1"], "y": ["3"]}


def test_arguments_out_of_a_checkpoint_are_unknown() -> None:
    reading = read("MODEL_ARGS:\n  --load: x\n  --use-checkpoint-args: true\n  --num-layers: 2\n")
    assert "num_attention_heads" in reading.unknown and "num_layers" not in reading.unknown


@pytest.mark.parametrize("text", ["MODEL_ARGS: 3\n", "MODEL_ARGS: [--x, 1]\n", "ENV_VARS:\n  A: 1\n"])
def test_what_has_no_flags_is_one_clear_line(text: str) -> None:
    with pytest.raises(HcpError, match="no MODEL_ARGS mapping; wanted"):
        read(text)


def test_an_empty_mapping_is_a_launch_without_flags() -> None:
    assert read("ENV_VARS:\n  A: 1\nMODEL_ARGS:\n").settings == ()


@settings(max_examples=examples(quick=10, full=200))
@given(st.text(max_size=60).map(lambda text: "MODEL_ARGS:\n  --x: " + text))
def test_any_value_is_read_or_one_clear_line(text: str) -> None:
    try:
        reading = read(text)
    except HcpError as error:
        assert "\n" not in str(error)
        return
    assert all(isinstance(word, str) for setting in reading.settings for word in setting.value)


@pytest.mark.parametrize("value", ["${TP}", "$TP", '"${TP:-4}"', "$(nproc)"])
def test_a_value_that_the_test_fills_in_is_unknown_and_no_error(value: str) -> None:
    reading = read_text(f"MODEL_ARGS:\n  --num-layers: 12\n  --tensor-model-parallel-size: {value}\n", "x.yaml")
    launch = build_launch(reading)
    assert "tp" in launch.unknown and launch.facts["num_layers"].value == 12 and reading.unseen is None


def test_an_option_that_the_test_fills_in_hides_all_absent_ones() -> None:
    reading = read_text("MODEL_ARGS:\n  --num-layers: 12\n  ${EXTRA}: true\n", "x.yaml")
    assert reading.unseen is not None and "cp" not in build_launch(reading).facts


@pytest.mark.parametrize("written", ['"384 384 97656250"', '"[384 384 97656250]"'])
def test_several_numbers_in_one_text_are_several_words(written: str) -> None:
    """v0.12.3 gpt3_15b_8t_release; later releases write the brackets."""
    text = f"MODEL_ARGS:\n  --num-layers: 4\n  --rampup-batch-size: {written}\n"
    read = {setting.key: setting.value for setting in read_text(text, "model_config.yaml").settings}
    assert read["rampup_batch_size"] == ["384", "384", "97656250"]
