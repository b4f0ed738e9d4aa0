"""Words that only running the script's own preparation tells: the job has bash run it once, as the script does."""

import os
import subprocess

import pytest

from support.sbatch import HEAD

TRAIN = "srun python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192"
STUB = '#!/bin/bash\nfor word in "${@:3}"; do printf "%s\\n" "$word"; done >>"$WORDS"\n'


@pytest.fixture()
def both(rendered, tmp_path):
    """The words that the trainer gets: from the job, and from the script itself with a stand-in for srun."""

    def run(text, **files):
        for name, content in {"format.py": "print('BLEND=\"1 a  2 b\"; COUNT=90000')\n", **files}.items():
            (tmp_path / name.replace("_sh", ".sh")).write_text(content)
        done = rendered("-o", "job.sbatch", text=HEAD + text)
        assert done.returncode in (0, 1), done.stderr
        script = (tmp_path / "job.sbatch").read_text()
        words = script[script.index("# Commands and conditions") : script.index("# ---- the job's own folder")]
        command = ["bash", "-c", f"set -euo pipefail\n{words}printf '%s\\n' \"${{launch[@]}}\"", "job"]
        environment = {**os.environ, "LAUNCHES": "once", "launch_folder": str(tmp_path)}
        job = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "srun").write_text(STUB)
        (tmp_path / "bin" / "srun").chmod(0o755)
        found = tmp_path / "words"
        own = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "WORDS": str(found)}
        subprocess.run(["bash", tmp_path / "train.sbatch"], cwd=tmp_path, env=own, check=True, capture_output=True)
        return job.stdout, found.read_text(), done.stderr, job.stderr

    return run


PREPARED = "set -eu\npython3 format.py > list.sh\nsource list.sh\n"


@pytest.mark.parametrize(
    "text",
    [
        f'{PREPARED}N=$(awk "BEGIN {{print int($COUNT / 512)}}")\n{TRAIN} --data-path $BLEND --train-iters $N\n',
        f"source <(python3 format.py)\n{TRAIN} --data-path $BLEND\n",
        f'touch a.bin b.bin\nB=\nfor f in *.bin; do B="$B 1 ${{f%.bin}}"; done\n{TRAIN} --data-path $B\n',
        f'{PREPARED}ARGS="--train-iters $((COUNT / 512)) --lr 1"\n{TRAIN} $ARGS --data-path "$BLEND"\n',
        f'f() {{ echo "$1-$COUNT"; }}\n{PREPARED}NAME="run $(f x) end"\n{TRAIN} --wandb-exp-name "$NAME"\n',
        f"{PREPARED}N=$(wc -c <list.sh)\nM=$N\nN=$((N * 2))\n{TRAIN} --train-iters $M --lr-decay-iters $N\n",
        f'python3 format.py >l\nif [ -s l ]; then EXTRA="--finetune"; else EXTRA=; fi\n{TRAIN} $EXTRA --seed 1\n',
        *(
            f"n=0; y=2\nif {test}; then A=x; else A=y; fi\n{TRAIN} --seed $A\n"
            for test in ("((n++ == 0 && $(date +%Y) > y))", '[ -f "$((n += 1))" ]', "((n <<= $(date +%Y) % 1))")
        ),
        f"if grep -q rint format.py; then A=x; else A=y; fi\n{TRAIN} --seed $A\n",
        f"if [ -f none ]; then A='--finetune'; elif [ -f other ]; then A='--eod'; fi\n{TRAIN} $A --seed 1\n",
        f"A=z\n[ -f none ] || [ -f other ] || A=x\n{TRAIN} --seed $A\n",
        f"A=z\nfor i in 1; do [ -f none ] && break; A=x; done\n{TRAIN} --seed $A\n",
    ],
)
def test_the_trainer_gets_the_words_that_the_script_would_give_it(both, text):
    job, script, _, errors = both(text)
    assert job == script, errors


def test_each_command_that_the_job_runs_first_is_said_to_be_run(both):
    _, _, said, _ = both(f"{PREPARED}{TRAIN} --data-path $BLEND\n")
    assert "changed: python3 format.py (train.sbatch:17): the job runs it once as it starts" in said
    assert "left out: python3" not in said


IN_BETWEEN = """\
F=list.sh
if [ "$SLURM_PROCID" -eq 0 ]; then python3 format.py >$F; else sleep 1; NUMBER=2; fi
source $F
N=$((COUNT / 512))
if [ -f none ]; then MORE="--finetune"; else MORE="--seed 3"; fi
python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192 --train-iters $N --data-path $BLEND $MORE
"""


def test_a_file_that_every_rank_runs_is_run_once_as_its_first_rank_does(rendered, tmp_path):
    (tmp_path / "format.py").write_text("print('BLEND=\"1 a  2 b\"; COUNT=90000')\n")
    rendered("-o", "job.sbatch", text=f"{HEAD}srun bash between.sh\n", files=[("between.sh", IN_BETWEEN)])
    script = (tmp_path / "job.sbatch").read_text()
    words = script[script.index("# Commands and conditions") : script.index("# ---- the job's own folder")]
    job = subprocess.run(
        ["bash", "-c", f'set -euo pipefail\n{words}echo "${{launch[@]}}"'],
        cwd=tmp_path,
        env={**os.environ, "SLURM_PROCID": "0"},
        capture_output=True,
        text=True,
    )
    assert job.stdout.endswith(" 8192 --train-iters 175 --data-path 1 a 2 b --seed 3\n"), job.stderr


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("N=$((SLURM_PROCID + 1))\n", "--train-iters $N"),
        ('if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then N=$(f); else N=2; fi\nM=$N\n', "--train-iters $M"),
        ("python3 serve.py &\nN=$(f)\n", "--train-iters $N"),
        ("srun python3 write.py\nsource x.sh\nN=$(f)\n", "--train-iters $N"),
        ("export HF_TOKEN=Abcd1234\nN=$(f $HF_TOKEN)\n", "--train-iters $N"),
        ("main() { N=$(f); ", "--train-iters $N; }\nmain"),
        ("N=$(f $port)\n", "--train-iters $N"),
        ("if ((port > 1)); then N=$(f); fi\n", "--train-iters $N"),
    ],
)
def test_a_word_that_the_job_would_tell_otherwise_is_asked_for(rendered, before, word):
    between = f"f() {{ date +%s%N | tail -c 4; }}\n{before}python pretrain_gpt.py --seq-length 8192 {word}\n"
    done = rendered(text=f"{HEAD}srun bash between.sh\n", files=[("between.sh", between)])
    assert done.returncode == 2 and "--train-iters..." in done.stderr, done.stderr


def test_a_variable_of_the_jobs_own_script_is_asked_for_beside_what_precedes_the_training(rendered):
    between = "f() { date +%s%N | tail -c 4; }\nN=$(f)\n"
    done = rendered(text=f"{HEAD}{between}{TRAIN} --wandb-exp-name $name --train-iters $N\n")
    assert done.returncode == 2 and "--assume env.name=VALUE" in done.stderr, done.stderr


def test_a_pattern_among_the_words_still_stands_for_files(rendered, tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_text("")
    done = rendered(text=f"{HEAD}{TRAIN} --data-path {tmp_path}/*.bin --name '{tmp_path}/*.bin'\n")
    (line,) = (line for line in done.stdout.splitlines() if "--data-path" in line)
    (quoted,) = (line for line in done.stdout.splitlines() if "--name" in line)
    found = subprocess.run(["bash", "-c", f"echo {line}; echo {quoted}"], capture_output=True, text=True).stdout
    assert found == f"--data-path {tmp_path}/a.bin {tmp_path}/b.bin\n--name {tmp_path}/*.bin\n"
