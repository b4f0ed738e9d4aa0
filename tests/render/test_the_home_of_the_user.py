"""`~/` is the user's home in the job exactly where bash replaces it in the script."""

import subprocess

import pytest

from support.sbatch import HEAD

TRAIN = "srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192"


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("", "--save ~/x --load '~/y' --tensorboard-dir \"~/\"z"),
        ('A=~/x\nD="$A"/y', '--save $A/y --load $D --tensorboard-dir "$A/z"'),
        ("", '--save ${A:-~/x} --load "${A:-~/y}"'),
        ("A=${B:-~/x}", "--save $A"),
        ("A=~/x\nB=/a:$A C=--save=$A", "$C --load $B --tensorboard-dir=$A"),
        ('A=~/x\nif [ -n "$SET" ]; then B=/a:$A; else B=$A/b; fi', "--save $B"),
    ],
)
@pytest.mark.parametrize("environment", [{}, {"SET": "1"}])
def test_a_path_below_the_home_is_that_of_the_script(rendered, tmp_path, before, words, environment):
    done = rendered("-o", "job.sbatch", text=f"{HEAD}{before}\n{TRAIN} {words}\n")
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    begin = min(place for place in map(script.find, ("# Commands and conditions", "launch=(")) if place >= 0)
    launch = f"{script[begin : script.index('# ---- the job')]}printf '%s\\n' \"${{launch[@]:4}}\""
    texts = (launch, f"{before}\nprintf '%s\\n' {words}")
    given = {"PATH": "/bin:/usr/bin", "HOME": "/home/me", **environment}
    job, wanted = (subprocess.run(["bash", "-c", one], capture_output=True, text=True, env=given) for one in texts)
    assert job.stdout == wanted.stdout and wanted.stdout, job.stderr
