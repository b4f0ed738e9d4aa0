"""Every word around a training command is carried into the job, or said to be left out."""

import re
import subprocess

import pytest

from support.sbatch import BODY, HEAD

TRAIN = "srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "train", "said"),
    [
        ("export PATH=/opt/mlm/bin:$PATH", TRAIN, "export PATH (train.sbatch): name its environment with --venv"),
        (
            "export WANDB_API_KEY=abc",
            TRAIN,
            "export WANDB_API_KEY (train.sbatch:LINE): a secret; export it in the shell",
        ),
        ("umask 002", TRAIN, "umask 002 (train.sbatch:LINE)"),
        (
            "",
            "srun nsys profile -o out uv run --no-sync python pretrain_gpt.py --context-parallel-size 2\n",
            "uv run --no-sync (train.sbatch:NEXT): state its environment with --venv",
        ),
        (
            "",
            TRAIN.replace("torchrun", "nsys profile torchrun"),
            "nsys (train.sbatch:NEXT): the job starts the program",
        ),
        (
            "",
            "srun uv run --no-sync python -X faulthandler pretrain_gpt.py --context-parallel-size 2\n",
            "uv run --no-sync (train.sbatch:NEXT): state its environment with --venv",
        ),
        (
            'CMD="uv run --extra mcore python pretrain_gpt.py --context-parallel-size 2"',
            'srun bash -c "$CMD"\n',
            "uv run --extra mcore (train.sbatch:LINE): state its environment with --venv",
        ),
        (
            "",
            "srun python -X faulthandler pretrain_gpt.py --context-parallel-size 2\n",
            "python -X faulthandler (train.sbatch:NEXT): an option of the interpreter",
        ),
    ],
)
def test_what_surrounds_the_training_is_carried_or_said_to_be_left_out(rendered, before, train, said):
    line = HEAD.count("\n") + 1
    done = rendered(text=f"{HEAD}{before}\n{train}")
    assert done.returncode in (0, 1), done.stderr
    assert f"left out: {said.replace('LINE', str(line)).replace('NEXT', str(line + 1))}" in done.stderr


@pytest.mark.parametrize(
    ("word", "python"), [("/opt/venv/bin/torchrun", "/opt/venv/bin/python"), ("torchrun", "python3")]
)
def test_the_interpreter_is_the_one_that_the_launch_names(rendered, word, python):
    done = rendered(text=HEAD + TRAIN.replace("torchrun", word))
    assert f"\npython={python}\n" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "lines", "absent"),
    [
        ("", "#SBATCH --mem-per-gpu=100G\n", ["--mem-per-gpu=100G"], "--mem="),
        ("", "", [], "--mem"),
        ("", "", [], "requeue"),
        ("", "#SBATCH --requeue\n", ["--requeue"], "no-requeue"),
        ("--output=logs/%x-%A_%a.log", "--output=/logs/%x_%A_%a.out", ["--output=/logs/%x_%A_%a.out"], "left out"),
    ],
)
def test_a_directive_is_added_only_if_it_is_stated(rendered, old, new, lines, absent):
    done = rendered(text=(HEAD.replace(old, new) if old else HEAD + new) + TRAIN)
    directives = "".join(line for line in done.stdout.splitlines(True) if line.startswith("#SBATCH"))
    assert all(f"#SBATCH {line}  # train.sbatch:" in directives for line in lines), done.stderr
    assert absent not in directives


def test_values_of_the_launchers_own_options_are_kept(rendered):
    options = "--max-restarts=7 --ft-rank-section-timeouts=setup:600,step:180 --ft-rank-out-of-section-timeout=300"
    done = rendered(text=HEAD + TRAIN.replace("torchrun", f"ft_launcher {options}"))
    for line in (
        "--max-restarts=7",
        '--ft-rank_section_timeouts="setup:600,step:180"',
        "rank_out_of_section_timeout=300",
    ):
        assert line in done.stdout, done.stderr
    done = rendered(text=HEAD + TRAIN.replace("torchrun", "torchrun --max-restarts 3"))
    assert "--max-restarts=3)\n" in done.stdout


def test_a_heterogeneous_job_is_refused_before_anything_is_asked(rendered):
    done = rendered(text=HEAD.replace("--nodes", "-N") + "#SBATCH hetjob\n#SBATCH -N 1\n" + TRAIN)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "found a heterogeneous job" in done.stderr
    for options in ("--het-group=0", "--pack-group 0,1"):
        done = rendered(text=HEAD + TRAIN.replace("srun", f"srun {options}", 1))
        assert done.returncode == 2 and "found a heterogeneous job" in done.stderr, (options, done.stderr)


def test_no_script_is_said_to_be_in_between_where_there_is_none(rendered):
    """A command in a container stands for itself, and a script before the training does not start it."""
    command = "CMD='python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192'\n"
    start = "srun ./check_nodes.sh\nsrun singularity exec --nv /images/x.sif $CMD\n"
    done = rendered(text=HEAD + command + start)
    assert "    /images/x.sif\n" in done.stdout and "left out: srun singularity" not in done.stderr, done.stderr
    assert "left out: srun ./check_nodes.sh (train.sbatch:17): the job runs no command but the training" in done.stderr


def test_the_users_own_folder_is_carried_into_the_job(rendered):
    done = rendered(text=HEAD + TRAIN.replace("8192", '8192 --save "$HOME/ck/$USER"'))
    assert """    --save "${HOME}"/ck/"${USER}"\n""" in done.stdout, done.stderr


WORDS = (
    "account=proj partition=batch nodes=4 gpus_per_node=8 gpu_type=h100 exclude=n7,n8 cpus_per_task=14 time=04:00:00 "
    "array_range=0-9%1 signal=900 log_file=logs/%x-%A_%a.log --comment=long-context --mail-type=FAIL exclusive=True "
    "--mpi=pmix container_image=nvcr.io#nvidia/nemo:25.09 workdir=/opt/megatron-lm "
    "HF_HOME NCCL_IB_HCA PYTORCH_CUDA_ALLOC_CONF BUILD MASTER_ADDR --signal=TERM@900 --quiet "
    "--num-layers --hidden-size --num-attention-heads --context-parallel-size --seq-length --exit-signal-handler"
).split()
COMMANDS = (
    *("module purge", "module load cuda/12.8 nccl", "source /envs/train/bin/activate", "ulimit -n 65536"),
    "pip install -e .",
)


def fates(text):
    """Each row of the table as (what became of it, the rest)."""
    return [(row[:9].strip(), row[11:]) for row in text.splitlines()]


def test_every_word_of_a_script_is_in_the_table_and_became_what_it_says(rendered):
    """Both ways: what is carried is in the script, what is left out is not, and nothing is missing."""
    rows, script = fates(rendered("--words").stdout), rendered().stdout
    for word in (*WORDS, *COMMANDS):
        assert any(word in rest for _, rest in rows), word
    for fate, rest in rows:
        word = rest.split("  ")[0].strip()
        value = word.rpartition("=")[2] if "=" in word else word.removeprefix("export ")
        if fate == "left out":
            assert word not in script, rest
        elif fate == "carried" and value != "True":
            assert value in script or value in ("modules", "env", "mounts"), rest
    assert {fate for fate, _ in rows} == {"carried", "rewritten", "left out"}


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["--partition", "other"], ("rewritten", "partition=batch", "--partition overrides it")),
        (["--env", "HF_HOME=/x"], ("rewritten", "export HF_HOME", "--env overrides it")),
        (
            ["--target", "jobset", "--mounts", "/shared", "--logs", "/shared/l"],
            ("left out", "partition=batch", "Slurm alone has partitions"),
        ),
    ],
)
def test_an_option_and_a_target_change_what_became_of_a_word(rendered, words, row):
    without_array = HEAD.replace("#SBATCH --array=0-9%1\n", "")
    done = rendered(*words, "--words", text=without_array + BODY)
    found = [(fate, rest) for fate, rest in fates(done.stdout) if rest.startswith(f"{row[1]} ")]
    assert len(found) == 1 and found[0][0] == row[0] and found[0][1].endswith(row[2]), done.stderr


def test_a_variable_from_outside_is_carried_and_must_be_there(rendered, tmp_path):
    """Neither its value nor a guess is written into the script: the shell that submits the job has it."""
    words = 'srun python pretrain_gpt.py --context-parallel-size 2 --save "$WORKSPACE/x" --wandb-key $WANDB_KEY\n'
    done = rendered("-o", "job.sbatch", text=HEAD + words)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    assert '--save "${WORKSPACE}"/x' in script and "--wandb-key $WANDB_KEY\n" in script, "quoted as the launch has it"
    begin = script.index("for name in WANDB_KEY WORKSPACE; do")
    guard = script[begin : script.index("done\n", begin) + 5]
    for environment, code in (({"WORKSPACE": "/w", "WANDB_KEY": "k"}, 0), ({"WORKSPACE": "/w"}, 2)):
        ran = subprocess.run(["bash", "-c", guard], env=environment, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr.count("\n")) == (code, 1 if code else 0)
    assert "found no variable WANDB_KEY" in ran.stderr


def test_a_variable_named_like_one_of_the_job_is_still_from_outside(rendered):
    """A number makes it the job's own: `launch_output_1` is what a command prints."""
    words = "srun python pretrain_gpt.py --context-parallel-size 2 --save $launch_output_dir --seq-length 8192\n"
    options = ["--target", "jobset", "--container-image", "x", "--mounts", "/ck", "--logs", "/ck/l"]
    done = rendered(*options, text=HEAD.replace("#SBATCH --array=0-9%1\n", "") + words)
    assert "state it with --env launch_output_dir=VALUE" in done.stderr
    assert "for name in launch_output_dir; do" in rendered(text=HEAD + words).stdout


def test_a_date_in_a_word_is_taken_once_as_the_job_starts(rendered):
    """As the script does, which keeps it in a variable."""
    names = "STAMP=$(date '+%y-%m-%d_%-H:%M:%S')\nDAY=`date -u +%F`\n"
    words = '--wandb-exp-name $STAMP --save "/ck/$DAY-$STAMP"'
    done = rendered(text=HEAD + names + TRAIN.replace("8192", f"8192 {words}"))
    assert done.returncode in (0, 1), done.stderr
    begin = done.stdout.index("launch_time=")
    array = done.stdout[begin : done.stdout.index("\n)\n", begin) + 3]
    ran = subprocess.run(["bash", "-c", f"{array}printf '%s\\n' \"${{launch[@]}}\""], capture_output=True, text=True)
    name, folder = ran.stdout.split("--wandb-exp-name\n")[1].split("\n--save\n")
    assert re.fullmatch(r"\d\d-\d\d-\d\d_\d\d?:\d\d:\d\d", name), ran.stderr
    assert re.fullmatch(rf"/ck/20\d\d-\d\d-\d\d-{name}\n", folder)


def test_a_checkpoint_folder_that_each_attempt_names_anew_is_refused_with_requeue(rendered):
    """An attempt after the first would find nothing in its own folder, and train from the first step again."""
    launch = HEAD + TRAIN.replace("8192", '8192 --save "/ck/$(date +%F)" --load "/ck/$(date +%F)"')
    chosen = 'S=$(mktemp -d)\nif [ -d "$S" ]; then A=$S/a; else A=$S/b; fi\n' + TRAIN.replace(
        "8192", '8192 --save "$A"'
    )
    for words, text in (([], launch), (["--checkpoint-dir", "/ck"], launch), ([], HEAD + chosen)):
        done = rendered("--requeue", "2", *words, text=text)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "found requeue with a checkpoint folder that each attempt names anew" in done.stderr
    assert rendered(text=launch).returncode in (0, 1)
    launch = HEAD + TRAIN.replace("8192", '8192 --save /ck --wandb-exp-name "$(date +%F)"')
    assert rendered("--requeue", "2", text=launch).returncode in (0, 1)
    launch = HEAD + TRAIN.replace("8192", '8192 --save "$RUNS/$(ls /data/date)" --wandb-exp-name "$(date +%F)"')
    assert rendered("--requeue", "2", text=launch).returncode in (0, 1)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (
            'SIZE="${1:?which}"\ncase $SIZE in 8b | 70b) TP=8 ;; *) TP=4 ;; esac\n',
            r"by \$1\); .*with --args 'FIRST SECOND' \(\$1 is one of 8b, 70b\)",
        ),
        ("if [ $SIZE = 8b ]; then TP=8; else TP=4; fi\n", "state SIZE with --assume env.SIZE=VALUE"),
    ],
)
def test_a_word_that_a_condition_chooses_is_asked_for_by_what_decides_it(rendered, before, said):
    launch = HEAD + before + TRAIN.replace("8192", "8192 --tensor-model-parallel-size $TP")
    done = rendered(text=launch)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and re.search(said, done.stderr), done.stderr
    words = ["--assume", "env.SIZE=8b"] if "env" in said else ["--args", "8b"]
    assert "--tensor-model-parallel-size 8\n" in rendered(*words, text=launch).stdout


def test_a_program_that_does_not_train_is_named(rendered):
    text = HEAD + TRAIN.replace("pretrain_gpt", "examples/inference/gpt_static_inference")
    assert "note: gpt_static_inference.py seems not to train: " in rendered(text=text).stderr
    assert "seems not" not in rendered(text=HEAD + TRAIN).stderr


def test_a_script_without_a_time_limit_is_rendered_without_one(rendered):
    done = rendered(text=HEAD.replace("#SBATCH --time=04:00:00\n", "") + TRAIN)
    assert done.returncode in (0, 1) and "--time" not in done.stdout and "#SBATCH --signal=B:USR1@900" in done.stdout
    assert (
        "note: no time limit is stated, so the partition's holds; the job saves 900 s before that limit" in done.stderr
    )
    done = rendered("--in-allocation", text="#SBATCH -N 4\n" + TRAIN)
    assert done.returncode in (0, 1) and "time limit" not in done.stderr, done.stderr


@pytest.mark.parametrize("start", ["srun", "torchrun", "ft_launcher"])
def test_the_job_of_a_minimal_launch_is_short_and_starts_its_container_once(rendered, start):
    launch = "#SBATCH -N 2 --ntasks-per-node=8 --gpus-per-node=8 --time=04:00:00\nsrun python pretrain_gpt.py"
    words = "--context-parallel-size 2 --seq-length 8192 --save /ckpt --exit-signal-handler"
    script = rendered("--start", start, text=f"#!/bin/bash\n{launch} {words}\n").stdout
    assert 60 < script.count("\n") <= 110
    image = ["--container-runtime", "pyxis", "--container-image", "nemo:25.09"]
    script = rendered("--start", start, *image, text=f"#!/bin/bash\n{launch} {words}\n").stdout
    assert len(re.findall(r"\bsrun\b.*\$\{container", script)) == script.count('"${container[@]}"') == 1


@pytest.mark.parametrize(
    "start", ["srun ${CMD[*]}", 'srun "${CMD[@]}" > out.log 2>&1', "module load nccl; srun ${CMD[@]} &"]
)
def test_a_training_command_in_a_variable_is_not_left_out(rendered, start):
    command = "CMD=(python pretrain_gpt.py --context-parallel-size 2 --seq-length 8192)\npip install -e .\n"
    done = rendered(text=f"{HEAD}{command}{start}\n")
    assert done.returncode in (0, 1), done.stderr
    assert "left out: pip install" in done.stderr and "left out: srun" not in done.stderr


def test_a_path_from_the_users_home_is_one_in_the_job_too_unless_the_tilde_is_quoted(rendered):
    words = 'D=~/ck Q="~/q"\nexport HF_HOME=~/hf\n' + TRAIN.replace(
        "8192", '8192 --save ~/a,b --load $D --data-cache-path "~/c" --tensorboard-dir $Q --data-path x~/y'
    )
    script = rendered(text=HEAD + words.replace("pretrain_gpt.py", "~/mlm/pretrain_gpt.py")).stdout
    for word in ("--save ~/'a,b'", "--load ~/ck", "--data-cache-path '~'/c", "--tensorboard-dir '~'/q"):
        assert f"    {word}\n" in script
    assert "export HF_HOME=~/hf" in script and "~/mlm/pretrain_gpt.py)" in script and "--data-path 'x~/y'" in script
