"""Files that a script sources or starts: which are read, where their facts come from, and what is never opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Beside
from megatron_hcp.launch.readers.target import read_target
from support.sourced import TRAIN, read, tp


@pytest.mark.parametrize(
    "line",
    [
        "source models/m.sh",
        ". ./models/m.sh",
        'source "$(dirname "$0")/models/m.sh"',
        "source `dirname $0`/models/m.sh",
        'source "${0%/*}/models/m.sh"',
        "source $PWD/models/m.sh",
        ". `pwd`/models/m.sh",
        "cd models\nsource m.sh",
        "(cd /elsewhere)\nsource models/m.sh",
        'DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"\nsource "${DIR}/models/m.sh"',
        'DIR=$( cd "$( dirname "${BASH_SOURCE[0]}" )" >/dev/null 2>&1 && pwd )\nsource $DIR/models/m.sh',
        'DIR=$(dirname "$(realpath "$0")")\nMODEL=m\nsource "$DIR/models/${MODEL}.sh" || exit 1',
        "DIR=$(dirname $(readlink -f $BASH_SOURCE))\nif [ -f $DIR/models/m.sh ]; then source $DIR/models/m.sh; fi",
        "set -e\n[[ -f models/m.sh ]] && source models/m.sh",
        "f() { source models/m.sh; }\nf",
    ],
)
def test_a_file_below_the_scripts_folder_is_read_however_its_path_is_written(tmp_path: Path, line: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sh").write_text("TP=4\n")
    reading = read(tmp_path, f"{line}\n{TRAIN}")
    assert tp(reading) == "4" and not reading.unknown and reading.unseen is None


@pytest.mark.parametrize(
    ("path", "is_read"),
    [
        ("/opt/slime/models/m.sh", True),
        ("/opt/other/models/m.sh", False),  # another repository's
        ("/opt/slime/../models/m.sh", False),
        ("/models/m.sh", False),  # no folder says that it is the same repository
    ],
)
def test_a_path_in_a_container_is_read_where_it_leads_to_the_scripts_own_repository(
    tmp_path: Path, path: str, is_read: bool
) -> None:
    for name in (".git", "slime", "models", "examples"):
        (tmp_path / name).mkdir()
    (tmp_path / "models" / "m.sh").write_text("TP=4\n")
    reading = read(tmp_path / "examples", f'source "{path}"\n{TRAIN}')
    assert (tp(reading) == "4") is is_read


@pytest.mark.parametrize(
    ("started", "is_read"),
    [
        ("/home/x/exp/clone/jobs/llm/train.sh", True),  # the same place in another copy
        ("clone/jobs/llm/train.sh", True),  # as it is submitted from above the repository
        ("7b/train.sh", True),  # from the folder above the script's
        ("llm/7b/train.sh", True),
        ("/home/x/llm/train.sh", False),
        ("/home/x/jobs/train.sh", False),  # one folder of that name says too little
        ("/x/jobs/llm/../../../train.sh", False),
    ],
)
def test_a_path_through_the_scripts_own_folders_leads_to_the_file_there(
    tmp_path: Path, started: str, is_read: bool
) -> None:
    """50 Slurm scripts of one public repository start their training so."""
    place = tmp_path / "repo" / "jobs" / "llm" / "7b"
    place.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    for folder in (tmp_path, place, place.parent, place.parents[1]):
        (folder / "train.sh").write_text(TRAIN.replace("$TP", "4"))
    if is_read and "7b" not in started:
        (place / "train.sh").unlink()
    script = f"bash {started}\n"
    if is_read:
        assert tp(read(place, script)) == "4"
    else:
        with pytest.raises(HcpError, match="is not read"):
            read(place, script)


@pytest.mark.parametrize(("named", "is_read"), [("examples/run.sh", True), ("{folder}/examples/run.sh", False)])
def test_a_script_that_is_named_from_a_folder_above_it_starts_files_as_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, is_read: bool
) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "m.sh").write_text("TP=4\n")
    (tmp_path / "examples" / "run.sh").write_text(f"source m.sh\n{TRAIN}")
    monkeypatch.chdir(tmp_path)
    reading = read_target(named.format(folder=tmp_path), beside=Beside())
    assert (tp(reading) == "4") is is_read


@pytest.mark.parametrize(
    ("change", "started", "files", "expected"),
    [
        ("cd /code/checkout", "scripts/t.sh", {"scripts/t.sh": 4}, "4"),  # from the repository's root
        ("cd /code/checkout", "./t.sh", {"jobs/t.sh": 4}, "4"),  # beside the script
        ('cd "$CODE"', "scripts/t.sh", {"scripts/t.sh": 4}, "4"),
        ("cd /code/verl/proj", "scripts/t.sh", {"verl/proj/scripts/t.sh": 4}, "4"),  # another copy of the repository
        ("cd /code/checkout", "t.sh", {"t.sh": 2, "jobs/t.sh": 4}, None),
        ("cd /code/verl/proj", "scripts/t.sh", {"verl/proj/scripts/t.sh": 4, "scripts/t.sh": 2}, None),
        ("cd /code/checkout", "other/t.sh", {"scripts/t.sh": 4}, None),
        ("cd /code/checkout", "../t.sh", {"scripts/t.sh": 4}, None),
    ],
)
def test_after_a_change_of_folder_the_one_file_of_the_repository_that_a_path_can_mean_is_read(
    tmp_path: Path, change: str, started: str, files: dict[str, int], expected: str | None
) -> None:
    """Of 123 Slurm scripts from public repositories, 13 start a file below a folder of the cluster or the container."""
    repository = tmp_path / "checkout"
    for name in (".git", "jobs"):
        (repository / name).mkdir(parents=True)
    (tmp_path / "t.sh").write_text(TRAIN.replace("$TP", "8"))
    for name, size in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(TRAIN.replace("$TP", str(size)))
    script = f"{change}\nbash {started}\n"
    if expected is None:
        with pytest.raises(HcpError, match="is not read"):
            read(repository / "jobs", script)
        return
    reading = read(repository / "jobs", script)
    place = os.path.relpath(repository / next(iter(files)), repository / "jobs")
    assert tp(reading) == expected
    assert any(f"{started.removeprefix('./')} is read as {place} of" in note for note in reading.notes)


def test_a_fact_of_a_sourced_file_has_that_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "m.sh").write_text("\nMODEL_ARGS=(\n  --context-parallel-size 8\n)\nexport NVTE_FLASH_ATTN=0\n")
    reading = read(tmp_path, "source m.sh\ntorchrun pretrain_gpt.py ${MODEL_ARGS[@]}\n")
    (setting,) = reading.settings
    assert setting.location is not None and setting.location[:3] == (str(tmp_path / "m.sh"), 3, 3)
    place = reading.facts["env.NVTE_FLASH_ATTN"].location
    assert place is not None and place[:2] == (str(tmp_path / "m.sh"), 5)


def test_what_is_not_known_in_a_sourced_file_is_said_with_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.sh").write_text("\nTP=$(nproc)\n")
    reading = read(tmp_path, f"source m.sh\n{TRAIN}")
    assert f"line 2 of {tmp_path / 'm.sh'} " in reading.unknown["tensor_model_parallel_size"]


def test_sourced_files_source_others_with_arguments_functions_and_a_return(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.sh").write_text('HERE=$(dirname "${BASH_SOURCE[0]}")\n. $HERE/b.sh 4\nreturn 0\nTP=1\n')
    (tmp_path / "lib" / "b.sh").write_text("set_tp() { TP=$1; }\nset_tp $1\n")
    assert tp(read(tmp_path, f"source lib/a.sh\n{TRAIN}")) == "4"


def test_defaults_after_a_file_that_is_read_are_known_and_after_another_are_not(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export OMP_NUM_THREADS=1\n")
    rest = TRAIN.replace("$TP", "${TP:-2}")
    assert tp(read(tmp_path, f". env.sh\n{rest}")) == "2"
    reading = read(tmp_path, f". other.sh\n{rest}")
    assert reading.unknown["tensor_model_parallel_size"] == "TP may be set by other.sh, which line 1 sources"
    folder = tmp_path
    assert reading.notes == (
        f"line 1 sources other.sh, which is not read: there is no such file in {folder}; name it with --source FILE",
    )


def test_a_script_beside_it_is_followed_with_its_arguments_and_the_exported_variables(tmp_path: Path) -> None:
    (tmp_path / "b.sh").write_text(
        "torchrun --nnodes ${NODES:-1} pretrain_gpt.py --num-layers ${LAYERS:-8} --tensor-model-parallel-size $2\n"
    )
    for start in ("bash b.sh a 4", "NODES=2 srun ./b.sh a 4", 'sh "$(dirname $0)/b.sh" a 4', "sbatch b.sh a 4"):
        reading = read(tmp_path, f"LAYERS=12\nexport NODES=${{NODES:-2}}\n{start}\n")
        assert tp(reading) == "4" and reading.facts["nodes"].value == 2
        assert [setting.value for setting in reading.settings if setting.key == "num_layers"] == [["8"]]


def test_a_script_that_cannot_be_read_is_named_in_the_refusal(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"and ../b\.sh, which it starts, is not read \(it is outside the script's"):
        read(tmp_path, "bash ../b.sh\n")


def test_arguments_are_those_that_are_given(tmp_path: Path) -> None:
    script = (
        "while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) REST+=($1); shift;; esac; done\n"
        'torchrun pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size $TP "${REST[@]}"\n'
    )
    reading = read(tmp_path, script, arguments=("--bf16", "--tp", "4"))
    assert tp(reading) == "4" and {setting.key for setting in reading.settings} >= {"bf16", "num_layers"}
    assert read(tmp_path, f"TP=$2\nset -- $# $@\nTP=$TP$1\n{TRAIN}", arguments=("8", "1")).settings[-1].value == ["12"]
    assert not any("arguments" in note for note in reading.notes)


def test_a_source_option_stands_for_files_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "scripts" / "run", tmp_path / "other" / "models"
    here.mkdir(parents=True)
    there.mkdir(parents=True)
    (there / "m.sh").write_text("TP=4\n")
    for line in ("source ../../other/models/m.sh", "source /opt/models/m.sh", "source $ROOT/models/m.sh"):
        assert tp(read(here, f"{line}\n{TRAIN}")) is None
        assert tp(read(here, f"{line}\n{TRAIN}", sources=(str(there / "m.sh"),))) == "4"
        assert tp(read(here, f"{line}\n{TRAIN}", sources=(str(there),))) == "4"
        assert tp(read(here, f"{line}\n{TRAIN}", sources=(str(tmp_path / "other"),))) == "4"
    assert tp(read(here, f"source $CONFIG\n{TRAIN}", sources=(str(there / "m.sh"),))) == "4"
    unused = read(here, f"source n.sh\n{TRAIN}", sources=(str(there / "m.sh"),))
    assert tp(unused) is None and any("matches no file" in note for note in unused.notes)


def test_a_path_out_of_the_scripts_folder_is_read_where_it_lies_in_a_named_folder(tmp_path: Path) -> None:
    """The checkout is named, not the folder in it; a file of the same name elsewhere in it is another one."""
    here = tmp_path / "scripts" / "low_precision"
    (tmp_path / "scripts" / "models").mkdir(parents=True)
    (tmp_path / "models").mkdir()
    here.mkdir()
    (tmp_path / "scripts" / "models" / "m.sh").write_text("TP=4\n")
    (tmp_path / "models" / "m.sh").write_text("TP=16\n")
    script = f'source "$(dirname "$0")/../models/m.sh"\n{TRAIN}'
    assert tp(read(here, script, sources=(str(tmp_path),))) == "4"
    assert tp(read(here, script, sources=(os.path.relpath(tmp_path),))) == "4"
    assert tp(read(here, f"source ../../../m.sh\n{TRAIN}", sources=(str(tmp_path),))) is None
    (tmp_path / "scripts" / "models" / "m.sh").unlink()
    (tmp_path / "secret.sh").write_text("TP=32\n")
    (tmp_path / "scripts" / "models" / "m.sh").symlink_to(tmp_path / "secret.sh")
    assert tp(read(here, script, sources=(str(tmp_path / "scripts"),))) is None


def test_a_source_that_a_configuration_inherits_from_is_used(tmp_path: Path) -> None:
    here, there = tmp_path / "run", tmp_path / "configs"
    here.mkdir()
    there.mkdir()
    (there / "base.yaml").write_text("policy: {megatron_cfg: {enabled: true, context_parallel_size: 2}}\n")
    (here / "own.yaml").write_text("defaults: base.yaml\n")
    reading = read(here, "python run_grpo.py --config own.yaml cluster.num_nodes=1\n", sources=(str(there),))
    assert reading.dialect == "nemo-rl" and not any("matches no file" in note for note in reading.notes)
    other = tmp_path / "other"
    other.mkdir()
    reading = read(here, "python run_grpo.py --config own.yaml cluster.num_nodes=1\n", sources=(str(other),))
    assert any("matches no file" in note for note in reading.notes)


@pytest.mark.parametrize("path", ["/tmp/m.sh", "../m.sh", "$(dirname $0)/../m.sh", "x/../m.sh", "~/m.sh", "$X/m.sh"])
def test_no_path_leads_out_of_the_scripts_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "m.sh").write_text("TP=4\n")
    inside = tmp_path / "inside"
    (inside / "x").mkdir(parents=True)
    (inside / "m.sh").write_text("TP=4\n")
    reading = read(inside, f"source {path.replace('/tmp', str(tmp_path))}\n{TRAIN}")
    assert tp(reading) is None and "tensor_model_parallel_size" in reading.unknown


def test_links_pipes_devices_folders_and_large_files_are_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.sh"
    secret.write_text("TP=4\n")
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link.sh").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "zero.sh").symlink_to("/dev/zero")
    (folder / "dangling.sh").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe.sh")
    (folder / "folder.sh").mkdir()
    with open(folder / "large.sh", "wb") as file:
        file.truncate(100_000_000)
    (folder / "binary.sh").write_bytes(b"TP=4\0\n")
    (folder / "latin.sh").write_bytes(b"TP=4 # \xe9\n")
    names = "link.sh linked/secret.sh zero.sh dangling.sh pipe.sh folder.sh large.sh binary.sh latin.sh"
    for name in names.split():
        reading = read(folder, f"source {name}\n{TRAIN}")
        assert tp(reading) is None and "is not read" in reading.notes[0], name


def test_files_that_source_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("source b.sh\nTP=4\n")
    (tmp_path / "b.sh").write_text("source a.sh\nsource b.sh\n")
    (tmp_path / "c.sh").write_text("bash c.sh; bash run.sh\n")
    reading = read(tmp_path, f"source a.sh\nbash c.sh\n{TRAIN}")
    assert tp(reading) == "4" and any("source each other" in note for note in reading.notes)


def test_nothing_is_read_beside_a_script_on_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.sh").write_text("TP=4\n")
    monkeypatch.chdir(tmp_path)
    assert tp(read_target("-", stdin=lambda: f"source m.sh\n{TRAIN}".encode())) is None


@pytest.mark.parametrize(("other", "is_read"), [("$SLURM_SUBMIT_DIR", True), ("./other", False)])
def test_a_path_that_hangs_on_a_condition_means_the_one_file_that_is_there(
    tmp_path: Path, other: str, is_read: bool
) -> None:
    (tmp_path / "m.sh").write_text("TP=4\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "m.sh").write_text("TP=8\n")
    own = '"$(cd "$(dirname "$0")" && pwd)"'
    script = f'if [ -n "$IN_JOB" ]; then D={other}; else D={own}; fi\nsource "$D/m.sh"\n{TRAIN}'
    assert (tp(read(tmp_path, script)) == "4") is is_read
