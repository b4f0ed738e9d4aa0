"""Container images as versions: what the table says, which launches it settles, and what wins over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.images import image_named, images
from megatron_hcp.launch.load import LoadOptions, load_launches
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.rules.view import View

Hcp = Callable[..., "CompletedProcess[str]"]
NEMO = {"te": "2.14+71bbefb", "bridge": "0.4.0", "mcore": "0.17.0", "cudnn": "9.20.0.48", "cuda": "13.1.1"}
"""What docs/releases/software-versions.md of Megatron-Bridge says of NeMo Framework 26.04."""
TRAINS = "python -u /opt/Megatron-Bridge/run_recipe.py --recipe qwen3_8b_pretrain_config model.context_parallel_size=2"
PRETRAINS = "pretrain_gpt.py --context-parallel-size 2 --seq-length 4096"
SIZE = "#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8\n"


def read(folder: Path, text: str, *assumes: str, name: str = "job.sbatch") -> Launch:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    (launch,) = load_launches(str(file), LoadOptions(assumes=assumes))
    return launch


def held(launch: Launch) -> dict[str, str]:
    return {name: fact.value for name, fact in launch.facts.items() if fact.origin == "image"}


def test_each_row_states_version_facts_of_a_fixed_tag_and_cites_a_source() -> None:
    assert len(images()) > 100
    for reference, image in images().items():
        assert reference == str(image) and image.facts and len(image.source) > 10
        assert image.tag not in ("latest", "dev", "main") and not image.tag.endswith(".latest")
        for name, value in image.facts.items():
            assert FACTS[name].type == "version" or (name, value) in (("mcore_branch", "dev"), ("mcore_branch", "main"))
            assert name == "mcore_branch" or value[0].isdecimal()


@pytest.mark.parametrize("package", ["te", "mcore", "bridge", "torch", "cudnn", "flash_attn", "nemo_rl", "nvrx"])
def test_rules_can_compare_every_version_that_an_image_states(tmp_path: Path, package: str) -> None:
    base = read(tmp_path, f"#!/bin/bash\n{SIZE}srun {TRAINS}\n")
    stated = {image.facts[package] for image in images().values() if package in image.facts}
    assert stated
    for version in stated:
        fact = base.facts["context_parallel_size" if "context_parallel_size" in base.facts else "cp"]
        view = View(base._replace(facts={package: fact._replace(value=version)}))
        assert view.release(package) > (0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        f"#SBATCH --container-image='nvcr.io#nvidia/nemo:26.04'\n{SIZE}srun {TRAINS}\n",
        f"{SIZE}srun --container-image nvcr.io/nvidia/nemo:26.04 {TRAINS}\n",
        f"{SIZE}IMAGE=nvcr.io/nvidia/nemo\nTAG=${{TAG:-26.04}}\nsrun --container-image=$IMAGE:$TAG {TRAINS}\n",
        f"{SIZE}srun --container-image=/lustre/images/nvidia+nemo+26.04.sqsh {TRAINS}\n",
        f"{SIZE}srun --container-image=/images/nemo-26.04.sqsh {TRAINS}\n",
        f"docker run --gpus all --rm -v /data:/data --shm-size 8g nvcr.io/nvidia/nemo:26.04 {TRAINS}\n",
        f"docker run --gpus all nvcr.io/nvidia/nemo:26.04 bash -c '{TRAINS}'\n",
        f"srun apptainer exec --nv docker://nvcr.io/nvidia/nemo:26.04 {TRAINS}\n",
        f"{SIZE}srun --container-image=nvcr.io/nvidia/nemo:26.04@sha256:{'0' * 64} {TRAINS}\n",
    ],
)
def test_an_image_settles_what_it_holds_wherever_the_launch_names_it(tmp_path: Path, text: str) -> None:
    launch = read(tmp_path, f"#!/bin/bash\n{text}")
    assert held(launch).items() >= NEMO.items()
    assert launch.facts["te"].key == "nvcr.io/nvidia/nemo:26.04" and launch.facts["te"].location is not None


def test_a_pod_names_its_image(tmp_path: Path) -> None:
    words = ", ".join(f'"{word}"' for word in TRAINS.split())
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: train\nspec:\n  containers:\n"
        f"  - name: main\n    image: nvcr.io/nvidia/nemo:26.04\n    command: [{words}]\n"
    )
    launch = read(tmp_path, text, name="pod.yaml")
    assert held(launch).items() >= NEMO.items()
    assert launch.facts["te"].location is not None and launch.facts["te"].location.line == 8


@pytest.mark.parametrize(
    ("reference", "facts"),
    [
        ("verlai/verl:vllm017.dev2", {"te": "2.12", "mcore": "0.16.0", "torch": "2.10.0", "flash_attn": "2.8.3"}),
        ("docker.io/verlai/verl:app-verl0.4-vllm0.8.5-mcore0.12.2-te2.2", {"te": "2.2.1", "mcore": "0.12.2"}),
        ("slimerl/slime:nightly-dev-20260722a", {"te": "2.16.1", "mcore_branch": "dev", "flash_attn": "2.8.3"}),
        ("slimerl/slime:nightly-dev-20260810a-cu130", {"mcore": "0.16.0rc0+1dcf0dafa884"}),
        ("radixark/miles:v0.1.0-cu12", {"miles": "0.1.0", "te": "2.17.0", "cudnn": "9.22.0.52"}),
        ("nvcr.io/nvidia/nemo-rl:v0.5.0", {"nemo_rl": "0.5.0", "te": "2.8.0", "flash_attn": "2.8.1"}),
        ("nvcr.io/nvidia/pytorch:25.10-py3", {"te": "2.8", "cudnn": "9.14.0.64", "python": "3.12"}),
        ("/images/nvidia+pytorch+25.10-py3.sqsh", {"te": "2.8"}),
        ("pytorch_25.10-py3.sif", {"te": "2.8"}),
    ],
)
def test_images_of_each_project_are_listed(reference: str, facts: dict[str, str]) -> None:
    image = image_named(reference)
    assert image is not None and image.facts.items() >= facts.items()


@pytest.mark.parametrize(
    "reference",
    [
        "nvcr.io/nvidia/nemo:26.04.99",
        "nvcr.io/nvidia/nemo:dev",
        "slimerl/slime:latest",
        "radixark/miles:dev",
        "registry.example.com/nvidia/nemo:26.04",
        "/images/patched-nemo-26.04.sqsh",
        "/images/nemo.sqsh",
    ],
)
def test_an_image_that_is_not_listed_settles_nothing_and_show_says_so(hcp: Hcp, tmp_path: Path, reference: str) -> None:
    launch = read(tmp_path, f"#!/bin/bash\n{SIZE}srun --container-image={reference} {TRAINS}\n")
    assert held(launch) == {}
    said = f"the container image {reference} is not listed"
    assert said in hcp("show", "job.sbatch", cwd=tmp_path).stdout
    assert said in hcp("show", "job.sbatch", "--format", "json", cwd=tmp_path).stdout
    assert said not in hcp("check", "job.sbatch", cwd=tmp_path).stdout


def test_a_script_that_leaves_its_image_empty_names_none(hcp: Hcp, tmp_path: Path) -> None:
    launch = read(tmp_path, f'#!/bin/bash\n{SIZE}IMAGE=""\nsrun --container-image="$IMAGE" {TRAINS}\n')
    assert held(launch) == {} and "is not listed" not in hcp("show", "job.sbatch", cwd=tmp_path).stdout


def test_show_names_the_image_as_origin(hcp: Hcp, tmp_path: Path) -> None:
    read(tmp_path, f"#!/bin/bash\n{SIZE}srun --container-image=nvcr.io/nvidia/nemo:26.04 {TRAINS}\n")
    lines = hcp("show", "job.sbatch", cwd=tmp_path).stdout.splitlines()
    assert any(line.split()[:4] == ["te", "2.14+71bbefb", "[image]", "nvcr.io/nvidia/nemo:26.04"] for line in lines)


def test_an_assumption_wins_and_the_conflict_is_shown(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n{SIZE}srun --container-image=nvcr.io/nvidia/nemo:26.04 {TRAINS}\n"
    launch = read(tmp_path, text, "te=2.20.2")
    assert launch.facts["te"].value == "2.20.2" and launch.facts["bridge"].value == "0.4.0"
    report = check_launch(launch, rules_for)
    found = next(finding.problem.found for finding in report.findings if finding.rule.id == "ASSUME001")
    assert found == "te is 2.14+71bbefb in the launch and 2.20.2 by assumption"


def test_the_recipe_is_that_of_the_images_release(tmp_path: Path) -> None:
    launch = read(tmp_path, f"#!/bin/bash\n{SIZE}srun --container-image=nvcr.io/nvidia/nemo:26.04 {TRAINS}\n")
    assert launch.reading.recipe is not None and launch.reading.recipe.origin.endswith("(Bridge 0.4.0)")


@pytest.mark.parametrize(
    ("before", "words", "lost"),
    [
        ("", "--container-mounts=/shared/me/Megatron-LM:/opt/megatron-lm", {"mcore", "bridge"}),
        ("pip install transformer-engine==2.9\n", "", {"te"}),
        ("export PYTHONPATH=/shared/me/Megatron-Bridge/src\n", "", {"mcore", "bridge"}),
        ("export PYTHONPATH=/opt/Megatron-Bridge/src\n", "", set()),
        ("", "--container-mounts=/data:/data", set()),
    ],
)
def test_what_the_launch_brings_itself_is_not_the_images(
    tmp_path: Path, before: str, words: str, lost: set[str]
) -> None:
    text = f"#!/bin/bash\n{SIZE}{before}srun --container-image=nvcr.io/nvidia/nemo:26.04 {words} {TRAINS}\n"
    assert NEMO.keys() - held(read(tmp_path, text)).keys() == lost


def test_a_program_of_a_checkout_runs_the_megatron_core_beside_it(tmp_path: Path) -> None:
    image = "--container-image=nvcr.io/nvidia/nemo:26.04"
    own = read(tmp_path, f"#!/bin/bash\n{SIZE}srun {image} python {PRETRAINS}\n")
    of_image = read(tmp_path, f"#!/bin/bash\n{SIZE}srun {image} python /opt/megatron-lm/{PRETRAINS}\n")
    assert "mcore" not in held(own) and held(own)["te"] == "2.14+71bbefb"
    assert held(of_image)["mcore"] == "0.17.0"


def test_the_image_of_a_site_file_and_of_an_option_counts(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("container_image: nvcr.io#nvidia/nemo:26.04\n", encoding="utf-8")
    for option in (("--site", "site.yaml"), ("--assume", "image=nvcr.io/nvidia/nemo:26.04")):
        shown = hcp("show", *option, "--", "model.context_parallel_size=2", cwd=tmp_path).stdout
        assert "2.14+71bbefb  [image]  nvcr.io/nvidia/nemo:26.04" in shown


def test_a_rendered_job_is_checked_with_its_sites_image(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "container_runtime: pyxis\ncontainer_image: nvcr.io/nvidia/pytorch:25.10-py3\nnodes: 1\ngpus_per_node: 8\n"
        'time: "1:00:00"\narch: sm90\naccount: a\npartition: p\nprogram: pretrain_gpt.py\ncheckpoint_dir: /ckpt\n',
        encoding="utf-8",
    )
    packed = "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 --sft"
    done = hcp("render", "--start", "srun", "--site", "site.yaml", "--", *packed.split(), cwd=tmp_path)
    assert "HCP014" in done.stderr  # Transformer Engine 2.8 has no packed data with a2a+p2p


def test_an_image_that_is_not_listed_is_named_until_a_release_is_stated(hcp: Hcp) -> None:
    words = ("check", "--assume", "image=nvcr.io/nvidia/nemo:99.99", "--", "--context-parallel-size", "2")
    assert "the image nvcr.io/nvidia/nemo:99.99 isn't listed" in hcp(*words).stdout
    assert "isn't listed" not in hcp(*words[:3], "te=2.14", *words[3:]).stdout
    assert "isn't listed" not in hcp(*words[:2], "image=nvcr.io/nvidia/nemo:26.04", *words[3:]).stdout
