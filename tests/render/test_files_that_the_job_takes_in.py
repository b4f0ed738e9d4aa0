"""A job takes in what its script sources and nobody reads: as the script does, and without the script's credentials."""

import subprocess

import pytest

from support.sbatch import HEAD

TRAIN = "srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192"


@pytest.fixture()
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere") / "env.sh"


@pytest.fixture()
def ran(rendered, tmp_path):
    """The job's text, what the renderer says, and how the words of the launch come out in the job."""

    def run(text, *arguments):
        done = rendered("-o", "job.sbatch", text=HEAD + text)
        assert done.returncode in (0, 1), done.stderr
        script = (tmp_path / "job.sbatch").read_text()
        words = script[script.index("# Commands and conditions") : script.index("# ---- the job's own folder")]
        command = ["bash", "-c", f"set -euo pipefail\n{words}printf '%s\\n' \"${{launch[@]}}\"", "job", *arguments]
        return script, done.stderr, subprocess.run(command, capture_output=True, text=True)

    return run


@pytest.mark.parametrize(
    "before",
    [
        "export WANDB_API_KEY=Abcd1234\nLOGIN='wandb login '$WANDB_API_KEY",
        "A=Abcd1234\nexport HF_TOKEN=$A",
        "export HF_TOKEN=Abcd1234\nB=(x $HF_TOKEN)",
        "TOKEN=Abcd1234",
    ],
)
def test_a_credential_of_the_script_is_not_written_into_the_job_for_a_file(ran, file, before):
    file.write_text("BLEND=/a\n")
    script, said, job = ran(f"{before}\n. {file}\n{TRAIN} --data-path $BLEND\n")
    assert job.stdout.splitlines()[-1] == "/a" and "Abcd1234" not in script + said
    name = before.splitlines()[-1].partition("=")[0].removeprefix("export ")
    assert f"left out: {name} (train.sbatch): a file that the job takes in finds it unset" in said


def test_a_credential_within_another_variable_is_not_written_for_a_condition(rendered):
    before = 'export HF_TOKEN=Abcd1234\nA=x$HF_TOKEN\n[ "$A" = "$B" ] && SEED=1 || SEED=2\n'
    done = rendered(text=f"{HEAD}{before}{TRAIN} --seed $SEED\n")
    assert done.returncode == 2 and "Abcd1234" not in done.stdout + done.stderr


def test_a_variable_that_the_file_will_not_find_is_named(ran, file):
    file.write_text("BLEND=/a\n")
    _, said, job = ran(f"f() {{ echo $RANDOM; }}\nX=$(f)\n. {file}\n{TRAIN} --data-path $BLEND\n")
    assert job.stdout.splitlines()[-1] == "/a"
    assert "left out: X (train.sbatch): a file that the job takes in finds it unset" in said


def test_a_command_that_the_file_may_define_is_asked_for(rendered, file):
    """The job would find no such command, and train without the word."""
    for command, is_asked in (("blend_of train", True), ("cat list", False)):
        done = rendered(text=f"{HEAD}. {file}\n{TRAIN} --data-path $({command})\n")
        assert (done.returncode == 2 and "--data-path..." in done.stderr) == is_asked, done.stderr


@pytest.mark.parametrize(
    "how", ["for f in {0} {0}x; do . $f; done", 'if [ -n "$Q" ]; then . {0}; else . {0}; fi', ". {0}"]
)
def test_a_statement_takes_its_files_in_once_as_in_the_script(ran, file, how):
    file.write_text('BLEND="$BLEND /a"\n')
    _, _, job = ran(f"{how.format(file)}\n{TRAIN} --data-path $BLEND\n")
    assert job.stdout.splitlines()[-2:] == ["--data-path", "/a"], job.stderr


def test_a_file_that_ends_the_script_ends_the_job(ran, file):
    file.write_text("SEED=1; exit 0\n")
    _, _, job = ran(f". {file}\n{TRAIN} --seed $SEED\n")
    assert job.returncode and "what the launch sources has ended it" in job.stderr


def test_what_a_file_does_as_it_ends_is_no_word(ran, file):
    file.write_text("SEED=1; trap 'echo bye' EXIT\n")
    assert ran(f". {file}\n{TRAIN} --seed $SEED\n")[2].stdout.splitlines()[-1] == "1"


def test_a_file_sees_the_arguments_that_the_script_has_then(ran, file):
    file.write_text("SEED=$1\n")
    for before, seed in (("", "7"), ("set -- '8 9'\n", "8 9")):
        assert ran(f'{before}. {file}\n{TRAIN} --seed "$SEED"\n', "7")[2].stdout.splitlines()[-1] == seed


@pytest.mark.parametrize(
    ("before", "ends"),
    [
        ("set -e", True),
        ("set -o errexit", True),
        ("set -eo pipefail\nset +o errexit", False),
        ("X=$(set -e; ls)", False),
    ],
)
def test_a_missing_file_ends_the_job_where_it_would_end_the_script(ran, before, ends):
    _, _, job = ran(f"{before}\n. /nowhere/env.sh\n{TRAIN} --seed ${{SEED:-1}}\n")
    assert (job.returncode != 0) == ends, job.stderr


def test_a_file_is_taken_in_once_for_all_words(ran, file):
    """Its run's name may be of the time, or drawn: each word, and each choice, has the same one."""
    file.write_text("RUN=$RANDOM$RANDOM$RANDOM; OUT=/ck/$RUN\n")
    words = '--save $OUT --load "$OUT/x" --wandb-exp-name $RUN --tensorboard-dir "${TB:-$OUT/tb}"'
    _, _, job = ran(f". {file}\n{TRAIN} {words}\n")
    run = job.stdout.splitlines()[4:][5]
    assert job.stdout.splitlines()[5::2] == [f"/ck/{run}", f"/ck/{run}/x", run, f"/ck/{run}/tb"], job.stderr
