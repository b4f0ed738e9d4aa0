"""What a launch states about its job reaches the script: an option wins over the site file, that over the launch."""

import subprocess

import pytest

from support.rendering import refused
from support.sbatch import BODY, HEAD

LINES = (HEAD + BODY).splitlines()


def _line(start):
    return next(number for number, line in enumerate(LINES, 1) if line.startswith(start))


def test_the_example_of_the_readme_needs_no_option(hcp, root):
    done = hcp("render", "mlm_hcp.sbatch", cwd=root / "examples")
    assert done.returncode == 0, done.stderr
    for line in ("--nodes=4  # mlm_hcp.sbatch:3", "--time=08:00:00  # mlm_hcp.sbatch:7", "--output=%x-%j.log  # mlm_"):
        assert f"#SBATCH {line}" in done.stdout
    assert "# mlm_hcp.sbatch:17\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n" in done.stdout
    labels = {line.split(":")[1].strip() for line in done.stderr.splitlines()}
    assert labels == {"taken from mlm_hcp.sbatch", "changed"}, "nothing is left out"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("directive", "of"),
    [
        ("account=proj", "#SBATCH --account"),
        ("partition=batch", "#SBATCH -p"),
        ("nodes=4", "#SBATCH -N"),
        ("gpus-per-node=h100:8", "#SBATCH --gpus"),
        ("exclude=n7,n8", "#SBATCH --exclude"),
        ("cpus-per-task=14", "#SBATCH --cpus"),
        ("time=04:00:00", "#SBATCH --time"),
        ("array=0-9%1", "#SBATCH --array"),
        ("signal=B:USR1@900", "#SBATCH --signal"),
        ("output=logs/%x-%A_%a.log", "#SBATCH --output"),
        ("exclusive", "#SBATCH --exclusive"),
    ],
)
def test_a_directive_of_the_launch_is_one_of_the_job_with_its_line(rendered, directive, of):
    assert f"#SBATCH --{directive}  # train.sbatch:{_line(of)}\n" in rendered().stdout


def test_options_that_the_job_knows_nothing_of_pass_through(rendered):
    script = rendered().stdout
    assert "#SBATCH --comment=long-context  # " in script and "#SBATCH --mail-type=FAIL  # " in script
    assert "options=(--kill-on-bad-exit=1 --wait=900 --chdir=/opt/megatron-lm --mpi=pmix)\n" in script


def test_modules_environment_folder_and_container_are_those_of_the_launch(rendered):
    script = rendered().stdout
    for line in ("module purge", "module load cuda/12.8 nccl", "source /envs/train/bin/activate", "ulimit -n 65536"):
        assert f"\n{line} # train.sbatch:{_line(line)}\n" in script
    exports = f"# train.sbatch:{_line('export HF')}\n"
    assert f"{exports}export HF_HOME=/shared/hf\n" in script and f"{exports}export NCCL_IB_HCA=mlx5\n" in script
    assert "--container-image=nvcr.io#nvidia/nemo:25.09" in script and "/shared:/shared,/opt:/opt" in script
    assert "--no-container-mount-home" not in script, "the launch mounts the home folder"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("changed", "--signal=TERM@900 (train.sbatch:11): B:USR1@900"),
        ("changed", "MASTER_ADDR"),
        ("left out", "export BUILD (train.sbatch): the output of a command in line"),
        ("left out", "pip install -e . (train.sbatch:"),
        ("left out", "srun --quiet (train.sbatch:"),
    ],
)
def test_nothing_is_changed_or_left_out_in_silence(rendered, label, words):
    said = [line for line in rendered().stderr.splitlines() if line.startswith(f"hcp render: {label}: ")]
    assert any(words in line for line in said), said


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--rdzv_backend c10d --rdzv-endpoint=n0:29500 --rdzv_id 7",
            "changed: --rdzv-backend, --rdzv-endpoint, --rdzv-id (train.sbatch:LINE): the job sets the rendezvous",
        ),
        ("--master_addr $(hostname) --master_port 6000", "changed: --master-port, --master-addr (train.sbatch:LINE): "),
        ("--tee 3 --log_dir out", "left out: --log-dir=out (train.sbatch:LINE)"),
    ],
)
def test_options_of_torchrun_that_the_job_does_not_take_are_listed(rendered, options, said):
    start = f"torchrun --nnodes 4 --nproc_per_node 8 {options} pretrain_gpt.py --seq-length 8192\n"
    done = rendered(text=HEAD + start)
    assert f"hcp render: {said.replace('LINE', str(HEAD.count(chr(10)) + 1))}" in done.stderr
    assert "nnodes" not in done.stderr.replace("torchrun --nnodes", ""), "the job has them"


def test_mounts_are_separated_by_commas_as_for_pyxis(rendered):
    done = rendered("--mounts", "/lustre,/data:/d", "--mounts", "/opt")
    assert "\nmounts=/lustre:/lustre,/data:/d,/opt:/opt,$PWD:$PWD\n" in done.stdout.replace("'", ""), done.stderr


@pytest.mark.slow
def test_an_option_wins_over_the_site_file_and_that_over_the_launch(rendered):
    site = ("site.yaml", "account: site\npartition: site\nenv: {HF_HOME: /site/hf, NCCL_IB_HCA: site}\n")
    done = rendered("--site", "site.yaml", "--account", "mine", "--env", "HF_HOME=/mine", files=[site])
    for line in ("--account=mine  # --account", "--partition=site  # site.yaml", "--time=04:00:00  # train.sbatch:9"):
        assert f"#SBATCH {line}\n" in done.stdout
    assert "# --env\nexport HF_HOME=/mine\n" in done.stdout and "# site.yaml\nexport NCCL_IB_HCA=site\n" in done.stdout
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in done.stdout
    assert "hcp render: changed: account=proj (train.sbatch:2): --account overrides it\n" in done.stderr


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("head", "directive"),
    [
        ("--gres=gpu:a100:4", "gres=gpu:a100:4"),
        ("--gres=gpu:4", "gres=gpu:4"),
        ("--gpus-per-node=4", "gpus-per-node=4"),
        ("--gpus=8", "gpus-per-node=4"),
    ],
)
def test_gpus_are_asked_for_as_the_launch_does(rendered, head, directive):
    text = f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH -t 30\n#SBATCH {head}\n"
    done = rendered(
        "--signal",
        "60",
        "--arch",
        "sm90",
        text=text + LINES[-3].split(" --mpi")[0] + " \\\n" + "\n".join(LINES[-2:]) + "\n",
    )
    assert f"#SBATCH --{directive}  # " in done.stdout, done.stderr


def test_typed_gpus_and_further_options_are_options_of_the_command_too(hcp):
    words = "render --start srun --nodes 2 --time 30 --signal 60 --arch sm90 --program x.py".split()
    done = hcp(
        *words,
        "--gpus-per-node",
        "h100:8",
        "--sbatch",
        "--comment=x",
        "--srun",
        "--mpi=pmix",
        "--",
        "--seq-length",
        "8",
    )
    assert "#SBATCH --gpus-per-node=h100:8  # --gpus-per-node\n" in done.stdout, done.stderr
    assert "#SBATCH --comment=x  # --sbatch\n" in done.stdout and "--wait=900 --mpi=pmix)\n" in done.stdout
    said = refused(hcp, *words[1:], "--gpus-per-node", "8", "--sbatch", "--nodes=3", "--", "--seq-length", "8")
    assert "--nodes=3, which the job sets itself" in said
    said = refused(hcp, *words[1:], "--gpus-per-node", "8", "--sbatch", "--comment=a b", "--", "--seq-length", "8")
    assert "plain characters" in said


def test_a_training_command_in_a_variable_is_not_said_to_be_left_out(rendered):
    text = (HEAD + BODY).replace("srun --mpi", "RUN=srun\n$RUN --mpi").replace("pip install", "$PIP install")
    said = rendered(text=text).stderr
    assert "left out: $PIP install -e . (" in said and "$RUN" not in said


def test_an_image_that_is_empty_is_no_container(rendered):
    done = rendered(text=(HEAD + BODY).replace("=nvcr.io#nvidia/nemo:25.09", '=""'))
    assert (
        done.returncode == 0
        and "left out: container_image= (train.sbatch:27): found ''" in done.stderr
        and "container=" not in done.stdout
    )


def test_a_launch_that_names_no_starter_asks_for_one(hcp):
    assert "start (" in refused(hcp, "--nodes", "2", "--", "--seq-length", "8")


MPI = "mpirun -np {ranks} --npernode 8 -bind-to none -x SEED=3 {starts}\n"
WORDS = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 8192 --seed $SEED"


@pytest.mark.parametrize("ranks", ["32", "$SLURM_NTASKS"])
def test_ranks_that_mpirun_starts_are_started_by_srun(rendered, ranks):
    train = ("train.sh", f"python pretrain_gpt.py {WORDS}\n")
    done = rendered(text=HEAD + MPI.format(ranks=ranks, starts="bash train.sh"), files=[train])
    assert done.returncode in (0, 1), done.stderr
    assert (
        "#SBATCH --ntasks-per-node=8" in done.stdout and "    --seed 3\n" in done.stdout and "start=()" in done.stdout
    )
    assert "changed: mpirun (train.sbatch): srun starts the ranks" in done.stderr
    assert "the job runs no command but the training" not in done.stderr


@pytest.mark.parametrize(
    ("ranks", "words", "said"),
    [
        ("16", WORDS, "start (what starts the ranks)"),
        ("32", f"{WORDS} --local-rank $OMPI_COMM_WORLD_LOCAL_RANK", "is set by MPI in each rank"),
    ],
)
def test_what_srun_would_start_otherwise_than_mpirun_is_asked_for(rendered, ranks, words, said):
    text = HEAD + MPI.format(ranks=ranks, starts=f"python pretrain_gpt.py {words}").replace("--npernode 8 ", "")
    done = rendered(text=text)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.slow
def test_a_script_with_everything_is_one_that_bash_and_hcp_check_can_read(rendered, hcp, tmp_path):
    assert rendered("-o", "job.sbatch").returncode == 0
    assert subprocess.run(["bash", "-n", "job.sbatch"], cwd=tmp_path, capture_output=True).stderr == b""
    done = hcp("check", "job.sbatch", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stdout + done.stderr


def test_of_several_training_commands_it_is_said_which_one_the_job_runs(rendered):
    text = (HEAD + BODY).replace("--context-parallel-size 2", "--context-parallel-size $CP")
    command = text[text.index("srun --mpi") :]
    loop = text.replace(command, f"for CP in 2 4; do\n{command}done\n")
    said = rendered(text=loop)
    assert said.returncode == 0 and "--context-parallel-size 4" in said.stdout
    assert "note: 2 training commands; this is the last that says how the model is split" in said.stderr


@pytest.mark.parametrize(("allocated", "are_taken"), [(1, True), (2, False)])
def test_the_nodes_of_slurm_are_those_of_torchrun_without_nnodes_if_they_are_one(rendered, allocated, are_taken):
    text = (HEAD + BODY).replace("-N 4", f"-N {allocated}").replace("python pre", "torchrun --nproc-per-node 8 pre")
    done = rendered(text=text)
    assert (f"#SBATCH --nodes={allocated}  # train.sbatch:" in done.stdout) is are_taken
    assert are_taken or "not stated: nodes" in done.stderr


def test_a_script_that_asks_for_no_nodes_gets_one_as_from_slurm_if_its_launcher_has_one_by_default(rendered):
    torchrun = (HEAD + BODY).replace("#SBATCH -N 4\n", "").replace("python pre", "torchrun --nproc-per-node 8 pre")
    done = rendered(text=torchrun)
    assert "#SBATCH --nodes=1  # train.sbatch" in done.stdout, done.stderr
    assert "changed: #SBATCH lines without nodes (train.sbatch): 1 node, as Slurm's default is" in done.stderr
    for text in (
        *(
            torchrun.replace("--gpus-per-node=h100:8", option).replace("#SBATCH --ntasks-per-node=8\n", "")
            for option in ("--ntasks=16", "--gpus=16", "-w n[1-2]")
        ),
        torchrun.replace("torchrun", "torchrun --nnodes $N"),
    ):
        assert "not stated: nodes" in rendered(text=text).stderr
    assert "#SBATCH --nodes=1 " in rendered(text=torchrun.replace("--gpus-per-node=h100:8", "--gpus=8")).stdout
    without = "".join(line for line in torchrun.splitlines(True) if not line.startswith("#SBATCH"))
    assert "not stated: nodes" in rendered(text=without).stderr


def test_a_time_limit_of_zero_is_none_as_for_slurm(rendered):
    done = rendered(text=(HEAD + BODY).replace("--time=04:00:00", "--time=00:00:00"))
    assert done.returncode == 0 and "#SBATCH --time=00:00:00  # " in done.stdout


def test_a_sourced_file_that_may_set_the_words_of_the_launch_is_asked_for_by_its_name(rendered):
    text = (HEAD + BODY).replace("ulimit", "source models/m.sh\nulimit").replace("--num-layers 32", "${MODEL_ARGS[@]}")
    assert "; name models/m.sh with --source FILE, or give" in rendered(text=text).stderr
    assert rendered("--source", "m.sh", text=text, files=[("m.sh", "MODEL_ARGS=(--num-layers 32)\n")]).returncode == 0


def test_another_number_of_gpus_than_the_script_asks_for_is_said(rendered):
    """The job has those that the launch uses; the others of its #SBATCH line are not dropped silently."""
    launch = "srun torchrun --nnodes=4 --nproc-per-node=2 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"
    done = rendered(text=HEAD + launch)
    line = _line("#SBATCH --gpus")
    assert f"changed: --gpus-per-node=h100:8 (train.sbatch:{line}): 2, as many as the launch uses" in done.stderr
    same = rendered(text=HEAD + launch.replace("=2 p", "=8 p"))
    assert "as many as" not in same.stderr


RAY_SUB = ("ray.sub", "#!/bin/bash\nGPUS_PER_NODE=${GPUS_PER_NODE:-4}\n")


@pytest.mark.parametrize(
    ("before", "options", "expected"),
    [
        ("", "--nodes=3", 4),
        ("export GPUS_PER_NODE=6\n", "--nodes=3", 6),
        ("GPUS_PER_NODE=6 ", "--nodes=3", 6),
        ("export GPUS_PER_NODE=6\n", "--nodes=3 --gres=gpu:8", 8),
    ],
)
def test_the_sizes_of_rays_cluster_are_those_of_the_allocation_and_of_ray_sub(rendered, before, options, expected):
    """The configuration, which would state them, is not there."""
    text = 'export COMMAND="python examples/run_grpo.py --config a.yaml checkpointing.checkpoint_dir=/ck"\n'
    done = rendered(text=f"{text}{before}sbatch {options} --account=a ray.sub\n", files=[RAY_SUB])
    assert "#SBATCH --nodes=3  # " in done.stdout and f'"gpus_per_node": {expected},' in done.stdout, done.stderr


def test_slimes_cluster_is_the_allocation(rendered):
    words = (
        "--actor-num-nodes 1 --actor-num-gpus-per-node 4 --tensor-model-parallel-size 2 --hf-checkpoint /m --save /ck"
    )
    text = f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:h100:4\nray job submit -- python3 train.py {words}\n"
    done = rendered(text=text)
    assert "#SBATCH --nodes=2  # train.sbatch:2" in done.stdout and '"gpus_per_node": 4,' in done.stdout, done.stderr
