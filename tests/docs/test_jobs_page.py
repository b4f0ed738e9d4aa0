"""docs/jobs.md: every example of an option gives a script, and the statuses are those of a verdict."""

import json
import re
import shlex

import pytest

from megatron_hcp.resources import pack_dir

PAGE = (pack_dir("schemas").parent / "docs" / "jobs.md").read_text(encoding="utf-8")
OPTIONS = PAGE[PAGE.index("## Options") :]
EXAMPLES = re.findall(r"`hcp render (train\.sbatch .*?)`", OPTIONS)
LAUNCH = """\
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=8 --gpus-per-node=8 --time=04:00:00
srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192 --save /ckpt --exit-signal-handler
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("example", [words for words in EXAMPLES if "--test-only" not in words])
def test_the_example_of_an_option_gives_a_script(example, hcp, tmp_path):
    (tmp_path / "train.sbatch").write_text(LAUNCH)
    done = hcp("render", *shlex.split(example), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("#!/bin/bash"), done.stderr


def test_every_option_of_a_row_is_one_of_the_command(hcp):
    known = set(re.findall(r"--[a-z-]+", hcp("render", "--help").stdout))
    named = set(re.findall(r"^\| (`--.*?) \|", OPTIONS, re.M))
    assert {option for cell in named for option in re.findall(r"--[a-z-]+", cell)} <= known
    assert len(EXAMPLES) >= 12


def test_the_statuses_are_those_of_a_verdict():
    schema = json.loads((pack_dir("schemas") / "hcp.verdict.2.json").read_text())
    table = PAGE[PAGE.index("| status |") : PAGE.index("A job that fails without")]
    cells = [line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")]
    assert {name for cell in cells for name in cell.split(", ")} == set(schema["properties"]["status"]["enum"])
