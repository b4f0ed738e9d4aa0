"""`hcp groups` as a process: exact output, exit codes, JSON against the arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from megatron_hcp.core.kinds import kinds_of
from megatron_hcp.core.ranks import grids_of

Hcp = Callable[..., "CompletedProcess[str]"]


def test_the_table_says_which_level_leaves_the_node(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "32", "--tp", "2", "--cp", "8", "--hcp", "4,2", "--ep", "4")
    assert (
        done.stdout
        == """\
32 ranks on 4 nodes of 8 GPUs, block placement
dense tp 2 cp 8 dp 2 pp 1; expert etp 2 ep 4 edp 4 pp 1 (fastest first)
group      size  count  cross node  ranks
dp-cp        16      2         all  0 2 4 ... 30 | 1 3 5 ... 31
dp            2     16         all  0 16 | 1 17 | 2 18 | ...
cp            8      4         all  0 2 4 6 8 10 12 14 | 1 3 5 7 9 11 13 15 | 16 18 20 22 24 26 28 30 | ...
cp.L0 a2a     4      8           -  0 2 4 6 | 8 10 12 14 | 1 3 5 7 | ...
cp.L1 p2p     2     16         all  0 8 | 2 10 | 4 12 | ...
mp            2     16           -  0 1 | 2 3 | 4 5 | ...
tp            2     16           -  0 1 | 2 3 | 4 5 | ...
tp-dp-cp     32      1         all  0-31
tp-dp         4      8         all  0 1 16 17 | 2 3 18 19 | 4 5 20 21 | ...
tp-cp        16      2         all  0-15 | 16-31
ep            4      8           -  0 2 4 6 | 1 3 5 7 | 8 10 12 14 | ...
etp           2     16           -  0 1 | 2 3 | 4 5 | ...
etp-ep        8      4           -  0-7 | 8-15 | 16-23 | ...
etp-ep-pp     8      4           -  0-7 | 8-15 | 16-23 | ...
edp           4      8         all  0 8 16 24 | 1 9 17 25 | 2 10 18 26 | ...
groups of one rank: pp
level 0 (a2a) stays within one node
level 1 (p2p) crosses nodes in 16 of 16 groups
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_nvlink_domain_over_several_nodes_has_a_column_of_its_own(hcp: Hcp) -> None:
    done = hcp(
        "groups", "--world-size", "32", "--cp", "16", "--hcp", "[8 2]", "--gpus-per-node", "4", "--nvlink-domain", "8"
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "32 ranks on 8 nodes of 4 GPUs, block placement, NVLink domains of 8"
    assert lines[6] == "cp.L0 a2a     8      4         all             -  0-7 | 8-15 | 16-23 | ..."
    assert lines[-2:] == [
        "level 0 (a2a) stays within one NVLink domain",
        "level 1 (p2p) crosses NVLink domains in 16 of 16 groups",
    ]


def test_cyclic_placement_turns_the_levels_round(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "32", "--cp", "32", "--hcp", "8,4", "--placement", "cyclic")
    assert done.stdout.splitlines()[-2:] == [
        "level 0 (a2a) crosses nodes in 4 of 4 groups",
        "level 1 (p2p) stays within one node",
    ]


def test_one_rank_has_a_line_per_group(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "32", "--tp", "2", "--cp", "16", "--hcp", "8,2", "--rank", "5")
    assert (
        done.stdout
        == """\
32 ranks on 4 nodes of 8 GPUs, block placement
dense tp 2 cp 16 dp 1 pp 1; expert etp 2 ep 1 edp 16 pp 1 (fastest first)
rank 5: node 0; dense tp 1 cp 2 dp 0 pp 0; expert etp 1 ep 0 edp 2 pp 0
group      number    place  crosses  ranks
dp-cp           1  2 of 16     node  1 3 5 ... 31
cp              1  2 of 16     node  1 3 5 ... 31
cp.L0 a2a       2   2 of 8     node  1 3 5 7 9 11 13 15
cp.L1 p2p      10   0 of 2     node  5 21
mp              2   1 of 2        -  4 5
tp              2   1 of 2        -  4 5
tp-dp-cp        0  5 of 32     node  0-31
tp-dp           2   1 of 2        -  4 5
tp-cp           0  5 of 32     node  0-31
etp             2   1 of 2        -  4 5
etp-ep          2   1 of 2        -  4 5
etp-ep-pp       2   1 of 2        -  4 5
edp             1  2 of 16     node  1 3 5 ... 31
"""
    )
    assert done.returncode == 0


def test_all_writes_every_group_out(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "16", "--cp", "16", "--hcp", "8,2", "--all")
    lines = done.stdout.splitlines()
    at = lines.index("cp.L1 p2p: 8 x 2  HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1")
    assert lines[at + 1 : at + 9] == [f"  {rank} {rank + 8}  [2 nodes]" for rank in range(8)]
    assert lines[lines.index("cp: 1 x 16  CONTEXT_PARALLEL_GROUP") + 1] == "  0-15  [2 nodes]"


def test_a_rank_that_shares_no_group_is_said_to_be_alone(hcp: Hcp) -> None:
    assert hcp("groups", "--world-size", "1", "--rank", "0").stdout.endswith("\nthis rank is alone in all its groups\n")


def test_a_rank_of_a_huge_world_has_its_groups(hcp: Hcp) -> None:
    done = hcp(
        "groups",
        "--world-size",
        "512000000000",
        "--tp",
        "8",
        "--cp",
        "16",
        "--hcp",
        "2,8",
        "--rank",
        "511999999999",
    )
    assert re.search(r"^cp\.L0 a2a +255999999999 +1 of 2 +node  511999999991 511999999999$", done.stdout, re.MULTILINE)
    assert re.search(r"^tp-dp-cp +0 +511999999999 of 512000000000 +node  0-511999999999$", done.stdout, re.MULTILINE)


def test_the_json_holds_every_group_in_order(hcp: Hcp) -> None:
    done = hcp(
        "groups",
        "--world-size",
        "48",
        "--tp",
        "2",
        "--cp",
        "6",
        "--pp",
        "2",
        "--ep",
        "3",
        "--etp",
        "1",
        "--hcp",
        "3,2",
        "--format",
        "json",
        "--gpus-per-node",
        "4",
        "--nvlink-domain",
        "8",
    )
    told = json.loads(done.stdout)
    groups = told.pop("groups")
    assert told == {
        "schema": "hcp.groups/1",
        "ok": True,
        "world_size": 48,
        "order": "tp-cp-ep-dp-pp",
        "dense": {"tp": 2, "cp": 6, "dp": 2, "pp": 2},
        "expert": {"etp": 1, "ep": 3, "edp": 8, "pp": 2},
        "hcp_sizes": [3, 2],
        "placement": {"kind": "block", "gpus_per_node": 4, "nvlink_domain": 8, "num_nodes": 12},
    }
    kinds = kinds_of(grids_of(48, tp=2, cp=6, pp=2, ep=3, etp=1), (3, 2))
    assert [(group["name"], group["ranks"]) for group in groups] == [
        (kind.name, [list(ranks) for ranks in kind.groups]) for kind in kinds
    ]
    for group in groups:
        assert group["nodes_per_group"] == [len({rank // 4 for rank in ranks}) for ranks in group["ranks"]]
        assert group["nvlink_domains_per_group"] == [len({rank // 8 for rank in ranks}) for ranks in group["ranks"]]
        assert group["num_cross_node"] == sum(count > 1 for count in group["nodes_per_group"])
        assert group["num_cross_nvlink_domain"] == sum(count > 1 for count in group["nvlink_domains_per_group"])
        assert (group["num_groups"], group["group_size"]) == (len(group["ranks"]), len(group["ranks"][0]))
    kind_lines = [line for line in done.stdout.splitlines() if '"upstream"' in line]
    assert len(kind_lines) == len(kinds), "a line per kind of group"


def test_the_json_of_a_rank_is_its_part_of_the_whole(hcp: Hcp) -> None:
    args = ("groups", "--world-size", "64", "--tp", "2", "--gtp", "2", "--cp", "4", "--hcp", "2,2", "--format", "json")
    whole, mine = json.loads(hcp(*args).stdout), json.loads(hcp(*args, "--rank", "37").stdout)
    assert (mine["schema"], mine["rank"], mine["node"], mine["ok"]) == ("hcp.groups-rank/1", 37, 4, True)
    assert mine["dense_position"] == {"tp": 1, "gtp": 0, "cp": 1, "dp": 2, "pp": 0}
    assert mine["expert_position"] == {"etp": 1, "ep": 0, "edp": 18, "pp": 0}
    assert len(whole["groups"]) == len(mine["groups"])
    for group, part in zip(whole["groups"], mine["groups"]):
        assert part["name"] == group["name"]
        assert part["ranks"] == group["ranks"][part["group_index"]]
        assert part["ranks"][part["position"]] == 37
        assert part["is_cross_node"] == (group["nodes_per_group"][part["group_index"]] > 1)


def test_a_picture_replaces_no_file_that_hcp_did_not_make(hcp: Hcp, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    done = hcp("groups", "--world-size", "16", "--svg", "thesis.txt", cwd=tmp_path)
    assert done.returncode == 2 and "was not made by hcp" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "three years of work"


def test_the_picture_is_written_and_said_on_stderr(hcp: Hcp, tmp_path: Path) -> None:
    done = hcp("groups", "--world-size", "16", "--cp", "16", "--hcp", "8,2", "--svg", "out.svg", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "wrote out.svg\n")
    assert done.stdout.startswith("16 ranks on 2 nodes of 8 GPUs")
    assert ElementTree.parse(tmp_path / "out.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("", "Missing option '--world-size'."),
        ("--world-size eight", "--world-size: found 'eight'; wanted a whole number"),
        ("--world-size 8 --tp -2", "tp is -2: wanted a size of 1 or more"),
        ("--world-size 0", "world_size is 0: wanted a size of 1 or more"),
        (
            "--world-size 8 --cp 3",
            "world_size 8 is not a multiple of tp 1 x cp 3 x pp 1 = 3: no data-parallel size "
            "fits; use 6 or 9 ranks, or other sizes",
        ),
        ("--world-size 8 --cp 8 --hcp 4,4", "hierarchical sizes [4,4] multiply to 16: wanted the cp size, 8"),
        ("--world-size 8 --cp 8 --hcp a,b", "--hcp 'a,b': wanted level sizes such as 8,2, the inner (a2a) one first"),
        ("--world-size 8 --cp 8 --hcp []", "--hcp '[]': wanted level sizes such as 8,2, the inner (a2a) one first"),
        ("--world-size 8 --rank 8", "--rank is outside a world of 8 ranks: wanted 0 to 7"),
        ("--world-size 8 --rank -1", "--rank is outside a world of 8 ranks: wanted 0 to 7"),
        (
            "--world-size 131072",
            "--world-size 131072: at most 65536 ranks are listed or drawn; ask for one rank's "
            "groups in text (--rank R)",
        ),
        (f"--world-size {'9' * 3000}", "a size is above 1000000000000: wanted numbers of GPUs"),
        ("--world-size 8 --gpus-per-node 0", "gpus_per_node is 0: wanted a size of 1 or more"),
        ("--world-size 8 --placement plane", "--placement: found 'plane'; wanted one of block, cyclic"),
        (
            "--world-size 8 --svg no/such/folder.svg",
            "--svg no/such/folder.svg: cannot be written (No such file or "
            "directory); name a file in a folder that exists",
        ),
        (
            "--world-size 400 --gpus-per-node 200 --svg x.svg",
            "gpus_per_node 200: a picture has room for 144 GPUs per node",
        ),
    ],
)
def test_unusable_input_is_one_line_and_exit_2(hcp: Hcp, tmp_path: Path, args: str, said: str) -> None:
    done = hcp("groups", *args.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"hcp: {said}\n")


def test_text_is_plain_ascii(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "48", "--tp", "2", "--cp", "24", "--hcp", "2,3,4", "--all")
    assert re.fullmatch(r"[\x20-\x7e\n]*", done.stdout)
    assert done.stdout.endswith(
        "\nnote: Transformer Engine requires exactly two levels, although megatron-core builds these groups\n"
    )


def test_an_expert_grid_that_only_fits_with_whole_experts_says_whose_default_that_is(hcp: Hcp) -> None:
    done = hcp("groups", "--world-size", "8", "--tp", "4", "--ep", "8")
    assert done.returncode == 2 and "state --etp 1 if that is meant" in done.stderr
    assert hcp("groups", "--world-size", "8", "--tp", "4", "--ep", "8", "--etp", "1").returncode == 0
    assert "--etp 1" not in hcp("groups", "--world-size", "6", "--tp", "4", "--ep", "8").stderr
