"""Rendered scripts: whole-file goldens, shellcheck, and `hcp check` of what was rendered."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.rendering import HCP_WORDS, SITE, VERL_WORDS

GOLDEN = Path(__file__).resolve().parent / "golden"
_SITE, _HCP, _VERL = map(shlex.join, (SITE, HCP_WORDS, VERL_WORDS))
_WORDS = {
    "srun": f"--start srun --nodes 2 {_SITE} --program pretrain_gpt.py -- {_HCP}",
    "srun-pyxis": (
        f"--start srun --nodes 4 {_SITE} --program pretrain_gpt.py --container-runtime pyxis --container-image "
        "'nvcr.io#nvidia/nemo:26.06' --mounts /data --mounts /ckpt:/ckpt --container-workdir /opt/megatron "
        f"--requeue 3 --comm-test --shared /data --env HF_HOME=/data/hf --logs logs --signal 900 -- {_HCP}"
    ),
    "torchrun": f"--start torchrun --nodes 2 {_SITE} --program pretrain_gpt.py -- {_HCP}",
    "torchrun-apptainer": (
        f"--start torchrun --nodes 18 {_SITE} --program -m --program my.trainer --container-runtime apptainer "
        "--container-image /images/nemo.sif --mounts /data --segment 18 --switches 1@10:00 --requeue 2 "
        "--comm-test --gpus-per-node 4 --arch sm100 --nvlink-domain 72 --gpu-request gres --modules cuda/12.8 "
        f"--venv /envs/train -- {_HCP}"
    ),
    "srun-guarded": (
        f"--start srun --nodes 2 {_SITE} --program pretrain_gpt.py --requeue 3 --stall 30 --comm-gbps 200 --health "
        f"nvidia-smi --health dcgm --health nvrx --health primus --health '/site/check --disk \"/scratch a\"' -- {_HCP}"
    ),
    "torchrun-allocation": (
        f"--start torchrun --nodes 2 {_SITE} --program pretrain_gpt.py --in-allocation --stall 30 -- {_HCP}"
    ),
    "ft_launcher": (
        f"--start ft_launcher --nodes 2 {_SITE} --program train.py --requeue 1 --checkpoint-dir /ckpt/run "
        "--ft-timeouts setup:3600,step:1200,checkpointing:1800 --dialect bridge -- "
        "model.tensor_model_parallel_size=2 model.context_parallel_size=2 model.cp_comm_type=a2a "
        "checkpoint.save=/ckpt/run train.exit_signal_handler=true"
    ),
    "ray": f"--start ray --nodes 2 {_SITE} --requeue 1 -- {_VERL}",
    "verify": f"--start verify --nodes 2 {_SITE} hierarchical-context-parallel",
    "array": (
        f"--start srun --nodes 2 {_SITE} --program pretrain_gpt.py --array '--seq-length 65536' --array "
        f"'--seq-length 131072 --recompute-granularity full' --array ' ' -- {_HCP}"
    ),
}
KINDS = {name: shlex.split(words) for name, words in _WORDS.items()}

_DONE: dict[str, subprocess.CompletedProcess[str]] = {}


@pytest.fixture
def rendered(hcp):
    """`rendered(name)`: what `hcp render` said; each kind is rendered once."""

    def of(name):
        if name not in _DONE:
            _DONE[name] = hcp("render", *KINDS[name])
        return _DONE[name]

    return of


@pytest.mark.sample(3)
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


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", KINDS)
def test_bash_can_parse_it_and_shellcheck_has_nothing_to_say(name, rendered, tmp_path):
    script = tmp_path / "job.sbatch"
    script.write_text(rendered(name).stdout)
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    shellcheck = shutil.which("shellcheck") or str(Path(sys.executable).parent / "shellcheck")
    done = subprocess.run([shellcheck, "--norc", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", KINDS)
def test_no_line_is_longer_than_a_screen_and_none_ends_in_blanks(name, rendered):
    for line in rendered(name).stdout.splitlines():
        assert len(line) <= 125 and line == line.rstrip(), line
    assert "\n\n\n" not in rendered(name).stdout


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", [name for name in KINDS if name != "verify"])
def test_hcp_check_reads_the_whole_job_out_of_the_script_and_finds_nothing(name, hcp):
    domain = "nvlink_domain=72" if "apptainer" in name else "nvlink_domain=8"
    done = hcp("check", GOLDEN / f"{name}.sbatch", "--format", "json", "--assume", domain)
    found = json.loads(done.stdout)
    # A recipe that nobody names, and a length that differs between the points of an array, cannot be seen.
    assert (found["findings"], done.returncode) == ([], 4 if name in ("ft_launcher", "array") else 0), done.stdout
    shown = json.loads(hcp("show", GOLDEN / f"{name}.sbatch", "--format", "json", "--assume", domain).stdout)
    facts = {fact: entry["value"] for fact, entry in shown["facts"].items()}
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
    # The kind without a recipe says so, and nothing else.
    undecided = [line for line in rendered(name).stderr.splitlines() if line.startswith("hcp render: undecided: ")]
    assert len(undecided) == (name == "ft_launcher")
    assert rendered(name).stderr == "".join(f"{line}\n" for line in undecided)
