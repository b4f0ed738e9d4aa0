"""Options below a command whose last line ends without a backslash: bash runs the command without them."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.readers.script import read_launches, read_shell
from support.shell import BASH, run_in_bash

START = "torchrun --nproc_per_node 8 pretrain_gpt.py"
VERL = "python3 -m verl.trainer.main_ppo"
APART = [
    # script, the line of the options, why they stand apart, what to do
    (f"{START}\n  --num-layers 2 \\\n  --bf16", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    (f"{START} --bf16\n  --num-layers 2", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    (f"{START} $ARGS\n  --tensor-model-parallel-size 2", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    (f"{START} \\\n  --bf16 2>&1 | tee log\n  --num-layers 2", 3, "no backslash ends line 2", "end line 2"),
    (f"{START} > log\n  --num-layers 2", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    (f"{START} \\ \n  --num-layers 2", 2, "a blank follows the backslash that ends line 1", "delete the blank"),
    (f"{START} \\\n  --bf16 \\\n\n  --num-layers 2", 4, "line 3 is empty", "delete the empty line"),
    (f"{START} \\\n  # --fp16 \\\n  --num-layers 2", 3, "the comment in line 2 ends the command", "move the comment"),
    (f"{VERL}\n  algorithm.adv_estimator=grpo \\\n  trainer.nnodes=1", 2, "no backslash ends line 1", "end line 1"),
    (f"{VERL} trainer.nnodes=1\n  +a.b=2", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    ("megatron sft\n  --model Qwen/Qwen3-8B", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    ("ray job submit -- python3 train.py\n  --num-layers 2 \\\n  --actor-num-nodes 1", 2, "no backslash", "end line 1"),
    ("bash other.sh\n  --tensor-model-parallel-size 2", 2, "no backslash ends line 1", "end line 1 in a backslash"),
    ("bash -c 'torchrun train.py\n  --num-layers 2'", 2, "no backslash ends line 1", "end line 1 in a backslash"),
]
TOGETHER = [
    f"{START} \\\n  --num-layers 2",
    f"{START} --num-layers 2\n\necho --bf16",
    f"# --bf16\n{START} --num-layers 2",
    f"{START} --num-layers 2\n# --bf16",
    "--num-layers 2\n--tensor-model-parallel-size 4",
    f"A='\n  --bf16'\n{START} --num-layers 2 $A",
    f"{START} --num-layers 2\nif true; then\n  :\nfi\n",
    f"{VERL} trainer.nnodes=1\nA=1.5",
    f"{START} --num-layers 2\ncat <<X\n--bf16\nX",
    f"{START} $(echo\n) \\\n  --num-layers 2",
]


@pytest.mark.parametrize(("script", "line", "why", "do"), APART)
def test_options_that_stand_apart_make_the_script_unusable(script: str, line: int, why: str, do: str) -> None:
    with pytest.raises(HcpError) as refused:
        read_launches(script, "x.sh")
    said = str(refused.value)
    assert said.startswith(f"x.sh:{line}: bash runs ") and f"because {why}" in said and f"; {do}" in said


@pytest.mark.parametrize("script", TOGETHER)
def test_options_with_their_command_do_not(script: str) -> None:
    assert read_launches(script, "x.sh")


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("script", [script for script, *_ in APART if "bash" not in script])
def test_bash_itself_starts_the_command_without_them(script: str) -> None:
    names = ("torchrun", "python3", "megatron", "ray")
    recorders = "".join(f"{name}() {{ printf '%s\\0' \"$@\"; }}; " for name in names)
    words = run_in_bash(script.replace("2>&1 | tee log", "").replace("> log", ""), recorders)
    last = script.rstrip().splitlines()[-1].split()[0]
    assert words and last not in words


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (["A=<Specify path>_text", "", "SAVE=x"], "A has no value: replace the placeholder <Specify path> in line 2"),
        (["", "  export A=<data>/x", "B=<x y>z", "B=<x>z"], "the placeholder <data> in line 3 (B likewise)"),
        ([f"V{number}=<Path>x" for number in range(8)], "in line 2 (V1, V2, V3, V4, V5, … likewise)"),
    ],
)
def test_variables_that_placeholders_leave_without_a_value_are_noted(lines: list[str], note: str) -> None:
    script = "\n".join(["#!/bin/bash", *lines, f"{START} --num-layers 2"])
    (reading,) = read_launches(script, "x.sh")
    (noted,) = (one for one in reading.notes if "placeholder" in one)
    assert note in noted


def test_what_bash_reads_from_is_no_placeholder() -> None:
    shown = "cat >&2 <<'END'\nE=<path to data>\nEND"
    script = f"A='<Specify path>'\nB=$(sort <Path >x)\nC=<(sort x)\n# D=<Path>\n{shown}\n{START} --num-layers 2"
    (reading,) = read_launches(script, "x.sh")
    assert not any("placeholder" in one for one in reading.notes)


@pytest.mark.parametrize("start", ["docker run img bash -c", "ssh node", "srun --container-image a.sqsh bash -c"])
def test_a_folder_that_the_script_makes_may_not_be_there_in_a_container_or_on_another_machine(start: str) -> None:
    asks = "if [ -d /data/x ]; then TP=2; else TP=1; fi"
    text = f"mkdir -p /data/x\n{start} '{asks}; torchrun pretrain_gpt.py --tensor-model-parallel-size $TP'\n"
    assert "tensor_model_parallel_size" in read_shell(text, "x.sh").unknown


def test_each_component_of_a_step_has_its_own_words() -> None:
    """`srun [OPTIONS] PROGRAM : [OPTIONS] PROGRAM`, as Slurm's page on heterogeneous jobs has it."""
    reading = read_shell("srun -n 8 python pretrain_gpt.py --num-layers 2 : -n 1 python serve.py --port 80\n", "x.sh")
    assert [(setting.key, setting.value) for setting in reading.settings] == [("num_layers", ["2"])]
    assert (reading.facts["srun.ntasks"].value, reading.facts["srun.het_group"].value) == ("8", True)
