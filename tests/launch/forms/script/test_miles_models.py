"""The options of a model that miles has a program print: those that Python itself prints when it runs that program."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from megatron_hcp.launch.fact import Reading
from megatron_hcp.launch.load import LoadOptions, load_launch

# A program with the name and the answers of miles' own, which finds a model's file from its own place.
PROGRAM = """
import importlib.util, os, sys
def load(name, **given):
    path = os.path.join(os.path.dirname(__file__), "../../../scripts/models", name + ".py")
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return " ".join(module.model_args(**given).split())
def load_sibling_model_args(file, name, **given):
    return load(name, **given)
def moe_layer_freq(*, nlayers, first_k_dense_replace):
    return str([int(layer >= first_k_dense_replace) for layer in range(nlayers)]).replace(" ", "")
if __name__ == "__main__":
    sys.modules["model_args_utils"] = sys.modules[__name__]
    print(load(*sys.argv[1:]))
"""
MODEL = """
import os
from model_args_utils import moe_layer_freq
DENSE = 1
WIDTH = 64 * 8 * DENSE
def model_args(nlayers: int | None = None, base: str = "10000") -> str:
    '''A small model.'''
    nlayers = nlayers if nlayers is not None else int(os.environ.get("MODEL_ARGS_NUM_LAYERS") or 4)
    base = os.environ.get("MODEL_ARGS_ROTARY_BASE") or base
    more = os.environ.get("MORE") or ""
    return (
        f"--num-layers {nlayers} --hidden-size {WIDTH} "
        "--num-attention-heads 8 --num-experts 4 "
        f"--moe-layer-freq {moe_layer_freq(nlayers=nlayers, first_k_dense_replace=DENSE)} --rotary-base {base}{more} "
    )
"""
VARIANT = """
from model_args_utils import load_sibling_model_args
def model_args() -> str:
    return load_sibling_model_args(__file__, "m-1B", nlayers=2)
"""
START = """#!/bin/bash
HERE="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
LINE="$(%spython3 "${HERE}/../miles/utils/external_utils/model_args_utils.py" "%s")" || exit 1
read -ra MODEL_ARGS <<< "$LINE"
python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --seq-length 4096 ${MODEL_ARGS[@]}
"""
WORDS = ("num_layers", "hidden_size", "num_attention_heads", "num_experts", "moe_layer_freq", "rotary_base")


def read_of(tmp_path: Path, model: str, name: str = "m-1B", before: str = "", lines: str = "") -> Reading:
    files = {
        "pyproject.toml": "",
        "miles/utils/external_utils/model_args_utils.py": PROGRAM,
        "scripts/models/m-1B.py": model,
        "scripts/models/m-1B-2layer.py": VARIANT,
        "examples/run.sh": lines + START % (before, name),
    }
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    return load_launch(str(tmp_path / "examples/run.sh"), LoadOptions()).reading


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("m-1B", {}),
        ("m-1B", {"MODEL_ARGS_NUM_LAYERS": "6", "MODEL_ARGS_ROTARY_BASE": "5"}),
        ("m-1B-2layer", {}),
    ],
)
def test_the_options_are_those_that_the_program_prints(tmp_path: Path, name: str, environment: dict[str, str]) -> None:
    before = "".join(f"{variable}={value} " for variable, value in environment.items())
    reading = read_of(tmp_path, MODEL, name, before)
    program = tmp_path / "miles/utils/external_utils/model_args_utils.py"
    env = {**os.environ, **environment}
    printed = subprocess.run([sys.executable, program, name], env=env, capture_output=True, text=True, check=True)
    given = {setting.key: setting.value for setting in reading.settings}
    words = [word for key in WORDS for word in (f"--{key.replace('_', '-')}", *given[key])]
    assert words == printed.stdout.split()
    assert reading.unseen is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DENSE = 1", "DENSE = open('/etc/hostname').read()"),
        ("DENSE = 1", "DENSE = 'x' * 10**9"),
        ("def model_args(", "def other("),
        ("    return (", "    for _ in range(3): pass\n    return ("),
        ("WIDTH = ", "WIDTH = " + "1 + " * 20_000),
        ("DENSE = 1", "DENSE = ("),
        ("DENSE = 1", "DENSE = int(1e999)"),
        ("DENSE = 1", "DENSE = int('-9999999999999999999999')"),
        ("DENSE = 1", "DENSE = 2\nDEEP = DENSE = 1"),
        ("is not None", "is not 4"),
    ],
)
def test_what_else_a_file_does_leaves_the_options_unknown(tmp_path: Path, old: str, new: str) -> None:
    assert old in MODEL
    reading = read_of(tmp_path, MODEL.replace(old, new))
    assert reading.unseen is not None or "num_layers" in reading.unknown


def test_so_does_a_variant_of_itself(tmp_path: Path) -> None:
    reading = read_of(tmp_path, VARIANT)
    assert reading.unseen is not None or "num_layers" in reading.unknown


def test_a_variable_that_is_not_known_leaves_them_unknown_and_one_that_is_not_set_does_not(tmp_path: Path) -> None:
    reading = read_of(tmp_path, MODEL, lines="export MODEL_ARGS_NUM_LAYERS=$(nproc)\n")
    assert "num_layers" not in {setting.key for setting in reading.settings}
    reading = read_of(tmp_path, MODEL, lines="MODEL_ARGS_NUM_LAYERS=6\n")  # not exported
    assert {setting.key: setting.value for setting in reading.settings}["num_layers"] == ["4"]


def test_a_text_of_many_long_parts_is_not_put_together(tmp_path: Path) -> None:
    many = f"BIG = {'x' * 15_000!r}\nDENSE = f'{'{BIG}' * 3_000}'"
    read_of(tmp_path, MODEL)
    tracemalloc.start()
    reading = read_of(tmp_path, MODEL.replace("DENSE = 1", many))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reading.unseen is not None or "num_layers" in reading.unknown
    assert peak < 20_000_000
