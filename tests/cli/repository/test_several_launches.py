"""A script with several training commands: each is judged, named and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LOOP = """\
for CP in 3 8; do
  torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 8 \\
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --context-parallel-size $CP
done
"""
ONLY = ("--select", "TOPO003")


def test_a_loop_over_words_is_a_launch_for_each_word(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP)
    done = hcp("check", "run.sh", *ONLY, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0] == "run.sh:2: launch 1 of 2: context_parallel_size=3"
    assert [line for line in lines if "applied" in line] == [
        "run.sh, launch 1 of 2: FAILED: 1 error, 0 warnings, 0 infos; 1 rule applied, 0 not checked",
        "run.sh, launch 2 of 2: context_parallel_size=8: ok: 0 errors, 0 warnings, 0 infos; 1 rule applied, "
        "0 not checked",
    ]


@pytest.mark.parametrize("options", [(), ("--no-cache",)])
def test_what_holds_for_each_launch_of_a_script_is_said_once(hcp, tmp_path: Path, options: tuple[str, ...]) -> None:
    one = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size {} $@\n"
    (tmp_path / "run.sh").write_text("#SBATCH --output=logs/x.out\nmkdir logs\n" + one.format(2) + one.format(4))
    lines = hcp("check", "run.sh", *options, cwd=tmp_path).stdout.splitlines()
    assert sum("it is read as if started without any" in line for line in lines) == 1
    assert sum("SLURM011" in line for line in lines) == 1
    assert sum("rules applied" in line for line in lines) == 2
    assert lines[-1].startswith("run.sh, launch 2 of 2: context_parallel_size=4: ok")


def test_launches_of_a_script_that_agree_share_a_verdict(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP.replace("3 8", "2 4 3 8"))
    lines = hcp("check", "run.sh", *ONLY, cwd=tmp_path).stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines if "applied" in line] == [
        "run.sh, launches 1 to 2 of 4",
        "run.sh, launch 3 of 4",
        "run.sh, launch 4 of 4",
    ]


def test_launches_share_no_verdict_with_one_between_them_that_passes(hcp, tmp_path: Path) -> None:
    command = LOOP.partition("\n")[2].partition("done")[0].strip().replace("$CP", "$1 --save /x/$2")
    (tmp_path / "run.sh").write_text(f"run() {{ {command}; }}\nrun 3 a\nrun 3 b\nrun 8 c\nrun 3 d\n")
    lines = hcp("check", ".", *ONLY, cwd=tmp_path).stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines if "applied" in line] == [
        "run.sh, launch 1 of 4",
        "run.sh, launch 2 of 4",
        "run.sh, launch 4 of 4",
    ]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("--context-parallel-size $CP --save /x/$CP", "context_parallel_size=3"),
        ("--tensor-model-parallel-size 1 --save /x/$CP --load /y/$CP", "save=/x/3"),
    ],
)
def test_only_what_tells_the_launches_of_a_script_apart_names_them(hcp, tmp_path: Path, more: str, named: str) -> None:
    (tmp_path / "run.sh").write_text(LOOP.replace("--context-parallel-size $CP", more))
    data = json.loads(hcp("check", "run.sh", "--format", "json", *ONLY, cwd=tmp_path).stdout)
    assert data["results"][0]["target"]["command"] == f"launch 1 of 2: {named}"


def test_json_names_the_command_and_its_line(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP)
    data = json.loads(hcp("check", "run.sh", "--format", "json", *ONLY, cwd=tmp_path).stdout)
    assert data["schema"] == "hcp.check-many/2" and data["summary"]["targets"] == 2
    told = [(item["verdict"], item["target"]["command"], item["target"]["line"]) for item in data["results"]]
    assert told == [
        ("failed", "launch 1 of 2: context_parallel_size=3", 2),
        ("ok", "launch 2 of 2: context_parallel_size=8", 2),
    ]


def test_sarif_and_github_say_which_launch_a_finding_is_about(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP)
    sarif = json.loads(hcp("check", "run.sh", "--format", "sarif", *ONLY, cwd=tmp_path).stdout)
    (result,) = sarif["runs"][0]["results"]
    assert "[launch 1 of 2: context_parallel_size=3]" in result["message"]["text"]
    (line,) = hcp("check", "run.sh", "--format", "github", *ONLY, cwd=tmp_path).stdout.splitlines()
    assert "%0Alaunch 1 of 2: context_parallel_size=3%0A" in line


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("second", "code"),
    [
        ("torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 3", 1),
        ("torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8", 0),
        ("torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size $X", 4),
        ("python tools/checkpoint/convert.py --target-tensor-model-parallel-size 3", 0),
        ("python tools/preprocess_data.py --input x --num-layers 3", 0),
    ],
)
def test_the_exit_code_is_that_of_the_worst_launch(hcp, tmp_path: Path, second: str, code: int) -> None:
    first = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 4"
    (tmp_path / "run.sh").write_text(f"{first}\n{second}\n")
    assert hcp("check", "run.sh", *ONLY, cwd=tmp_path).returncode == code
    (tmp_path / "run.sh").write_text(f"{second}\n{first}\n")
    assert hcp("check", "run.sh", *ONLY, cwd=tmp_path).returncode == code


def test_a_launch_that_is_started_again_is_judged_once(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP.replace("3 8", "8 8"))
    done = hcp("check", "run.sh", *ONLY, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == "run.sh: note: the same launch is started 2 times" and len(lines) == 2


def test_a_patch_mends_the_launch_that_it_is_for(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP.replace("$CP", "8").replace("in 3 8", "in 1") + LOOP[19:].replace("$CP", "3"))
    done = hcp("check", "run.sh", "--diff", *ONLY, cwd=tmp_path)
    changed = [line for line in done.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2 and "--context-parallel-size 3" in changed[0]


def test_show_prints_every_launch(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP)
    done = hcp("show", "run.sh", "--format", "json", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert [item["facts"]["cp"]["value"] for item in data["results"]] == [3, 8]


def test_arguments_and_sources_are_options(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("source $M\n" + LOOP.replace("in 3 8", 'in "$@"').replace("$CP", "$CP $MORE"))
    (tmp_path / "m.sh").write_text("MORE='--tensor-model-parallel-size 2'\n")
    done = hcp("show", "run.sh", "--args", "2 '4'", "--source", "m.sh", "--format", "json", cwd=tmp_path)
    facts = [item["facts"] for item in json.loads(done.stdout)["results"]]
    assert [(one["cp"]["value"], one["tp"]["value"]) for one in facts] == [(2, 2), (4, 2)]
    for wrong in (("--args", "'a"), ("--source", "nothing.sh")):
        done = hcp("check", "run.sh", *wrong, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_what_strict_alone_refuses_is_said_in_a_folder_and_quietly(hcp, root, tmp_path) -> None:
    (tmp_path / "a.sh").write_text((root / "examples" / "mlm_hcp.sbatch").read_text())
    quiet = hcp("check", "a.sh", "--strict", "--quiet", cwd=tmp_path)
    folder = hcp("check", ".", "--strict", cwd=tmp_path)
    assert quiet.returncode == folder.returncode == 1
    assert "a.sh: FAILED (--strict)" in quiet.stdout and "a.sh: FAILED (--strict)" in folder.stdout
    assert "checked 1 launch in 1 file: 1 failed, 0 undecided, 0 ok" in folder.stdout
