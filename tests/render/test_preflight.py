"""What the job's first phases find on its nodes, without a cluster."""

import json
import os
import subprocess
import sys

import pytest

from megatron_hcp.job.nodes import differences
from megatron_hcp.job.placement import misplaced_rank
from megatron_hcp.launch.fact import UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.render.job import plan_job
from megatron_hcp.render.site import load_site
from support.processes import HANG_S


def _node(name, clock=1000.0, driver="550.1", wanted=8, mounts=None, **facts):
    return {
        "node": name,
        "facts": {"torch": "2.5.1", "gpus_per_node": 8, **facts},
        "driver": driver,
        "clock": clock,
        "wanted_gpus": wanted,
        "mounts": mounts or {},
    }


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (_node("b"), None),
        (_node("b", torch="2.4.0"), "torch differs: 2.5.1 on a, 2.4.0 on b"),
        (_node("b", te="2.14"), "te differs: None on a, 2.14 on b"),
        (_node("b", driver="560.0"), "driver differs: 550.1 on a, 560.0 on b"),
        (_node("b", gpus_per_node=7), "gpus_per_node differs: 8 on a, 7 on b"),
        (_node("b", clock=1100.0), "the clocks are 100 s apart: a is behind b"),
        (_node("b", mounts={"/data": False}), "/data does not exist on b"),
    ],
)
def test_nodes_that_differ_are_named(second, said):
    found = differences([_node("a"), second], 2)
    assert found[:1] == ([said] if said else [])


def test_a_node_that_did_not_report_is_missed():
    assert differences([_node("a")], 2) == ["1 of 2 nodes reported (a); the others did not start a task"]


FREE = {"problem": None, "probe": "/ckpt/.probe", "free_gib": 5.0}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"/ckpt": FREE}, []),
        ({"/ckpt": {**FREE, "wanted_gib": 5}}, []),
        ({"/ckpt": {**FREE, "wanted_gib": 6}}, ["/ckpt has 5.0 GiB free on b: wanted 6"]),
        (
            {"/ckpt": {**FREE, "problem": "Read-only file system", "free_gib": None}},
            ["b cannot write to /ckpt: Read-only file system"],
        ),
    ],
)
def test_folders_that_cannot_take_a_checkpoint_are_named(written, said):
    assert differences([_node("a"), {**_node("b"), "written": written}], 2) == said


def _on_node(folder, node, *words, lines=""):
    return subprocess.run(
        [sys.executable, "-m", "megatron_hcp.render.preflight", *words],
        input=lines,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=folder,
        env={**os.environ, "SLURMD_NODENAME": node, "SLURM_JOB_ID": "7"},
    )


@pytest.mark.slow
def test_every_node_writes_where_checkpoints_will_be_and_the_first_one_sees_it(tmp_path):
    words = ["node", "--write", "logs", "--write", "ckpt/run"]
    lines = [_on_node(tmp_path, node, *words).stdout for node in "ab"]
    assert len(list((tmp_path / "ckpt" / "run").iterdir())) == 2
    done = _on_node(tmp_path, "a", "agree", "--nodes", "2", lines="".join(lines))
    assert (done.returncode, done.stderr) == (0, "")
    assert not list((tmp_path / "ckpt" / "run").iterdir()) and not list((tmp_path / "logs").iterdir())


@pytest.mark.slow
def test_a_folder_that_is_another_one_on_each_node_is_not_shared(tmp_path):
    here, there = tmp_path / "a", tmp_path / "b"
    here.mkdir()
    there.mkdir()
    words = ["node", "--write", "ckpt"]
    lines = [_on_node(folder, folder.name, *words).stdout for folder in (here, there)]
    done = _on_node(here, "a", "agree", "--nodes", "2", lines="".join(lines))
    assert done.returncode == 1
    assert done.stderr == "hcp preflight: ckpt is not shared: a does not see the file that b wrote there\n"


def test_a_file_in_the_place_of_a_folder_is_said_as_what_it_is(tmp_path):
    (tmp_path / "ckpt").write_text("")
    line = _on_node(tmp_path, "a", "node", "--write", "ckpt").stdout
    done = _on_node(tmp_path, "a", "agree", "--nodes", "1", lines=line)
    assert done.returncode == 1 and done.stderr == "hcp preflight: a cannot write to ckpt: File exists\n"


def test_too_few_gpus_on_every_node_are_found():
    both = [_node(name, gpus_per_node=4) for name in "ab"]
    assert differences(both, 2) == ["a has 4 GPUs: wanted 8", "b has 4 GPUs: wanted 8"]


@pytest.mark.parametrize(
    ("nodes", "rank"),
    [
        ("aabb", None),
        ("abab", 1),
        ("aaab", 3),
        ("aabc", 3),
        ("ab", 1),
        ("aa", None),
        ("bbaa", None),
    ],
)
def test_the_first_rank_outside_its_block_is_found(nodes, rank):
    assert misplaced_rank(nodes, 2) == rank


def _preflight(*words, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "megatron_hcp.render.preflight", *map(str, words)],
        input=stdin,
        text=True,
        capture_output=True,
        timeout=HANG_S,
    )


@pytest.mark.slow
def test_what_a_node_prints_is_what_the_comparison_reads(tmp_path):
    node = _preflight("node", "--mount", tmp_path)
    assert node.returncode == 0, node.stderr
    agreed = _preflight("agree", "--nodes", 1, stdin="a line of somebody else\n" + node.stdout)
    assert agreed.returncode == 0, agreed.stderr
    facts = json.loads(node.stdout)["facts"]
    assert dict(line.split("=", 1) for line in agreed.stdout.splitlines()) == {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in facts.items()
    }
    assert _preflight("agree", "--nodes", 2, stdin=node.stdout).returncode == 1
    missing = _preflight("node", "--mount", tmp_path / "nowhere").stdout
    refused = _preflight("agree", "--nodes", 1, stdin=missing)
    assert (refused.returncode, refused.stdout) == (1, "") and "nowhere does not exist" in refused.stderr


def _ranks(nodes, *words):
    done = _preflight(
        "ranks", *words, stdin="".join(f"{rank} {node}\n" for rank, node in reversed(list(enumerate(nodes))))
    )
    events = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines()]
    return done, events


def test_the_map_of_ranks_names_every_place():
    done, events = _ranks(["a"] * 4 + ["b"] * 4, "--gpus-per-node=4", "--tp=2", "--cp=2", "--hcp=2,1", "--pp=2")
    assert done.returncode == 0, done.stderr
    ranks = {event["rank"]: event for event in events if event["event"] == "rank"}
    assert ranks[6] == {
        "event": "rank",
        "rank": 6,
        "node": "b",
        "tp": 0,
        "dp": 0,
        "pp": 1,
        "cp_inner": 1,
        "cp_outer": 0,
    }
    assert {"event": "group", "desc": "HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", "ranks": [5, 7]} in events
    assert events[-1] == {"event": "inner-groups", "inside_a_node": True}


def test_inner_groups_that_leave_their_node_by_plan_are_said_but_do_not_stop_the_job():
    done, events = _ranks("aabb", "--gpus-per-node=2", "--cp=4", "--hcp=4,1")
    assert done.returncode == 0 and events[-1]["inside_a_node"] is False


def test_ranks_that_are_not_in_blocks_stop_the_job():
    done, events = _ranks("abab", "--gpus-per-node=2", "--cp=4", "--hcp=2,2")
    assert done.returncode == 1 and "rank 1 is on b, rank 0 on a" in done.stderr
    assert events[-1] == {"event": "inner-groups", "inside_a_node": False}


def test_a_world_that_the_sizes_do_not_divide_is_refused_in_one_line():
    done, _ = _ranks("aabb", "--gpus-per-node=2", "--cp=3")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "multiple" in done.stderr


def test_an_unknown_check_is_refused():
    done = _preflight("run", "no_such_check")
    assert done.returncode == 1 and "no such check" in done.stderr


@pytest.mark.parametrize(
    ("asked", "trees", "wanted"),
    [
        ({}, [UpstreamTree("megatron-lm", "/shared/mlm", None)], None),
        ({"preflight": "dryrun"}, [], ["--upstream=installed"]),
        ({"preflight": "dryrun"}, [UpstreamTree("megatron-lm", "/a", None)], ["--upstream=megatron-lm=/a"]),
        (
            {"preflight": "dryrun"},
            [UpstreamTree("megatron-lm", "a", None)],
            [f"--upstream=megatron-lm={os.getcwd()}/a"],
        ),
    ],
)
def test_upstreams_code_runs_before_training_only_where_the_job_was_asked_for_it(asked, trees, wanted):
    launch = load_launch("", LoadOptions(dialect="mlm", words=("--num-layers", "2")))
    launch = launch._replace(reading=launch.reading._replace(upstream=tuple(trees)))
    given = {"nodes": "1", "gpus_per_node": "8", "time": "1:00:00", "program": ("pretrain_gpt.py",), **asked}
    assert plan_job("srun", load_site(None, given), launch).spec.dryrun == wanted
