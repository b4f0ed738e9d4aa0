"""Files that a launch's script sources and that nobody could read: the job takes them in as the script does."""

import subprocess
import sys

import pytest

from support.job_words import TRAIN, launch_of
from support.sbatch import HEAD

TAKES_IN = """\
DATA=/d
if [ -f "{file}" ]; then . "{file}"; fi
srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192 --data-path $BLEND --save "$OUT/x" \\
    --seed ${{SEED:-7}} --log-interval ${{LOG:-$DEFAULT}}
"""


def test_the_job_takes_in_a_file_that_nobody_could_read(rendered, tmp_path, tmp_path_factory):
    """As the script does: with what that has set, and with what is set outside."""
    file = tmp_path_factory.mktemp("elsewhere") / "blend.sh"
    file.write_text('echo taken in\nBLEND="1 $DATA/a 2 $DATA/b" SEED=3 DEFAULT=5\n')
    done = rendered("-o", "job.sbatch", text=HEAD + TAKES_IN.format(file=file))
    assert done.returncode in (0, 1), done.stderr
    launch = launch_of((tmp_path / "job.sbatch").read_text(), {"PATH": "/bin:/usr/bin", "OUT": "/my runs"})
    words = "--data-path 1 /d/a 2 /d/b --save /my_runs/x --seed 3 --log-interval 5".split()
    assert launch[4:] == [word.replace("_", " ") for word in words]


@pytest.mark.parametrize(
    ("before", "says"), [("", "OUT: neither set outside nor by what"), ("set -e\n", "No such file")]
)
def test_a_job_ends_where_such_a_file_or_what_it_should_set_is_missing(rendered, tmp_path, before, says):
    words = "--context-parallel-size 2 --seq-length 8192 --save $OUT"
    text = f"{HEAD}{before}. /nowhere/env.sh\nsrun python pretrain_gpt.py {words}\n"
    done = rendered("-o", "job.sbatch", text=text)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    words = script[script.index("# Commands and conditions") : script.index("# ---- the job's own folder")]
    ran = subprocess.run(["bash", "-c", f"set -euo pipefail\n{words}"], capture_output=True, text=True)
    assert ran.returncode and says in ran.stderr


@pytest.mark.parametrize(
    "how", ["pip install x; . /shared/env.sh", "f() { . /shared/env.sh; }\nf", "eval $(cat x)\n. /e.sh"]
)
def test_a_file_that_is_taken_in_amid_something_else_is_asked_for(rendered, how):
    how = f"if true; then {how}; fi" if "pip" in how else how
    text = f'{HEAD}{how}\nsrun python pretrain_gpt.py --context-parallel-size 2 --seed "${{S:-1}}"\n'
    assert "(--seed...: S may be set by" in rendered(text=text).stderr


def test_a_file_that_the_job_takes_in_sees_the_name_of_the_script_that_bash_runs(tmp_path, tmp_path_factory):
    file = tmp_path_factory.mktemp("elsewhere") / "common.env"
    file.write_text("NAME=$(basename $0 .sh)\n")
    train = TRAIN.replace("srun ", "").replace("8192", "8192 --wandb-exp-name $NAME")
    (tmp_path / "my_run.sh").write_text(f". {file}\n{train}")
    sizes = ["--nodes", "4", "--gpus-per-node", "8", "--time", "9", "--checkpoint-dir", "/ck"]
    words = ["render", "my_run.sh", *sizes, "-o", "job.sbatch"]
    done = subprocess.run([sys.executable, "-m", "megatron_hcp", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    begin, end = script.index("launch_folder="), script.index("# ---- the job's own folder")
    text = f"set -euo pipefail\n{script[begin:end]}printf '%s\\n' \"${{launch[@]}}\""
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "my_run", ran.stderr
