"""A rendered job starts its own programs without the folder of the job on their path; the trainer keeps its path."""

import os
import shlex
import subprocess
import sys

import pytest

from support.processes import HANG_S
from support.rendering import HCP_WORDS, SITE


@pytest.fixture
def script(hcp):
    done = hcp(
        *("render", "--start", "torchrun", "--nodes", "2", *SITE, "--comm-test", "--python", sys.executable),
        *("--program", "train.py", "--", *HCP_WORDS),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def run(script, tmp_path):
    """Runs words after the script's own definition of how it starts its programs, where every module has a rival."""
    listing = [sys.executable, "-c", "import sys; print(*{name.split('.')[0] for name in sys.modules})"]
    at_start = set(subprocess.run(listing, capture_output=True, text=True, timeout=HANG_S).stdout.split())
    names = {*sys.stdlib_module_names, "click", "yaml", "jinja2", "packaging", "tree_sitter"} - at_start
    assert {"json", "runpy", "types", "argparse"} & names >= {"json", "argparse"}
    for name in names:
        (tmp_path / f"{name}.py").write_text("open('IMPORTED', 'a').write(__name__ + ' ')\n")
    begins = script.index("\nhcp=(")
    definition = f"python={shlex.quote(sys.executable)}\n" + script[begins : script.index("\nstart()')", begins) + 10]

    def run_words(words, **env):
        path = tmp_path / "own.sh"
        path.write_text(f"set -euo pipefail\n{definition}\n{words}\n")
        done = subprocess.run(
            ["bash", path],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_words


def _paths():
    source = os.environ["PYTHONPATH"].split(os.pathsep)[0]
    return [source, f"{os.pathsep}{source}", f"{source}{os.pathsep}.", f".{os.pathsep}{source}"]


@pytest.mark.slow
@pytest.mark.parametrize("path", _paths(), ids=["plain", "empty first", "dot last", "dot first"])
@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "job run --help",
        "check --dialect=mlm -- --context-parallel-size 2",
        "facts",
    ],
)
def test_nothing_is_imported_from_the_folder_of_the_job(run, tmp_path, words, path):
    assert run(f'"${{hcp[@]}}" {words}', PYTHONPATH=path)
    assert not (tmp_path / "IMPORTED").exists(), (tmp_path / "IMPORTED").read_text()


@pytest.mark.slow
def test_a_check_of_the_pack_is_run_with_its_own_words_alone(run, tmp_path):
    said = run('"${hcp[@]}" job test-groups -- --help', PYTHONPATH=_paths()[1])
    assert said.startswith("usage: comm_levels.py")
    assert not (tmp_path / "IMPORTED").exists(), (tmp_path / "IMPORTED").read_text()


def test_where_hcp_is_missing_one_task_says_so_in_one_line(script, tmp_path):
    begins = script.index("\nhcp=(")
    definition = script[begins : script.index("\nstart()')", begins) + 10]
    path = tmp_path / "own.sh"
    path.write_text(f'python=python3{definition}\n"${{hcp[@]}}" job run x\n')
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no installed packages
    bare.chmod(0o755)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    said = []
    for task in "01":
        own = {**env, "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_PROCID": task}
        done = subprocess.run(["bash", path], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, env=own)
        said.append((done.returncode, done.stderr.count("\n"), done.stderr[:27]))
    assert said == [(1, 1, "hcp: found no megatron-hcp "), (0, 0, "")]


def test_the_trainer_keeps_its_own_path(script):
    assert "PYTHONSAFEPATH" not in script and "PYTHONPATH" not in script
    assert '-- "${start[@]}" "${program[@]}" "${launch[@]}"' in script


@pytest.mark.torch
def test_torchrun_starts_a_program_of_the_job_on_every_rank(run, tmp_path):
    for rival in tmp_path.glob("*.py"):
        rival.unlink()  # torchrun itself is started with the path of the trainer
    said = run(
        '"$python" -m torch.distributed.run --nproc-per-node=2 --no-python "${hcp[@]}" --version',
        OMP_NUM_THREADS="1",
    )
    assert said.count("hcp, version") == 2
