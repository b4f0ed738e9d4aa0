"""`hcp show`: the topology first, then what is written, and why the rest is unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.cli.reports.show import topology
from megatron_hcp.launch.load import LoadOptions, load_launch

OVERRIDES = "model.context_parallel_size=4\nmodel.cp_comm_type=a2a+p2p\n"
SIZES = "--tensor-model-parallel-size 2 --context-parallel-size 8 --seq-length 131072"
HCP = f"{SIZES} --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2"


@pytest.mark.parametrize(
    ("words", "assumed", "line"),
    [
        (
            HCP,
            "nodes=4 gpus_per_node=8",
            "32 ranks = 4 nodes x 8; tp 2, cp 8 (a2a 4 x p2p 2), pp 1, dp 2; seq 131072; 16384 tokens per rank",
        ),
        (SIZES, "", "ranks unknown; tp 2, cp 8 (p2p), pp 1, dp ?; seq 131072; 16384 tokens per rank"),
        (
            f"{SIZES} --cp-comm-type p2p a2a p2p",
            "world_size=16",
            "16 ranks; tp 2, cp 8 (p2p, a2a by layer), pp 1, dp 1;",
        ),
        (
            f"{SIZES} --seq-length 1001",
            "nodes=1 gpus_per_node=1",
            "1 rank = 1 node x 1; tp 2, cp 8 (p2p), pp 1, dp ?; ",
        ),
        (
            "--hybrid-context-parallel --seq-length 4",
            "",
            "ranks unknown; tp 1, cp 1 (dynamic), pp 1, dp ?; seq 4; 4 tokens",
        ),
        (f"{SIZES} --pipeline-model-parallel-size 4 --expert-model-parallel-size 4", "", "pp 4, ep 4, dp ?"),
    ],
)
def test_the_topology_is_one_line(words: str, assumed: str, line: str) -> None:
    launch = load_launch("", LoadOptions(words=tuple(words.split()), assumes=tuple(assumed.split()), dialect="mlm"))
    assert line in topology(launch)


def test_it_begins_with_the_topology_and_names_what_is_written_and_assumed(hcp, tmp_path: Path) -> None:
    (tmp_path / "launch.txt").write_text(OVERRIDES)
    done = hcp("show", "launch.txt", "--assume", "te=2.14", cwd=tmp_path)
    assert done.stdout.startswith("launch.txt: bridge (overrides): ranks unknown; tp ")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["cp", "4", "[launch]", "model.context_parallel_size", "launch.txt:1:29"] in lines
    assert ["te", "2.14", "[assumed]"] in lines
    assert (done.returncode, done.stderr) == (0, "")
    assert hcp("check", "launch.txt", "--show", "--assume", "te=2.14", cwd=tmp_path).stdout == done.stdout


def test_defaults_are_folded_unless_all_is_asked_for(hcp, root: Path) -> None:
    short, long = (hcp("show", "examples/mlm_broken.sh", *more, cwd=root).stdout for more in ((), ("--all",)))
    folded = [line for line in short.splitlines() if "at upstream's default; --all lists them" in line]
    assert len(folded) == 1 and "[default]" not in short
    assert int(folded[0].split()[0]) == long.count("  [default]") > 50
    data = json.loads(hcp("show", "examples/mlm_broken.sh", "--format", "json", cwd=root).stdout)
    assert sum(fact["origin"] == "default" for fact in data["facts"].values()) == long.count("  [default]")


def test_it_says_why_a_key_is_unknown(hcp, tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(
        'torchrun pretrain_gpt.py --context-parallel-size "$CP" --seq-length "$SEQ" $MORE\n'
    )
    shown = hcp("show", "launch.sh", cwd=tmp_path).stdout
    assert "  unknown: cp: CP is not set in this script\n" in shown
    assert "  unknown: every key that is not written: " in shown


def test_all_is_for_show_alone(hcp, root: Path) -> None:
    done = hcp("check", "examples/mlm_broken.sh", "--all", cwd=root)
    assert done.returncode == 2 and done.stderr.startswith("hcp: found --all without --show; wanted both;")
    done = hcp("check", "examples/mlm_broken.sh", "--show", "--format", "sarif", cwd=root)
    assert done.returncode == 2
