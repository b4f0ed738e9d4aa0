"""docs/jobs.md: every example of an option works, and the statuses are those of a verdict."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from megatron_hcp.cli.job import job
from megatron_hcp.cli.render import render
from megatron_hcp.resources import pack_dir
from support.small_upstream import small_upstream

PAGE = (pack_dir("schemas").parent / "docs" / "jobs.md").read_text(encoding="utf-8")
OPTIONS = PAGE[PAGE.index("## Options") :]
EXAMPLES = re.findall(r"`hcp render (.*?)`", OPTIONS)
LAUNCH = """\
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=8 --gpus-per-node=8 --time=04:00:00
srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192 --save /ckpt --exit-signal-handler
"""


CONFIG = '{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}'
FILES = {"site.yaml": "qos: high\n", "config.json": CONFIG, "lib/a.sh": ""}


@pytest.mark.sample(4)
@pytest.mark.parametrize("example", [words for words in EXAMPLES if "--test-only" not in words])
def test_the_example_of_an_option_gives_a_script(example, hcp, tmp_path):
    (tmp_path / "train.sbatch").write_text(LAUNCH)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    small_upstream(tmp_path / "checkout")
    done = hcp("render", *shlex.split(example), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = tmp_path / "job.sbatch"
    text = written.read_text() if written.exists() else done.stdout
    assert text.startswith("carried " if "--words" in example else "#!/bin/bash"), done.stderr


def test_every_option_has_a_row_with_an_example_that_uses_one_of_it():
    options = [[name for name in one.opts if name.startswith("--")] for one in render.params]
    known = [names[0] for names in options if names]
    rows = [re.findall(r"`(.*?)`", line) for line in OPTIONS.splitlines() if line.startswith("| `--")]
    named = [option for row in rows for option in row if option.startswith("--")]
    assert sorted(named) == sorted(known)
    for row in rows:
        *options, example = [cell for cell in row if cell.startswith(("--", "hcp render"))]
        assert any(re.search(rf"{option}\b", example) for option in options), row


def test_the_statuses_are_those_of_a_verdict():
    schema = json.loads((pack_dir("schemas") / "hcp.verdict.2.json").read_text())
    table = PAGE[PAGE.index("| status |") : PAGE.index("A job that fails without")]
    cells = [line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")]
    assert {name for cell in cells for name in cell.split(", ")} == set(schema["properties"]["status"]["enum"])


def test_the_table_of_words_is_one_that_is_printed(hcp, tmp_path):
    (shown,) = re.findall(r"```\n(carried .*?)```", PAGE, re.S)
    sizes = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8 --time=60\n"
    more = "#SBATCH --partition=batch\n#SBATCH --error=err.txt\n"
    (tmp_path / "train.sbatch").write_text(f"{sizes}{more}\numask 002\nsrun python pretrain_gpt.py --seq-length 8192\n")
    printed = hcp("render", "train.sbatch", "--words", cwd=tmp_path).stdout
    rows = {" ".join(row.split()) for row in printed.splitlines()}
    assert {" ".join(row.split()) for row in shown.splitlines()} <= rows, printed


SETUP = PAGE[PAGE.index("| before the training |") : PAGE.index("A file that the script sources")]


@pytest.mark.parametrize("row", re.findall(r"(?m)^\| (`.*) \|$", SETUP))
def test_what_sets_up_the_software_is_in_the_job_as_the_page_says(row, hcp, tmp_path):
    before, wanted = row.split(" | ")
    (before,) = re.findall(r"`(.*?)`", before)
    *head, start = LAUNCH.splitlines()
    (tmp_path / "train.sbatch").write_text("\n".join((*head, before, start, "")))
    done = hcp("render", "train.sbatch", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(?m)^([^#\n]*) # train\.sbatch:3$", done.stdout)
    assert found == re.findall(r"`(.*?)`", wanted)
    assert ("left out: " in done.stderr) == (wanted == "left out"), done.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_the_options_of_hcp_job_have_a_row_each_and_stand_in_an_example_that_ends(tmp_path):
    section = PAGE[PAGE.index("## `hcp job run`") : PAGE.index("## Options")]
    known = {f"{name}: {option.opts[0]}" for name, command in job.commands.items() for option in command.params}
    rows = [line for line in section.splitlines() if line.startswith("| `--")]
    named = {f"run: {option}" for line in rows for option in re.findall(r"`(--[\w-]+)`", line.split("|")[1])}
    assert named == {option for option in known if "--" in option}
    (example,) = re.findall(r"```sh\n(.*?)```", section, re.S)
    commands = f'hcp() {{ "{sys.executable}" -m megatron_hcp "$@"; }}\n'
    (tmp_path / "pretrain_gpt.py").write_text("print(' iteration        3/       3 |')\n")
    commands = f'hcp() {{ "{sys.executable}" -m megatron_hcp "$@"; }}\npython3() {{ :; }}\n'
    text = example.replace("python3 -m torch", f"{shlex.quote(sys.executable)} -m torch")
    done = subprocess.run(["bash", "-c", commands + text], cwd=tmp_path, capture_output=True, text=True)
    verdict = json.loads((tmp_path / "run" / "verdict-r0.json").read_text())
    assert (done.returncode, verdict["status"]) == (0, "completed"), done.stdout + done.stderr
