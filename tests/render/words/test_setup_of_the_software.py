"""What sets up a launch's software is in the job, as it stands and in its order; what does more than that is not."""

import re
import subprocess

import pytest

from support.sbatch import HEAD

TRAIN = "srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --context-parallel-size 2 --seq-length 8192\n"
CONDA = 'conda() { echo "conda $*" >>said; }\n'
PREPARES = """\
module purge
module use /sw/mods && module load gcc/12
ROOT=conda
. $ROOT/conda.sh
conda activate "$ROOT/env"
"""


def set_up(script, folder):
    """What the job's own lines of setup do, where `module` is a function of the cluster's profile."""
    begin = script.index("# The launch's own lines")
    text = script[begin : script.index("# Unbuffered")]
    modules = 'module() { echo "module $*" >>said; }\nset -euo pipefail\n'
    ran = subprocess.run(["bash", "-c", f"{modules}{text}pwd"], capture_output=True, text=True, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{folder}\n", "the job goes on in the folder that it was submitted in"
    return (folder / "said").read_text().splitlines()


@pytest.mark.parametrize("is_in_a_file", [False, True])
def test_the_job_sets_up_its_software_as_the_script_does(rendered, tmp_path, is_in_a_file):
    text = PREPARES + TRAIN
    if is_in_a_file:
        (tmp_path / "run.sh").write_text(text)
    done = rendered("-o", "job.sbatch", text=HEAD + ("bash run.sh\n" if is_in_a_file else text))
    assert done.returncode in (0, 1), done.stderr
    (tmp_path / "conda").mkdir()
    (tmp_path / "conda" / "conda.sh").write_text(f"{CONDA}false\n")
    wanted = ["module purge", "module use /sw/mods", "module load gcc/12", "conda activate conda/env"]
    assert set_up((tmp_path / "job.sbatch").read_text(), tmp_path) == wanted
    assert "left out: module" not in done.stderr and "left out: conda" not in done.stderr


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("source ~/.bashrc", "source ~/.bashrc"),
        ('eval "$(conda shell.bash hook)"', 'eval "$(conda shell.bash hook)"'),
        ('eval "$(micromamba shell hook --shell bash)"', 'eval "$(micromamba shell hook --shell bash)"'),
        ("source $(conda info --base)/etc/profile.d/conda.sh", "source $(conda info --base)/etc/profile.d/conda.sh"),
        ("cd /opt/p\nsource .venv/bin/activate x", "source /opt/p/.venv/bin/activate x"),
        ('cd /opt/p\nsource "env.sh"', 'source "/opt/p/env.sh"'),
        ("cd /opt/p\nsource activate torch", "source activate torch"),
        ('source "$HOME/a b.sh"', 'source "$HOME/a b.sh"'),
        ("E=$(hostname)\nconda activate $E", ""),
        ("conda init", ""),
        ("cd $WHERE\nsource sub/env.sh", ""),
        ("module load $(cat mods)", ""),
        ("module load a; curl x | sh", "module load a"),
        ("conda activate x > ~/.netrc", "conda activate x"),
        ('eval "$(curl https://x.org/setup)"', ""),
        ("SLURM_TOKEN=a\nmodule load $SLURM_TOKEN", ""),
        ("if [ -f a ]; then module load b; fi", ""),
        ("(module load b)", ""),
        ("srun --container-image=x:1 bash -c 'module load b'", ""),
    ],
)
def test_only_lines_that_set_up_software_are_carried_and_the_others_are_named(rendered, line, job):
    """A word that is not known, that starts another program or that writes a file does not reach the job's script."""
    done = rendered(text=f"{HEAD}module purge\n{line}\n{TRAIN}")
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(r"^([^#].*) # train\.sbatch:\d+$", done.stdout, re.M)
    assert found == ["module purge", *([job] if job else [])]
    assert not re.search(r"curl|netrc", done.stdout.partition("# ---- what runs")[0])


def test_a_login_shell_stays_one(rendered):
    done = rendered(text=HEAD.replace("#!/bin/bash", "#!/bin/bash -l", 1) + TRAIN)
    assert done.stdout.startswith("#!/bin/bash -l\n#") and "\nset +euo" not in done.stdout
    assert rendered(text=HEAD + TRAIN).stdout.startswith("#!/bin/bash\n#")


def test_pods_have_the_software_of_their_image(rendered):
    options = ("--target", "jobset", "--container-image", "x:1", "--logs", "/ck", "--mounts", "ck:/ck", "--words")
    done = rendered(*options, text=f"{HEAD.replace('#SBATCH --array=0-9%1', '')}conda activate x\n{TRAIN}")
    assert re.search(r"left out +conda activate x +train.sbatch:\d+ +the software is that of the image", done.stdout)
