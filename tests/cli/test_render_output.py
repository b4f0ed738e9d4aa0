"""`hcp render -o FILE`: the whole script or the old file, and one line where it cannot be written."""

import os
import signal
import subprocess
import sys

import pytest

from support.processes import HANG_S
from support.rendering import HCP_WORDS, SITE

WORDS = ("render", "--start", "srun", "--nodes", "2", *SITE, "--program", "x.py", "-o")


def _one_line(done, *said):
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hcp: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(text in done.stderr for text in said), done.stderr


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["nowhere/job.sbatch", "folder", "/dev/full", "/proc/job.sbatch", "x" * 300])
def test_a_file_that_cannot_be_written_is_one_line(hcp, tmp_path, target):
    (tmp_path / "folder").mkdir()
    _one_line(hcp(*WORDS, target, "--", *HCP_WORDS, cwd=tmp_path), "cannot write")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "job.sbatch").write_text("the old one\n")
    # A file may have 2 KiB: the error comes in the middle of the script, as from a full disk.
    done = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 2; exec "$@"',
            "-",
            sys.executable,
            "-m",
            "megatron_hcp",
            *WORDS,
            "job.sbatch",
            "--",
            *HCP_WORDS,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    _one_line(done, "cannot write job.sbatch", "File too large")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"job.sbatch": "the old one\n"}


def test_folders_that_cannot_be_written_do_not_matter(hcp, tmp_path):
    env = {"TMPDIR": "/proc", "TMP": "/proc", "TEMP": "/proc", "HOME": "/proc"}
    done = hcp(*WORDS, "job.sbatch", "--", *HCP_WORDS, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["job.sbatch"]


STOPPED = """
import os, signal, sys
from megatron_hcp.cli.main import main
name = sys.argv.pop(1)
os.fsync = lambda handle: os.kill(os.getpid(), getattr(signal, name))  # between the writing and the renaming
main()
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL"])
def test_a_signal_in_the_middle_leaves_the_old_file(tmp_path, name):
    (tmp_path / "job.sbatch").write_text("the old one\n")
    command = [sys.executable, "-c", STOPPED, name, *WORDS, "job.sbatch", "--", *HCP_WORDS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    number = getattr(signal, name)
    assert done.returncode == (-number if name == "SIGKILL" else 128 + number), done.stderr
    assert (tmp_path / "job.sbatch").read_text() == "the old one\n"
    assert name == "SIGKILL" or len(list(tmp_path.iterdir())) == 1


def test_a_launch_whose_name_is_not_utf8_is_one_line_or_a_script(hcp, tmp_path):
    name = os.fsdecode(b"\xff.yaml")
    (tmp_path / name).write_text("model:\n  _target_: x\n  context_parallel_size: 2\n")
    words = ("render", name, "--dialect", "bridge", "--start", "torchrun", "--nodes", "2", *SITE, "--program", "x.py")
    _one_line(hcp(*words, cwd=tmp_path), "wanted valid Unicode text")


@pytest.mark.parametrize("step", ["a\x1b[2J", "a\r", "a\nb", "a\u202eb"])
def test_a_step_that_no_skill_can_have_is_refused(hcp, step):
    words = ("render", "--start", "verify", "--nodes", "2", *SITE, step)
    _one_line(hcp(*words), "wanted a skill, or a step as SKILL:STEP")


@pytest.mark.sample(5)
@pytest.mark.parametrize("odd", ["\x1b[2J", "\r", "\x9b", "\u202e'\\", "\x7f1"])
@pytest.mark.parametrize("option", ["--env", "--modules", "--python", "--shared"])
def test_a_script_shows_what_it_holds_and_sends_nothing_to_a_terminal(hcp, option, odd):
    """That it arrives in the job unchanged is tested where jobs are run."""
    done = hcp("render", "--start", "verify", "--nodes", "2", *SITE, option, f"A={odd}")
    assert done.returncode == 0, done.stderr
    assert all(line.replace("\t", "").isprintable() for line in done.stdout.split("\n"))
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True).returncode == 0


def test_a_directive_holds_only_what_can_be_printed(hcp):
    words = ("render", "--start", "verify", "--nodes", "2", *SITE, "--logs", "a\x1b[2J")
    _one_line(hcp(*words), "wanted a path of plain characters")


def test_what_the_check_says_of_a_value_is_shown_and_not_sent(hcp, tmp_path):
    words = ["--context-parallel-size", "2", "--cp-comm-type", "p\x1b[2J\n::error::x", "--seq-length", "8192"]
    done = hcp(*WORDS, "job.sbatch", "--", *words, cwd=tmp_path)
    assert "hcp render: error CP004" in done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())
    assert not any(line.startswith("::") for line in done.stderr.splitlines())


@pytest.mark.slow
def test_a_launch_that_is_undecided_is_rendered_with_a_warning(hcp, tmp_path):
    words = [
        *WORDS,
        "job.sbatch",
        "--dialect",
        "bridge",
        "--",
        "--recipe",
        "nobodys_recipe",
        "model.context_parallel_size=4",
    ]
    done = hcp(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "") and (tmp_path / "job.sbatch").is_file()
    assert "hcp render: undecided: the recipe is unknown, and it sets what this launch omits; name" in done.stderr


def test_a_launch_is_rendered_with_the_file_and_the_arguments_that_are_given_with_it(hcp, tmp_path):
    (tmp_path / "train.sh").write_text('. "$HOME/size.sh"\ntorchrun pretrain_gpt.py $SIZE "$@"\n')
    (tmp_path / "size.sh").write_text(f'SIZE="{" ".join(HCP_WORDS)}"\n')
    words = ("render", "train.sh", "--start", "srun", "--nodes", "2", *SITE)
    beside = ("--source", "size.sh", "--args", "--micro-batch-size 3")
    done = hcp(*words, *beside, cwd=tmp_path)
    assert done.returncode in (0, 1) and "--micro-batch-size 3" in done.stdout, done.stderr
    assert "--context-parallel-size 4" in done.stdout
    assert "--context-parallel-size 4" not in hcp(*words, cwd=tmp_path).stdout


def test_a_refusal_is_one_line_whatever_there_is_to_say_of_the_job(hcp, tmp_path):
    (tmp_path / "run.sh").write_text("curl https://x\ntorchrun pretrain_gpt.py --context-parallel-size 4\n")
    words = ("render", "--start", "srun", "--nodes", "2", *SITE, "run.sh")
    said = hcp(*words, cwd=tmp_path)
    assert said.returncode in (0, 1) and "left out: curl" in said.stderr
    _one_line(hcp(*words, "--array", "A=", cwd=tmp_path), "context_parallel_size is '4 A='")
    _one_line(hcp(*words, "-o", "nowhere/job.sbatch", cwd=tmp_path), "cannot write")
    _one_line(hcp(*words, "-o", "run.sh", cwd=tmp_path), "which is the launch itself")
