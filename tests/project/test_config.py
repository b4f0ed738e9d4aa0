"""What `.hcp.yaml` states for a launch, in which order it counts, and what it may not do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.project.config import SHAPE, project_of, settings_of
from megatron_hcp.resources import pack_dir

FLAGS = "--context-parallel-size 2 --cp-comm-type a2a --transformer-impl transformer_engine"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    launch = tmp_path / "jobs" / "run.sh"
    launch.parent.mkdir()
    launch.write_text(f"#!/bin/bash\nexport NCCL_ALGO=Ring\ntorchrun --nnodes $NNODES pretrain_gpt.py {FLAGS}\n")
    return tmp_path


def stated(repo: Path, text: str, **options: object) -> Launch:
    (repo / ".hcp.yaml").write_text(text)
    return load_launch(str(repo / "jobs" / "run.sh"), LoadOptions(find_project=settings_of, **options))  # type: ignore[arg-type]


def test_a_version_is_taken_as_it_is_written(repo: Path) -> None:
    fact = stated(repo, "# ours\nfacts:\n  te: 2.10\n").facts["te"]
    assert (fact.value, fact.origin) == ("2.10", "project")
    assert fact.location is not None and (Path(fact.location.file).name, fact.location.line) == (".hcp.yaml", 3)


def test_a_branch_is_stated_as_a_version_is(repo: Path) -> None:
    facts = stated(repo, "facts: {mcore: dev}\n").facts
    assumed = stated(repo, "facts: {}\n", assumes=("mcore=dev",)).facts
    assert facts["mcore_branch"].value == "dev"
    assert facts["mcore"].value == assumed["mcore"].value


def test_a_version_of_the_options_is_not_on_the_files_branch(repo: Path) -> None:
    facts = stated(repo, "facts: {mcore: dev}\n", assumes=("mcore=0.16.1",)).facts
    assert (facts["mcore"].value, facts["mcore_branch"].value) == ("0.16.1", "main")


def test_the_launch_wins_over_the_file_and_options_win_over_both(repo: Path) -> None:
    launch = stated(repo, "facts: {env.NCCL_ALGO: Tree, te: 2.14, mcore: 0.16.1}\n", assumes=("te=2.15",))
    values = {name: launch.facts[name].value for name in ("env.NCCL_ALGO", "te", "mcore")}
    assert values == {"env.NCCL_ALGO": "Ring", "te": "2.15", "mcore": "0.16.1"}
    assert [(name, said.value, file.value) for name, said, file in launch.conflicts if file.origin == "project"] == [
        ("env.NCCL_ALGO", "Ring", "Tree")
    ]


def test_the_file_settles_what_the_launch_hides(repo: Path) -> None:
    launch = stated(repo, "facts: {nodes: 4}\n")
    assert "nodes" in launch.reading.unknown and launch.facts["nodes"].value == 4


def test_the_file_wins_over_its_image_and_says_so(repo: Path) -> None:
    launch = stated(repo, "image: nvcr.io/nvidia/nemo:26.04\nfacts: {te: 2.1}\n")
    assert launch.facts["bridge"].origin == "image"
    assert launch.facts["te"].value == "2.1"
    assert "te" in [name for name, _, _ in launch.conflicts]


def test_a_block_of_paths_adds_to_what_holds_for_all(repo: Path) -> None:
    blocks = 'jobs: {facts: {te: "2.15"}, ignore: [ENV]}\n  rl: {dialect: verl}\n'
    text = f"facts: {{te: 2.14}}\nignore: [SLURM]\npaths:\n  {blocks}"
    assert stated(repo, text).facts["te"].value == "2.15"
    project = project_of(str(repo / "jobs" / "run.sh"))
    assert project is not None and project.ignore == "SLURM,ENV" and project.settings.dialect is None


def test_the_nearest_file_counts_alone(repo: Path) -> None:
    (repo / "jobs" / ".hcp.yaml").write_text("facts: {mcore: 0.16.1}\n")
    launch = stated(repo, "facts: {te: 2.14}\n")
    assert launch.facts["mcore"].origin == "project" and "te" not in launch.facts


def test_nothing_above_the_repository_is_read(repo: Path) -> None:
    (repo / "jobs" / ".git").mkdir()
    assert "te" not in stated(repo, "facts: {te: 2.14}\n").facts


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in Python 3.11, and hcp says so before it")
def test_pyproject_counts_where_no_file_is_beside_it(repo: Path) -> None:
    (repo / "pyproject.toml").write_text('[tool.hcp.facts]\nte = "2.12"\n')
    launch = load_launch(str(repo / "jobs" / "run.sh"), LoadOptions(find_project=settings_of))
    assert launch.facts["te"].value == "2.12"


def test_a_model_is_read_unless_the_launch_names_one(repo: Path) -> None:
    config = {"num_hidden_layers": 7, "hidden_size": 64, "num_attention_heads": 4, "model_type": "llama"}
    (repo / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    assert stated(repo, "model: config.json\n").facts["num_layers"].value == 7


def test_a_models_name_means_no_file_of_the_working_folder(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "etc").mkdir()
    (elsewhere / "etc" / "config.json").write_text('{"hidden_size": 64, "num_attention_heads": 4}')
    monkeypatch.chdir(elsewhere)
    with pytest.raises(HcpError, match=r"names etc/config\.json, which is not below"):
        stated(repo, "model: etc/config.json\n")
    assert stated(repo, "model: Qwen/Qwen3-8B\n").facts["num_layers"].origin == "model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("facts: {tee: 2}\n", "did you mean te?"),
        ("fact: {te: 2}\n", "did you mean facts?"),
        ("program: ./run\n", "program"),
        ("paths: {jobs: {upstream: /opt/megatron}}\n", "upstream"),
        ("facts: {env.HF_TOKEN: x}\n", "is a credential"),
        ("sources: [../elsewhere]\n", "is not below"),
        ("sources: [/etc]\n", "is not below"),
        ("site: ../site.yaml\n", "is not below"),
        ("model: ../config.json\n", "is not below"),
        ("model: /etc/hostname\n", "is not below"),
        ("accept: [{rule: CP001}]\n", "reason: found nothing"),
        ("accept: [{rule: NOPE1, reason: x}]\n", "found no rule"),
        ("accept: [{rule: START001, reason: x}]\n", "many refusals"),
        ("accept: [{rule: CP, reason: x}]\n", "the id of one rule"),
        ("facts: [\n", "wanted YAML"),
        (f"exclude: [{'x, ' * 150}]\npaths: {{{', '.join(f'y{n}: {{}}' for n in range(51))}}}\n", "found 201 patterns"),
    ],
)
def test_what_the_file_may_not_say_is_refused_in_one_line(repo: Path, text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        stated(repo, text)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["jobs/.hcp.yaml", "jobs/config.json", "jobs/lib"])
def test_a_link_that_leads_out_of_the_repository_is_refused(repo: Path, name: str, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "file").write_text("facts: {te: 2.14}\n")
    (repo / name).symlink_to(outside / "file" if "." in name[5:] else outside)
    text = {"jobs/config.json": "model: jobs/config.json\n", "jobs/lib": "sources: [jobs/lib]\n"}.get(name, "")
    with pytest.raises(HcpError, match="leads elsewhere"):
        stated(repo, text)


def test_the_schema_names_the_keys_that_are_read() -> None:
    schema = json.loads((pack_dir("schemas") / "hcp.config.1.json").read_text(encoding="utf-8"))
    assert schema["properties"].keys() == SHAPE.optional.keys()
    assert schema["$defs"]["choices"]["properties"].keys() == SHAPE.optional.keys() - {"accept", "exclude", "paths"}


def test_standard_input_is_judged_by_the_repository_of_the_working_folder(hcp, repo: Path) -> None:
    (repo / ".hcp.yaml").write_text("facts: {te: 2.14}\n")
    words = ("show", "--format", "json", "--", *FLAGS.split())
    inside = json.loads(hcp(*words, cwd=repo).stdout)["facts"]
    alone = json.loads(hcp("show", "--isolated", *words[1:], cwd=repo).stdout)["facts"]
    assert inside["te"]["origin"] == "project" and "te" not in alone


def test_git_is_not_asked_for_programs_that_a_repository_names(hcp, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    marker = tmp_path / "ran"
    (tmp_path / ".gitattributes").write_text("*.sh filter=x diff=x\n")
    for key in (
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "filter.x.clean",
        "filter.x.smudge",
        "diff.x.textconv",
    ):
        subprocess.run(["git", "config", key, f"touch {marker}"], cwd=tmp_path, check=True)
    (tmp_path / "run.sh").write_text(f"torchrun pretrain_gpt.py {FLAGS}\n")
    ours = (
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.org",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "filter.x.clean=",
    )
    subprocess.run(["git", *ours, "add", "run.sh"], cwd=tmp_path, check=True)
    subprocess.run(["git", *ours, "commit", "-qm", "x"], cwd=tmp_path, check=True)
    assert not marker.exists()
    (tmp_path / "run.sh").write_text(f"torchrun pretrain_gpt.py {FLAGS} --bf16\n")
    done = hcp("check", ".", "--changed", "HEAD", cwd=tmp_path)
    assert "checked 1 launch in 1 file" in done.stdout and not marker.exists(), done.stderr
