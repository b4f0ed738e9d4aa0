"""The script around NeMo-RL's ray.sub, run by bash with stand-ins for sbatch and for what ray.sub starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.rendering import VERL_WORDS

SIZES = [
    "--nodes",
    "2",
    "--gpus-per-node",
    "8",
    "--time",
    "1:00:00",
    "--container-image",
    "nemo#rl:1",
    "--mounts",
    "/d",
]
KEPT = "COMMAND SETUP_COMMAND CONTAINER MOUNTS GPUS_PER_NODE BASE_LOG_DIR".split()
PRINTS = '#!/bin/bash\nprintf "%s\\0" "$@" >"${0%/*}/$(basename "$0").args"\n'


@pytest.fixture
def submitted(hcp, tmp_path):
    """`submitted(*words)`: (sbatch's words, ray.sub's environment) of a rendered script that was run."""

    def run(*words, text):
        (tmp_path / "train.sh").write_text(text)
        done = hcp("render", "train.sh", "--target", "ray-sub", *SIZES, *words, "-o", "job.sh", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        (place / "sbatch").write_text(PRINTS + f'for name in {" ".join(KEPT)}; do printf "%s\\0" "${{!name}}"; done\n')
        (place / "python3").write_text(PRINTS)
        for program in place.iterdir():
            program.chmod(0o755)
        env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
        ran = subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return (place / "sbatch.args").read_text().split("\0")[:-1], dict(
            zip(KEPT, ran.stdout.split("\0"), strict=False)
        )

    return run


def argv_of(command, tmp_path, home="/users/u"):
    """The words that the launch's Python gets from a command which ray.sub writes to a file and runs with bash."""
    (tmp_path / "command.sh").write_text(command)
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": home}
    subprocess.run(["bash", "command.sh"], cwd=tmp_path, env=env, check=True)
    return (tmp_path / "bin" / "python3.args").read_text().split("\0")[:-1]


def test_ray_sub_gets_the_launch_word_for_word(submitted, tmp_path):
    odd = ["+a='b c'", "d=$HOME/x", "e=[1,2]", 'f="g"', "h=$'i\\tj'", "k=$(date +%Y)", "l=$(date +%s)"]
    text = f"python3 -m verl.trainer.main_ppo {' '.join(VERL_WORDS)} {' '.join(odd)}\n"
    options, env = submitted("--partition", "batch", text=text)
    assert options == ["--job-name=train", "--partition=batch", "--nodes=2", "--time=1:00:00", "ray.sub"]
    assert (env["CONTAINER"], env["MOUNTS"], env["GPUS_PER_NODE"]) == ("nemo#rl:1", "/d:/d", "8")
    words = argv_of(env["COMMAND"], tmp_path)
    assert words[:2] == ["-m", "verl.trainer.main_ppo"] and words[2 : 2 + len(VERL_WORDS)] == VERL_WORDS
    assert words[2 + len(VERL_WORDS) :][:5] == ["+a=b c", "d=/users/u/x", "e=[1,2]", "f=g", "h=i\tj"]
    year, second = words[2 + len(VERL_WORDS) :][5:7]
    assert year[:4] == "k=20" and second[2:].isdecimal()
    check = argv_of(env["SETUP_COMMAND"], tmp_path)
    assert check[2:3] == ["check"] and [w for w in check[check.index("--") + 1 :] if w[:2] != "l="] == [
        word for word in words[2:] if word != second
    ]


def test_shellcheck_finds_nothing_in_it(submitted, tmp_path):
    program = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    submitted(text=f"python3 -m verl.trainer.main_ppo {' '.join(VERL_WORDS)} 'a b'\n")
    done = subprocess.run([program, "--norc", "job.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
