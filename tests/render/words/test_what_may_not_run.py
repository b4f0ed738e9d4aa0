"""What a script runs on a condition, in a loop, a pipeline or a shell of its own is carried, or said to be left out."""

import re

import pytest

from support.job_words import TRAIN
from support.sbatch import HEAD


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("if [ -d /opt/x ]; then module load x; else pip install -e .; fi", ["module load x", "pip install -e ."]),
        ("[ -d /opt/x ] && module load x", ["module load x"]),
        ("case $X in a) module load x;; esac", ["module load x"]),
        ("for m in $MODULES; do module load $m; done", ["module load $m"]),
        ("while ! test -f go; do touch go; done", ["touch go"]),
        ("(module load x)", ["module load x"]),
        ("curl https://x.org/setup | sh", ["curl https://x.org/setup", "sh"]),
        ("cd /x && umask 002", ["umask 002"]),
        ("module load x || exit 1", []),
    ],
)
def test_what_may_not_run_or_runs_in_a_shell_of_its_own_is_left_out(rendered, before, left):
    done = rendered(text=f"{HEAD}{before}\n{TRAIN}")
    assert done.returncode in (0, 1), done.stderr
    number = HEAD.count("\n") + 1
    assert re.findall(rf"left out: (.*) \(train\.sbatch:{number}\)", done.stderr) == left


def test_what_a_loop_sets_up_is_in_the_job_once_for_each_round(rendered):
    done = rendered(text=f"{HEAD}for m in a b; do module load $m; done\n{TRAIN}")
    assert re.findall(r"(?m)^(module .*) # train", done.stdout) == ["module load a", "module load b"]
