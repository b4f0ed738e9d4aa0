"""Words that only the job can know are carried as its script's own commands and conditions, or asked for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.launch.fact import LAUNCH_FOLDER, LAUNCH_TIME, OF_THE_JOB
from support.job_words import TRAIN, launch_of
from support.sbatch import HEAD

COMMANDS_IN_WORDS = """\
DATA=/data; FOLDERS=("$DATA/a b" $DATA/c)
NAMES=($(printf '%s_text\\n' "${FOLDERS[@]}" | tr ' ' _ | sort -r)) # not followed
ID=$(mktemp -u run-XXXX)
"""


def test_what_a_command_prints_is_asked_for_once_in_the_job(rendered, tmp_path):
    """The command as it is written, with the variables that it reads, and one output for all words that hold it."""
    words = '--data-path ${NAMES[@]} --wandb-exp-name "$ID" --tensorboard-dir "/tb/$ID"'
    done = rendered("-o", "job.sbatch", text=HEAD + COMMANDS_IN_WORDS + TRAIN.replace("8192", f"8192 {words}"))
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    launch = launch_of(script)
    assert launch[launch.index("--data-path") + 1 :][:2] == ["/data/c_text", "/data/a_b_text"]
    name = launch[launch.index("--wandb-exp-name") + 1]
    assert re.fullmatch("run-....", name) and launch[launch.index("--tensorboard-dir") + 1] == f"/tb/{name}"
    assert "changed: $(set +euo pipefail; " in done.stderr and "as it starts" in done.stderr


def test_a_command_runs_where_the_script_runs_it_and_with_what_the_script_exports(rendered, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text").touch()
    before = f"cd {tmp_path}/data\nexport KIND=b\nFOUND=$(ls)-$(printenv KIND; : $KIND)\n"
    done = rendered("-o", "job.sbatch", text=HEAD + before + TRAIN.replace("8192", '8192 --wandb-exp-name "$FOUND"'))
    assert done.returncode in (0, 1), done.stderr
    launch = launch_of((tmp_path / "job.sbatch").read_text(), {"PATH": "/bin:/usr/bin"}, cwd="/")
    assert launch[launch.index("--wandb-exp-name") + 1] == "text-b"


IF_THERE_IS_A_CHECKPOINT = """\
SAVE=ck SEED=1
if [ -f "$SAVE/latest.txt" ]; then LOAD="--load $SAVE --finetune"; else LOAD=""; fi
[ -n "$WANDB_NAME" ] && EXTRA="--wandb-exp-name $WANDB_NAME"
[ -d "$SAVE" ] || SEED=7
"""


def test_a_choice_that_only_the_job_can_make_is_made_by_its_own_condition(rendered, tmp_path):
    """Neither branch is a guess: the job asks what the script asks, and each word is that of the branch it takes."""
    words = TRAIN.replace("8192", "8192 $LOAD $EXTRA --seed $SEED")
    text = HEAD + IF_THERE_IS_A_CHECKPOINT + words
    done = rendered("-o", "job.sbatch", text=text)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    assert launch_of(script, {"PATH": "/bin:/usr/bin"}, cwd=tmp_path)[-2:] == ["--seed", "7"]
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "latest.txt").touch()
    environment = {"PATH": "/bin:/usr/bin", "WANDB_NAME": "n"}
    wanted = ["--load", "ck", "--finetune", "--wandb-exp-name", "n", "--seed", "1"]
    assert launch_of(script, environment, cwd=tmp_path)[-7:] == wanted


def test_a_condition_on_variables_alone_is_asked_wherever_the_script_asks_it(rendered, tmp_path):
    """It has the same answer in a container as in the job's script; a file may be there or not."""
    inner = 'if [ -n "$RUN" ]; then A="--wandb-exp-name $RUN"; fi\n'
    inner += 'torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py $A "$@"\n'
    (tmp_path / "run.sh").write_text(inner)
    text = HEAD + "srun --container-image=x:1 bash run.sh --context-parallel-size 2 --seq-length 8192\n"
    done = rendered("-o", "job.sbatch", text=text)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    assert launch_of(script, {"PATH": "/bin:/usr/bin", "RUN": "n"})[:2] == ["--wandb-exp-name", "n"]
    assert launch_of(script, {"PATH": "/bin:/usr/bin"})[0] == "--context-parallel-size"
    for other in (inner.replace("-n", "-f"), inner.replace('-n "$RUN"', '"$(cat f)" = "$RUN"')):
        (tmp_path / "run.sh").write_text(other)
        done = rendered(text=text)
        assert done.returncode == 2 and "depends on the `if`" in done.stderr, done.stderr


SEEDED = "python pretrain_gpt.py --context-parallel-size 2 --seed $A\n"


@pytest.mark.parametrize(
    "text",
    [
        "bash -c 'python pretrain_gpt.py --context-parallel-size 2 --seed $(nvidia-smi -L | wc -l)'\n",  # on every node
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(cat $SLURM_NODEID)\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(cat $1)\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(named)\n",
        "python pretrain_gpt.py --context-parallel-size 2 $(cat list)\n",  # any options
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(cat '\x1b[2J')\n",
        'if [ -n "$nodes" ]; then A=x; else A=y; fi\npython pretrain_gpt.py --context-parallel-size 2 --seed $A\n',
        "[ -f a ] && A=x\npython pretrain_gpt.py --context-parallel-size 2 --seed ${A%y}\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path `cat \\`ls\\``\n",
        "shopt -s globstar\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(ls /d/**/*.bin)\n",
        "set -f\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(ls /data/[a])\n",
        "set -e -o noglob\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(ls /data/[a])\n",
        *(
            f"n=0\nif {test}; then A=x; else A=y; fi\npython pretrain_gpt.py --context-parallel-size 2 --seed $A\n"
            for test in ("((n++ == 0 && y > 1))", '[ -f "$((n += 1))" ]', "((n <<= y))", '[ -f "${m:=$y}" ]')
        ),
        *(
            f'f() {{ B=${{1:-{sets}}}; }}\nn=1\nf "$1"\n' + SEEDED.replace("$A", "$n")
            for sets in ("$((n++))", "${m:=$((n = 3))}")
        ),
        "IFS=,\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(cat list)\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(ls $BASH_SOURCE)\n",
        "API_TOKEN=abc\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(get $API_TOKEN)\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(ls ${!WHAT})\n",
        "python pretrain_gpt.py --context-parallel-size 2 --data-path $(cat x | named)\n",
        "if grep -q x f; then A=x; else A=y; fi\npython pretrain_gpt.py --context-parallel-size 2 --seed $A\n",
        "A=1\nif [ -f a ]; then A=1; elif [ -f b ]; then A=2; fi\n" + SEEDED,
        "A=z\n[ -f a ] || [ -f b ] || A=x\npython pretrain_gpt.py --context-parallel-size 2 --seed $A\n",
        "A=z\nfor i in 1; do [ -f a ] && break; A=x; done\n" + SEEDED,
        "if ((port > 1)); then A=x; else A=y; fi\npython pretrain_gpt.py --context-parallel-size 2 --seed $A\n",
        "python pretrain_gpt.py --context-parallel-size 2 --wandb-exp-name $name --save /x/$port\n",
        "source /shared/env.sh\npython pretrain_gpt.py --context-parallel-size 2 --data-path $(ls $DATA)\n",
        'A=()\n[ -n "$N" ] && A+=(--wandb-exp-name "$N")\npython pretrain_gpt.py --context-parallel-size 2 "${A[@]}"\n',
    ],
)
def test_a_command_that_another_shell_would_run_otherwise_is_asked_for(rendered, text):
    done = rendered(
        text=f"{HEAD}named() {{ echo $RANDOM; }}\n" + re.sub("^(bash|python)", r"srun \1", text, flags=re.M)
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "an argument of the training command is not known" in done.stderr


def test_a_pattern_among_the_words_still_stands_for_files(rendered, tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_text("")
    words = f"8192 --data-path {tmp_path}/*.bin --name '{tmp_path}/*.bin'"
    done = rendered(text=HEAD + TRAIN.replace("8192", words))
    (line,) = (line for line in done.stdout.splitlines() if "--data-path" in line)
    (quoted,) = (line for line in done.stdout.splitlines() if "--name" in line)
    found = subprocess.run(["bash", "-c", f"echo {line}; echo {quoted}"], capture_output=True, text=True).stdout
    assert found == f"--data-path {tmp_path}/a.bin {tmp_path}/b.bin\n--name {tmp_path}/*.bin\n"


def test_a_size_that_only_the_job_has_is_asked_for_with_all_others(rendered):
    """The job's checks place the ranks by it; a path beside it is carried."""
    sizes = "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} --save $SAVE"
    text = HEAD + TRAIN.replace("8192", f"8192 {sizes}")
    done = rendered(text=text)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "state TP with --assume env.TP=VALUE, and PP likewise" in done.stderr
    done = rendered("--assume", "env.TP=2", "--assume", "env.PP=4", text=text)
    assert done.returncode in (0, 1) and '"--tp=2", "--cp=2", "--pp=4"' in done.stdout, done.stderr


def test_an_argument_of_the_script_is_one_of_the_job(rendered, tmp_path):
    """As the script takes it from sbatch; what would need its value before the job runs asks for it."""
    text = HEAD + "DATA=$3\nsrun python pretrain_gpt.py --context-parallel-size 2 --data-path $DATA --save /ck/${1}\n"
    done = rendered("-o", "job.sbatch", text=text)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    assert "--data-path ${3}\n" in script and '--save /ck/"${1}"\n' in script
    guard = next(line for line in script.splitlines() if line.startswith("(($# >= 3))"))
    for arguments, code in ((["a", "b", "c"], 0), (["a"], 2)):
        ran = subprocess.run(["bash", "-c", guard, "job", *arguments], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr.count("\n")) == (code, 1 if code else 0)
    for words in (["--submit"], ["--target", "jobset", "--container-image", "x", "--mounts", "/ck", "--logs", "/ck/l"]):
        done = rendered(*words, text=text.replace("#SBATCH --array=0-9%1\n", ""))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert "--args 'FIRST SECOND'" in done.stderr
    assert "--data-path c\n" in rendered("--args", "a b c", text=text).stdout
    shifted = rendered(text=text.replace("DATA=$3", "shift\nDATA=$2"))
    assert shifted.returncode == 2 and "give the script's arguments with --args" in shifted.stderr


@pytest.mark.parametrize(
    "words",
    ["--save $ONE", "--save $ONE --load $TWO", "--save $1", '--data-path $(ls "$FROM" | sort)', "--save $ONE $MORE"],
)
def test_a_script_that_completes_words_has_nothing_for_shellcheck_to_say(rendered, tmp_path, words):
    before = 'FROM=/data\nif [ -d ck ]; then MORE="--finetune --load ck"; else MORE=""; fi\n'
    done = rendered("-o", "job.sbatch", text=HEAD + before + TRAIN.replace("8192", f"8192 {words}"))
    assert done.returncode in (0, 1), done.stderr
    program = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    checked = subprocess.run([program, "--norc", tmp_path / "job.sbatch"], capture_output=True, text=True)
    assert not checked.returncode, checked.stdout


def test_a_condition_on_the_rank_is_not_asked_once_for_all(rendered, tmp_path):
    inner = 'if [ "$VARIABLE" = 0 ]; then A="--log-throughput"; fi\n'
    inner += 'torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py $A "$@"\n'
    of_tasks = ("OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    for name, is_asked in (*((name, True) for name in of_tasks), ("LORA_RANK", False)):
        (tmp_path / "run.sh").write_text(inner.replace("VARIABLE", name))
        done = rendered(text=HEAD + "srun bash run.sh --context-parallel-size 2 --seq-length 8192\n")
        assert done.returncode in ((2,) if is_asked else (0, 1)), done.stderr
        assert ("an argument of the training command is not known" in done.stderr) == is_asked, name


def test_a_list_that_a_command_reads_has_the_words_that_its_script_gives_it(rendered, tmp_path):
    """What is not quoted there may be none, or several; a blank at the end may be a file's."""
    before = 'ALL=($SOME "$ONE")\nDATA=$(printf "<%s>" "${ALL[@]}" end\\ )\n'
    done = rendered("-o", "job.sbatch", text=HEAD + before + TRAIN.replace("8192", '8192 --data-path "$DATA"'))
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    path = {"PATH": "/bin:/usr/bin"}
    assert launch_of(script, path)[-1] == "<><end >"
    assert launch_of(script, {**path, "SOME": "a b", "ONE": "c d"})[-1] == "<a><b><c d><end >"


def test_the_variables_of_a_jobs_script_are_all_listed():
    """A launch's word that reads one of them from outside is asked for, not read from the job's script."""
    assigned = re.compile(r"(?:^|[\s;(])(?:for )?([a-z_]+)(?:\+?=| in )", re.M)
    golden = Path(__file__).parent / "golden"
    texts = [re.sub(r"'[^']*'|--[\w-]+=|#.*", "", path.read_text()) for path in golden.glob("*.sbatch")]
    found = {name for text in texts for name in assigned.findall(text)}
    assert found - OF_THE_JOB - {LAUNCH_FOLDER, LAUNCH_TIME} == set()
    assert {"port", "nodes", "name", "attempt"} <= OF_THE_JOB


def test_a_variable_from_outside_stays_any_number_of_words_in_a_text_that_another_shell_gets(rendered, tmp_path):
    words = 'ARGS=(--context-parallel-size 2 --data-path $DATA --seq-length 8192)\nTEXT="${ARGS[@]}"\n'
    start = 'srun bash -c "cd /opt; python pretrain_gpt.py $TEXT"\n'
    done = rendered("-o", "job.sbatch", text=HEAD + words + start)
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    environment = {"PATH": "/bin:/usr/bin", "DATA": "0.5 /a 0.5 /b"}
    begin = script.index("launch=(")
    text = script[begin : script.index("\n)\n", begin)] + "\n)\nprintf '%s\\n' \"${launch[@]}\""
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env=environment)
    assert ran.stdout.split()[2:7] == ["--data-path", "0.5", "/a", "0.5", "/b"]
    amid_a_word = (words + start).replace("--context-parallel-size 2 --data-path ", "").replace("py $", "py --save=x$")
    assert "(--save=x...: DATA is not set in this script)" in rendered(text=HEAD + amid_a_word).stderr


@pytest.mark.parametrize("word", ["$D/x", '"$D/x"', '"$D"/x'])
@pytest.mark.parametrize(("given", "expected"), [(["/a"], "/a/x"), ([], "/default/x"), ([""], "/default/x")])
def test_a_default_of_an_argument_that_another_script_gets_is_chosen_in_the_job(
    rendered, tmp_path, word, given, expected
):
    train = TRAIN.replace("srun ", "").replace("8192", f"8192 --save {word}")
    (tmp_path / "run.sh").write_text(f"D=${{1:-/default}}\n{train}")
    done = rendered("-o", "job.sbatch", text=HEAD + 'srun bash run.sh "$1"\n')
    assert done.returncode in (0, 1), done.stderr
    script = (tmp_path / "job.sbatch").read_text()
    words = script[script.index("# Commands and conditions") : script.index("# ---- the job's own folder")]
    text = f"set -euo pipefail\n{words}printf '%s\\n' \"${{launch[@]}}\""
    ran = subprocess.run(["bash", "-c", text, "bash", *given], capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == expected, ran.stderr


@pytest.mark.parametrize("given", [{}, {"LR": "1e-5"}, {"MIN_LR": "1e-6 --log-progress"}, {"LR": "2", "MIN_LR": "1"}])
def test_texts_that_the_script_puts_together_are_split_as_it_does(rendered, tmp_path, given):
    """`[ … ] && A="$A …"` in a row: each choice holds those before it, with values from outside."""
    before = '[ -n "$LR" ] && MORE="$MORE --lr $LR"\n[ -n "$MIN_LR" ] && MORE="$MORE --min-lr $MIN_LR"\n'
    done = rendered("-o", "job.sbatch", text=HEAD + before + TRAIN.replace("8192", "8192 $MORE"))
    assert done.returncode in (0, 1), done.stderr
    launch = launch_of((tmp_path / "job.sbatch").read_text(), {"PATH": "/bin:/usr/bin", **given})
    ran = subprocess.run(["bash", "-c", f"{before}echo $MORE"], capture_output=True, text=True, env=given)
    assert launch[4:] == ran.stdout.split()


@pytest.mark.parametrize("named", ["HOME", "USER"])
def test_a_variable_that_a_condition_has_to_be_told_does_not_change_the_words_it_chooses(rendered, tmp_path, named):
    """`$A` was set before the script gave the variable another value, which the condition reads."""
    before = f'A=${named}/kept\n{named}={tmp_path}\nif [ -d ${named} ]; then L="--load $A"; else L=--finetune; fi\n'
    done = rendered("-o", "job.sbatch", text=HEAD + before + TRAIN.replace("8192", "8192 $L"))
    assert done.returncode == 2 and "depends on the `if` in line" in done.stderr, done.stderr


def test_a_credential_that_is_still_to_be_filled_in_hides_no_other_variable(rendered, tmp_path):
    """The same placeholder stands for a path, which a command reads: only a credential's text is kept from it."""
    before = "export WANDB_API_KEY={0}\nFOLDER={0}\nFOUND=$(printf '%s' $FOLDER/data)\n: $(true)\n"
    words = TRAIN.replace("8192", '8192 --wandb-exp-name "$(basename $FOLDER/x$FOUND | cat)"')
    done = rendered("-o", "job.sbatch", text=HEAD + before.format("CHANGE_THIS") + words)
    assert done.returncode in (0, 1), done.stderr
    assert "WANDB_API_KEY" not in (tmp_path / "job.sbatch").read_text()
    assert rendered(text=HEAD + before.format("a1b2c3d4e5") + words).returncode == 2
