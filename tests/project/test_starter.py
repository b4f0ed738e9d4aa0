"""`hcp init`: what it states, from where, and what it leaves open."""

from __future__ import annotations

from pathlib import Path

import yaml

LAUNCH = (
    "#!/bin/bash\n#SBATCH --gres=gpu:{gpu}:8\n"
    "srun --container-image={image} python pretrain_gpt.py --context-parallel-size 2\n"
)
IMAGE = "nvcr.io/nvidia/nemo:26.04"


def repository(folder: Path, **launches: str) -> Path:
    (folder / ".git").mkdir()
    for name, text in launches.items():
        (folder / f"{name}.sbatch").write_text(text)
    return folder


def test_it_states_what_all_sources_agree_on(hcp, tmp_path: Path) -> None:
    repo = repository(tmp_path, a=LAUNCH.format(gpu="h100", image=IMAGE), b=LAUNCH.format(gpu="h200", image=IMAGE))
    (repo / "requirements.txt").write_text("transformer_engine[pytorch]==2.10  # ours\nnumpy==2.0\n")
    core = repo / "3rdparty" / "Megatron-LM" / "megatron" / "core"
    core.mkdir(parents=True)
    (core / "package_info.py").write_text("MAJOR = 0\nMINOR = 16\nPATCH = 1\nPRE_RELEASE = ''\n")
    (repo / ".gitmodules").write_text('[submodule "x"]\n\tpath = 3rdparty/Megatron-LM\n')
    done = hcp("init", cwd=repo)
    data = yaml.safe_load((repo / ".hcp.yaml").read_text())
    assert done.returncode == 0, done.stderr
    assert data["image"] == IMAGE
    assert data["facts"] == {"arch": "sm90", "mcore": "0.16.1", "te": "2.10"}
    assert hcp("check", "a.sbatch", cwd=repo).returncode in (0, 1, 4)


def test_where_sources_differ_nothing_is_stated(hcp, tmp_path: Path) -> None:
    repo = repository(tmp_path, a=LAUNCH.format(gpu="h100", image=IMAGE), b=LAUNCH.format(gpu="b200", image="x/y:1"))
    done = hcp("init", "--print", cwd=repo)
    assert (yaml.safe_load(done.stdout)["facts"] or {}).keys() == set() and "# arch:" in done.stdout
    assert "image: nvcr.io/nvidia/nemo:26.04, x/y:1 differ" in done.stderr and not (repo / ".hcp.yaml").exists()


def test_a_file_that_exists_is_left_alone(hcp, tmp_path: Path) -> None:
    repo = repository(tmp_path)
    (repo / ".hcp.yaml").write_text("facts: {te: 2.14}\n")
    done = hcp("init", cwd=repo)
    assert done.returncode == 2 and "exists already" in done.stderr
    assert (repo / ".hcp.yaml").read_text() == "facts: {te: 2.14}\n"


def test_it_asks_for_the_releases_of_the_frameworks_that_are_started(hcp, tmp_path: Path) -> None:
    repo = repository(tmp_path, a="python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron\n")
    done = hcp("init", "--print", cwd=repo)
    assert "# verl:  # verl's release, as " in done.stdout and "not determined: verl: " in done.stderr
    assert "nemo_rl" not in done.stdout


def test_what_differs_by_folder_is_stated_by_path(hcp, tmp_path: Path) -> None:
    repo = repository(tmp_path)
    for folder, gpu, image in (("pre", "h100", IMAGE), ("rl", "b200", "verlai/verl:vllm011.latest")):
        (repo / folder).mkdir()
        (repo / folder / "a.sbatch").write_text(LAUNCH.format(gpu=gpu, image=image))
    done = hcp("init", cwd=repo)
    data = yaml.safe_load((repo / ".hcp.yaml").read_text())
    assert data["paths"] == {
        "pre": {"image": IMAGE, "facts": {"arch": "sm90"}},
        "rl": {"image": "verlai/verl:vllm011.latest", "facts": {"arch": "sm100"}},
    }
    assert "differ" not in done.stderr and hcp("check", ".", cwd=repo).returncode in (0, 1, 4)
