"""Bridge's examples and tutorials start programs of their own, which no option tells from others."""

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.readers.target import read_text


@pytest.mark.parametrize(
    "program",
    [
        "examples/models/nemotron/nemotron_3/nano/finetune_nemotron_3_nano.py --config-file x.yaml",
        "/opt/Megatron-LM/3rdparty/examples/models/qwen/qwen3_next/finetune_qwen3_next_80b_a3b.py",
        "examples/megatron_mimo/qwen35_vl/finetune_qwen35_vl.py --seq-length 4096 --micro-batch-size 1",
        "00_quickstart_pretrain.py",
        "tutorials/recipes/llama/03_finetune_with_yaml.py --config-file conf/llama32_1b_finetune.yaml",
    ],
)
def test_training_programs_of_bridges_examples_are_bridges(program: str) -> None:
    assert read_text(f"srun torchrun {program}\n", "x.sh").dialect == "bridge"


def test_a_program_in_such_a_folder_that_takes_a_models_options_is_no_bridge() -> None:
    sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 4"
    assert read_text(f"torchrun examples/models/llama/pretrain_gpt.py {sizes}\n", "x.sh").dialect == "mlm"


def test_what_converts_in_such_a_folder_is_no_training() -> None:
    with pytest.raises(HcpError, match="no training command"):
        read_text("torchrun examples/models/qwen/convert_checkpoints.py import\n", "x.sh")
