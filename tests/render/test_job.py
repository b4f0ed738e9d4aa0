"""Rendered scripts: whole-file goldens, shellcheck, and refusal of what cannot be rendered."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
HCP_WORDS = [
    "--tensor-model-parallel-size",
    "2",
    "--context-parallel-size",
    "4",
    "--cp-comm-type",
    "a2a+p2p",
    "--hierarchical-context-parallel-sizes",
    "2",
    "2",
    "--seq-length",
    "131072",
    "--num-layers",
    "32",
    "--hidden-size",
    "4096",
    "--num-attention-heads",
    "32",
    "--group-query-attention",
    "--num-query-groups",
    "8",
    "--no-create-attention-mask-in-dataloader",
    "--save",
    "/ckpt/run",
    "--load",
    "/ckpt/run",
    "--exit-signal-handler",
]
VERL_WORDS = [
    "actor_rollout_ref.actor.strategy=megatron",
    "actor_rollout_ref.actor.megatron.context_parallel_size=2",
    "trainer.default_local_dir=/ckpt/run",
]
SITE = ["--gpus-per-node", "8", "--time", "4:00:00", "--arch", "sm90", "--account", "proj", "--partition", "batch"]

KINDS = {
    "srun": ["--start", "srun", "--nodes", "2", *SITE, "--program", "pretrain_gpt.py", "--", *HCP_WORDS],
    "srun-pyxis": [
        "--start",
        "srun",
        "--nodes",
        "4",
        *SITE,
        "--program",
        "pretrain_gpt.py",
        "--container-runtime",
        "pyxis",
        "--container-image",
        "nvcr.io#nvidia/nemo:25.09",
        "--mounts",
        "/data",
        "--mounts",
        "/ckpt:/ckpt",
        "--container-workdir",
        "/opt/megatron",
        "--requeue",
        "3",
        "--comm-test",
        "--shared",
        "/data",
        "--env",
        "HF_HOME=/data/hf",
        "--logs",
        "logs",
        "--signal",
        "900",
        "--",
        *HCP_WORDS,
    ],
    "torchrun": ["--start", "torchrun", "--nodes", "2", *SITE, "--program", "pretrain_gpt.py", "--", *HCP_WORDS],
    "torchrun-apptainer": [
        "--start",
        "torchrun",
        "--nodes",
        "18",
        *SITE,
        "--program",
        "-m",
        "--program",
        "my.trainer",
        "--container-runtime",
        "apptainer",
        "--container-image",
        "/images/nemo.sif",
        "--mounts",
        "/data",
        "--segment",
        "18",
        "--switches",
        "1@10:00",
        "--requeue",
        "2",
        "--comm-test",
        "--gpus-per-node",
        "4",
        "--arch",
        "sm100",
        "--nvlink-domain",
        "72",
        "--gpu-request",
        "gres",
        "--modules",
        "cuda/12.8",
        "--venv",
        "/envs/train",
        "--",
        *HCP_WORDS,
    ],
    "ft_launcher": [
        "--start",
        "ft_launcher",
        "--nodes",
        "2",
        *SITE,
        "--program",
        "train.py",
        "--requeue",
        "1",
        "--checkpoint-dir",
        "/ckpt/run",
        "--ft-timeouts",
        "setup:3600,step:1200,checkpointing:1800",
        "--launcher",
        "bridge",
        "--",
        "model.tensor_model_parallel_size=2",
        "model.context_parallel_size=2",
        "model.cp_comm_type=a2a",
        "checkpoint.save=/ckpt/run",
    ],
    "ray": ["--start", "ray", "--nodes", "2", *SITE, "--requeue", "1", "--", *VERL_WORDS],
    "verify": ["--start", "verify", "--nodes", "2", *SITE, "hierarchical-context-parallel"],
    "array": [
        "--start",
        "srun",
        "--nodes",
        "2",
        *SITE,
        "--program",
        "pretrain_gpt.py",
        "--array",
        "--seq-length 65536",
        "--array",
        "--seq-length 131072 --recompute-granularity full",
        "--",
        *HCP_WORDS,
    ],
}


_DONE: dict[str, subprocess.CompletedProcess[str]] = {}


@pytest.fixture
def rendered(hcp):
    """`rendered(name)`: what `hcp render` said; each kind is rendered once."""

    def of(name):
        if name not in _DONE:
            _DONE[name] = hcp("render", *KINDS[name])
        return _DONE[name]

    return of


@pytest.mark.parametrize("name", KINDS)
def test_the_script_is_the_golden_one(name, rendered):
    done = rendered(name)
    assert done.returncode == 0, done.stderr
    golden = GOLDEN / f"{name}.sbatch"
    if os.environ.get("HCP_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(done.stdout)
    assert golden.is_file(), f"no golden {golden.name}: HCP_UPDATE_GOLDEN=1 writes it; read it before you commit it"
    assert done.stdout == golden.read_text()


def test_every_golden_belongs_to_a_kind():
    assert {path.stem for path in GOLDEN.glob("*.sbatch")} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_bash_can_parse_it_and_shellcheck_has_nothing_to_say(name, rendered, tmp_path):
    script = tmp_path / "job.sbatch"
    script.write_text(rendered(name).stdout)
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    shellcheck = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    done = subprocess.run([shellcheck, "--norc", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", KINDS)
def test_no_line_is_longer_than_a_screen_and_none_ends_in_blanks(name, rendered):
    for line in rendered(name).stdout.splitlines():
        assert len(line) <= 125 and line == line.rstrip(), line
    assert "\n\n\n" not in rendered(name).stdout


# What is missing or wrong is said in one line.


def _refused(hcp, *words, cwd=None):
    done = hcp("render", *words, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("hcp: ")
    return done.stderr


def test_everything_that_is_missing_is_listed_at_once(hcp):
    said = _refused(hcp, "--start", "srun", "--requeue", "2", "--", "--context-parallel-size", "2")
    for name in ("nodes", "gpus_per_node", "time", "program", "arch", "checkpoint_dir"):
        assert f"{name} (" in said


def test_an_unknown_site_key_is_an_error_with_a_suggestion(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpu_per_node: 8\n")
    said = _refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "gpu_per_node" in said and "did you mean gpus_per_node?" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus_per_node: many", "whole number"),
        ("time: soon", "time limit"),
        ("- a", "mapping"),
        ("a: [", "YAML"),
        ("exclusive: maybe", "true or false"),
        ("gpu_request: all", "gpus-per-node or gres or none"),
        ("env: [a]", "NAME=VALUE"),
        ("env: {a b: c}", "names of letters"),
        ("account: a b", "one plain word"),
        ('partition: "x\\n#SBATCH --uid=0"', "one plain word"),
        ("mounts: /data", "a list"),
        ("ft_timeouts: step", "SECTION:SECONDS"),
    ],
)
def test_a_site_value_of_another_type_is_refused(hcp, tmp_path, text, words):
    (tmp_path / "site.yaml").write_text(text + "\n")
    said = _refused(hcp, "--start", "srun", "--site", "site.yaml", "--", "--seq-length", "8", cwd=tmp_path)
    assert "site.yaml" in said and words in said


def test_an_option_wins_over_the_site_file_and_env_is_merged(hcp, tmp_path):
    (tmp_path / "site.yaml").write_text("gpus_per_node: 8\ntime: 4:00:00\nenv: {A: 1, B: 2}\n")
    done = hcp(
        "render",
        "--start",
        "srun",
        "--nodes",
        "2",
        "--site",
        "site.yaml",
        "--time",
        "30",
        "--env",
        "B=3",
        "--program",
        "x.py",
        "--",
        "--seq-length",
        "8",
        cwd=tmp_path,
    )
    assert "#SBATCH --time=30\n" in done.stdout
    assert "export A=1\n" in done.stdout and "export B=3\n" in done.stdout and "B=2" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time", "10", "--signal", "600"], "asked to end at once"),
        (["--time", "30", "--env", "MASTER_ADDR=x"], "set by the job itself"),
        (["--time", "30", "--env", "BASH_ENV=x"], "set by the job itself"),
        (["--time", "30", "--mounts", "/data"], "container_image"),
        (["--time", "30", "--container-image", "x"], "container_runtime together"),
        (["--time", "30", "--logs", "my logs"], "plain characters"),
        (["--time", "30", "--logs", "-x"], "plain characters"),
    ],
)
def test_what_would_not_work_is_refused(hcp, words, said):
    assert said in _refused(
        hcp,
        "--start",
        "srun",
        "--nodes",
        "2",
        "--gpus-per-node",
        "8",
        "--arch",
        "sm90",
        "--program",
        "x.py",
        *words,
        "--",
        "--seq-length",
        "8",
    )


def test_a_verl_launch_needs_ray_and_only_that(hcp):
    common = ["--nodes", "2", *SITE]
    assert "--start ray" in _refused(hcp, "--start", "torchrun", *common, "--", *VERL_WORDS)
    assert "wanted verl" in _refused(hcp, "--start", "ray", *common, "--program", "x.py", "--", *HCP_WORDS)
    said = _refused(hcp, "--start", "ray", *common, "--", *VERL_WORDS, "trainer.nnodes=4")
    assert "trainer.nnodes: the launch says 4, the job has 2" in said


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--arch", "sm90"], "export CUDA_DEVICE_MAX_CONNECTIONS=1"),
        (["--arch", "sm100"], None),
        (["--arch", "sm90", "--", "--overlap-moe-expert-parallel-comm"], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (["--", "--overlap-moe-expert-parallel-comm"], "export CUDA_DEVICE_MAX_CONNECTIONS=32"),
        (["--arch", "sm90", "--", "--use-megatron-fsdp"], "unset CUDA_DEVICE_MAX_CONNECTIONS"),
        (["--arch", "sm90", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=8"], "export CUDA_DEVICE_MAX_CONNECTIONS=8"),
    ],
)
def test_connections_follow_from_what_runs(hcp, words, line):
    options, _, launch = " ".join(words).partition("--" if words[0] == "--" else " -- ")
    done = hcp(
        "render",
        "--start",
        "srun",
        "--nodes",
        "2",
        "--gpus-per-node",
        "8",
        "--time",
        "30",
        "--program",
        "x.py",
        *options.split(),
        "--",
        "--context-parallel-size",
        "2",
        *launch.split(),
    )
    # A value that is stated wins, and is an error where Megatron-LM refuses it.
    assert done.returncode == int(line == "export CUDA_DEVICE_MAX_CONNECTIONS=8"), done.stderr
    found = [text for text in done.stdout.splitlines() if text.startswith(("export CUDA_DEV", "unset CUDA_DEV"))]
    assert found == ([line] if line else [])


def test_a_yaml_of_bridge_is_given_as_its_file_and_checked_as_its_file(hcp, tmp_path):
    (tmp_path / "run.yaml").write_text("model:\n  _target_: x\n  context_parallel_size: 2\ncheckpoint:\n  save: /c\n")
    done = hcp(
        "render",
        "run.yaml",
        "--launcher",
        "bridge",
        "--start",
        "torchrun",
        "--nodes",
        "2",
        *SITE,
        "--program",
        "x.py",
        "--",
        "model.context_parallel_size=4",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "    --config-file run.yaml\n    model.context_parallel_size=4\n" in done.stdout
    assert "check=(\n    run.yaml\n" in done.stdout and '-- "${launch[@]:2}"' in done.stdout
    assert "#SBATCH --job-name=run\n" in done.stdout


def test_a_launch_whose_words_are_not_all_known_is_refused(hcp, tmp_path):
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --context-parallel-size $CP --seq-length 8192\n")
    said = _refused(hcp, "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert "context_parallel_size" in said and "not known" in said


def test_a_script_gives_its_training_command_word_for_word(hcp, tmp_path):
    (tmp_path / "train.sh").write_text(
        "ARGS=(--recipe llama3_8b --dataset \"my data\" model.context_parallel_size=4 +model.foo=[1,2] '~model.bar')\n"
        'torchrun --nnodes 2 --nproc-per-node 8 scripts/training/run_recipe.py "${ARGS[@]}"\n'
    )
    done = hcp(
        "render", "train.sh", "--start", "torchrun", "--nodes", "2", *SITE, "--", "model.seq_length=8", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (
        """program=(scripts/training/run_recipe.py)
# The launch, word for word: what the program gets, and what `hcp check` reads in phase 0.
launch=(
    --recipe llama3_8b
    --dataset 'my data'
    model.context_parallel_size=4
    '+model.foo=[1,2]'
    '~model.bar'
    model.seq_length=8
)
"""
        in done.stdout
    )


@pytest.mark.parametrize("name", [name for name in KINDS if name != "verify"])
def test_hcp_check_reads_the_whole_job_out_of_the_script_and_finds_nothing(name, hcp):
    domain = "nvlink_domain=72" if "apptainer" in name else "nvlink_domain=8"
    done = hcp("check", GOLDEN / f"{name}.sbatch", "--format", "json", "--assume", domain)
    found = json.loads(done.stdout)
    assert found["findings"] == [] and done.returncode == 0
    facts = {fact: entry["value"] for fact, entry in found["facts"].items()}
    nodes, per_node = {"srun-pyxis": (4, 8), "torchrun-apptainer": (18, 4)}.get(name, (2, 8))
    start = name.split("-")[0].replace("array", "srun")
    assert (facts["start"], facts["nodes"], facts["gpus_per_node"]) == (start, nodes, per_node)
    assert facts["cp"] == (2 if name in ("ray", "ft_launcher") else 4)


def test_what_hcp_check_finds_in_the_launch_and_in_the_script_is_said_at_once(hcp):
    words = [word for word in HCP_WORDS if word != "--exit-signal-handler"]
    words[words.index("--hierarchical-context-parallel-sizes") + 1] = "4"
    done = hcp("render", "--start", "srun", "--nodes", "2", *SITE, "--program", "x.py", "--", *words)
    assert done.returncode == 1 and done.stdout.startswith("#!/bin/bash")
    lines = done.stderr.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["error HCP002", "warning SLURM006"]
    assert lines[0].endswith("the job will stop in phase 0")


@pytest.mark.parametrize("name", [name for name in KINDS if name != "verify"])
def test_a_launch_without_faults_is_rendered_in_silence(name, rendered):
    assert rendered(name).stderr == ""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "run.txt",
            "model.context_parallel_size=2  # two\n'model.x=a b' +model.y=[1,2]\n",
            "    model.context_parallel_size=2\n    'model.x=a b'\n    '+model.y=[1,2]'\n",
        ),
        (
            "run.yaml",
            "MODEL_ARGS:\n  --context-parallel-size: 2\n  --seq-length: 8192\n  --use-mcore-models: true\n",
            "    --context-parallel-size 2\n    --seq-length 8192\n    --use-mcore-models\n",
        ),
    ],
)
def test_lists_of_overrides_and_of_arguments_are_given_as_words(hcp, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    done = hcp("render", name, "--start", "srun", "--nodes", "2", *SITE, "--program", "x.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"launch=(\n{words})\n" in done.stdout


def test_words_before_the_first_flag_are_for_the_program_alone(hcp, tmp_path):
    (tmp_path / "train.sh").write_text("srun python pretrain_gpt.py my.cfg --num-layers 2 --context-parallel-size 2\n")
    done = hcp("render", "train.sh", "--start", "srun", "--nodes", "2", *SITE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "launch=(\n    my.cfg\n    --num-layers 2\n" in done.stdout and '-- "${launch[@]:1}"' in done.stdout
