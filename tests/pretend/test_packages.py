"""What is changed of packages that upstream imports: here of a small package named transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_transformers import write_transformers
from support.rows import rows

pytestmark = pytest.mark.torch

PLAIN = """
from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins import packages
packages.run_no_code_of_models()
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
own = {"model_type": "known", "auto_map": {"AutoConfig": "x"}, "a": 1}
for found in ({"model_type": "known"}, {"model_type": "newer", "width": 7}, own):
    RECORD.is_model_made = False
    told = transformers.PretrainedConfig.get_config_dict(found)[0]
    kind = CONFIG_MAPPING[told["model_type"]]
    print(told, kind.__name__, getattr(kind, "width", None), RECORD.is_model_made)
RECORD.is_model_made = False
told = transformers.PretrainedConfig.get_config_dict({"model_type": "known"}, revision="c0ffee")[0]
print(told, RECORD.is_model_made)
"""
PREPARED = """
import contextlib, sys
from megatron_hcp.pretend.run import Request, prepare
root, framework = sys.argv[1:]
nothing = dict(program="", te=None, words=(), replaced=(), is_world_stated=True, is_model_stated=True,
               environment={}, world=1, gpus_per_node=8, ranks=(0,), until="model", seconds=9, memory=1 << 30)
with contextlib.suppress(ImportError):
    prepare(Request((root,), framework=framework, **nothing))
from transformers.dynamic_module_utils import get_class_from_dynamic_module
get_class_from_dynamic_module("Model", root)
"""


def test_a_configuration_of_ones_own_class_or_a_newer_one_is_a_plain_one_and_made(tmp_path: Path) -> None:
    write_transformers(tmp_path)
    done = subprocess.run([sys.executable, "-B", "-c", PLAIN], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "{'model_type': 'known'} dict None False",
        "{'model_type': 'newer', 'width': 7} PlainConfig 7 True",
        "{'model_type': 'known', 'a': 1} dict None True",
        "{'model_type': 'known'} True",
    ], done.stderr


@rows("framework", ["bridge", "verl", "ms-swift", "nemo-rl"])
def test_no_python_file_of_a_models_folder_is_run(tmp_path: Path, framework: str) -> None:
    write_transformers(tmp_path)
    (tmp_path / "modeling.py").write_text(f"Model = open({str(tmp_path / 'run')!r}, 'w')\n", encoding="utf-8")
    command = [sys.executable, "-B", "-c", PREPARED, str(tmp_path), framework]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "the model's own code" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_release_that_does_not_look_for_flash_attention_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("class PreTrainedModel: pass\n", encoding="utf-8")
    code = "from megatron_hcp.pretend.stand_ins import packages; packages.build_towers()"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


TOWER = """
import torch
class PreTrainedModel(torch.nn.Linear):
    @classmethod
    def _from_config(cls, width):
        return cls(width, width)
"""
BUILT = """
import torch, torch._dynamo
from megatron_hcp.pretend.stand_ins import device, packages, tensors
device.install()
tensors.install()
packages.build_towers()
from transformers import PreTrainedModel
print(PreTrainedModel._from_config(1 << 20).weight.device, torch.zeros(1).device)
"""


def test_a_tower_of_transformers_is_built_on_the_gpu_where_it_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text(TOWER, encoding="utf-8")
    done = subprocess.run([sys.executable, "-B", "-c", BUILT], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["cuda:0", "cpu"], done.stderr


SECTIONS = """
from megatron_hcp.pretend.stand_ins import packages
packages.run_no_code_of_models()
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
told, _ = transformers.PretrainedConfig.get_config_dict(
    {"model_type": "newer", "text_config": {"width": 7}, "quantization_config": {"bits": 8}})
made = CONFIG_MAPPING["newer"](**told)
print(made.text_config.width, made.quantization_config)
"""


def test_a_section_of_a_plain_configuration_is_one_too(tmp_path: Path) -> None:
    write_transformers(tmp_path)
    done = subprocess.run([sys.executable, "-B", "-c", SECTIONS], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "7 {'bits': 8}", done.stderr


def test_a_release_whose_way_to_a_models_own_code_is_not_known_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "transformers").mkdir()
    for file in ("__init__.py", "dynamic_module_utils.py"):
        (tmp_path / "transformers" / file).touch()
    code = "from megatron_hcp.pretend.stand_ins import packages; packages.run_no_code_of_models()"
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "ImportError" in done.stderr
