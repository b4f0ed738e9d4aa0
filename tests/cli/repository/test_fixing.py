"""`hcp check --fix`: what it writes, what it leaves to a person, and that a file's style stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.cli.repository.fixing import fix_file
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import RULES
from support.processes import HANG_S

TWO_LEVELS = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8 --seq-length 4096 "
    "--max-position-embeddings 4096 --cp-comm-type a2a+p2p{more}\n"
)


def test_a_fix_is_written_and_the_rest_of_the_file_stays(hcp, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("# before\r\n" + TWO_LEVELS.format(more="").replace("\n", "\r\n") + "# after\r\n", newline="")
    before = path.read_bytes()
    done = hcp("check", "run.sh", "--fix", "--select", "HCP001", cwd=tmp_path)
    after = path.read_bytes()
    assert done.returncode == 0 and "fixed run.sh: HCP001" in done.stderr
    assert after.replace(b" --hierarchical-context-parallel-sizes 4 2", b"") == before != after


@pytest.mark.parametrize("more", ["", " --bf16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_flag_beside_one_that_has_a_line_alone_gets_a_line_alone(hcp, tmp_path: Path, end: str, more: str) -> None:
    flags = TWO_LEVELS.format(more=more).rstrip("\n").replace(" --", f" \\{end}    --") + end
    path = tmp_path / "run.sh"
    path.write_text(flags, newline="")
    hcp("check", "run.sh", "--fix", "--select", "HCP001", cwd=tmp_path)
    new = f" \\{end}    --hierarchical-context-parallel-sizes 4 2"
    assert path.read_bytes().decode() == flags.replace("a2a+p2p", f"a2a+p2p{new}")


def test_with_diff_nothing_is_written(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(TWO_LEVELS.format(more=""))
    done = hcp("check", "run.sh", "--fix", "--diff", "--select", "HCP001", cwd=tmp_path)
    assert "+torchrun" in done.stdout and done.returncode == 1
    assert (tmp_path / "run.sh").read_text() == TWO_LEVELS.format(more="")


def test_a_size_that_the_launch_states_is_left_to_a_person(hcp, tmp_path: Path) -> None:
    text = TWO_LEVELS.replace("4096", "4100").format(more="").replace("a2a+p2p", "p2p")
    (tmp_path / "run.sh").write_text(text)
    done = hcp("check", "run.sh", "--fix", "--select", "CP001", cwd=tmp_path)
    assert done.returncode == 1 and "not fixed run.sh: CP001: each fix changes" in done.stderr
    assert (tmp_path / "run.sh").read_text() == text


def test_a_size_that_is_no_fact_is_left_to_a_person(hcp, tmp_path: Path) -> None:
    """verl's RolloutConfig.__post_init__ wants expert parallelism over all ranks of a replica; which is meant?"""
    launch = "".join(
        f"actor_rollout_ref.{item} "
        for item in (
            "model.path=Qwen/Qwen3-30B-A3B actor.strategy=megatron rollout.tensor_model_parallel_size=4",
            "rollout.expert_parallel_size=8 rollout.name=vllm rollout.data_parallel_size=4",
        )
        for item in item.split()
    )
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.main_ppo {launch}\n")
    done = hcp("check", "run.sh", "--fix", "--assume", "verl=0.8.0", cwd=tmp_path)
    assert "not fixed run.sh: START025/RolloutConfig" in done.stderr, done.stderr
    assert set(launch.split()) <= set((tmp_path / "run.sh").read_text().split())


def test_every_launch_of_a_script_is_fixed(hcp, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(TWO_LEVELS.format(more="") + TWO_LEVELS.format(more=" --bf16"))
    done = hcp("check", "run.sh", "--fix", "--select", "HCP001", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "run.sh").read_text().count("--hierarchical-context-parallel-sizes 4 2") == 2


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(TWO_LEVELS.format(more=""))
    words = [sys.executable, "-m", "megatron_hcp", "check", "run.sh", "--fix", "--select", "HCP001"]
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *words]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 2 and done.stderr.startswith("hcp: cannot write run.sh: File too large")
    assert done.stderr.count("\n") == 1 and (tmp_path / "run.sh").read_text() == TWO_LEVELS.format(more="")
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]


def test_what_somebody_writes_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(TWO_LEVELS.format(more=""))

    def check() -> list[Report]:
        report = check_launch(load_launch(str(path), LoadOptions()), RULES)
        path.write_text("somebody's")
        return [report]

    with pytest.raises(HcpError, match="changed while its fixes were tried; run the command again"):
        fix_file(str(path), check, RULES)
    assert path.read_text() == "somebody's"


def test_without_a_file_there_is_nothing_to_write(hcp, tmp_path: Path) -> None:
    done = hcp("check", "-", "--fix", cwd=tmp_path, stdin=TWO_LEVELS.format(more=""))
    assert (done.returncode, done.stdout) == (2, "") and "found --fix without a file" in done.stderr
