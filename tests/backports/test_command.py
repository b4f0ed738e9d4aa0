"""`hcp backports`, and what `hcp check` says of the same fixes."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
LAUNCH = ("--", *"--num-layers 4 --seq-length 4096 --context-parallel-size 2 --sft --mtp-num-layers 1".split())
PASSES = ("--select", "CP001")
"""The fixes don't depend on the rules that run."""
RELEASES = ("--assume", "mcore=0.17.1")


@pytest.mark.slow
def test_each_fix_has_its_reference_the_release_with_it_and_what_it_is_about(hcp: Hcp) -> None:
    run = hcp("backports", *RELEASES, *LAUNCH)
    assert run.returncode == 0, run.stderr
    (line,) = (line for line in run.stdout.splitlines() if "NVIDIA/Megatron-LM#5243" in line)
    assert line.split()[:2] == ["NVIDIA/Megatron-LM#5243", "0.19.0"]
    assert line.endswith("[context parallelism, packed sequences]")
    assert "not stated: the release of Transformer Engine; add --assume te=VERSION" in run.stdout


@pytest.mark.slow
def test_the_json_holds_what_the_text_says(hcp: Hcp) -> None:
    text = hcp("backports", *RELEASES, "--all", *LAUNCH).stdout
    (result,) = json.loads(hcp("backports", *RELEASES, "--format", "json", *LAUNCH).stdout)["results"]
    (release,) = result["releases"]
    assert (release["package"], release["release"], result["not_stated"]) == ("mcore", "0.17.1", ["te"])
    for fix in (*release["touching"], *release["broad"], *release["open"]):
        assert f"{fix['reference']} " in text and fix["title"] in text


def test_a_check_counts_the_fixes_in_one_line_and_the_verdict_does_not_depend_on_them(hcp: Hcp) -> None:
    said = hcp("check", *RELEASES, *PASSES, *LAUNCH).stdout
    assert "note: the closest of " in said and " later fixes (megatron-core 0.17.1: " in said
    assert sum("later fix" in line for line in said.splitlines()) == 1
    data = json.loads(hcp("check", *RELEASES, "--format", "json", "--full", *LAUNCH).stdout)
    (release,) = data["backports"]
    assert release["package"] == "mcore" and release["first"][0].startswith("NVIDIA/Megatron-LM#")
    assert "later fix" not in hcp("check", *PASSES, *LAUNCH).stdout, "no release is stated"
    failed = hcp("check", *RELEASES, *LAUNCH)
    assert failed.returncode == 1 and "later fix" not in failed.stdout


def test_a_check_names_the_fix_that_is_closest_to_what_the_launch_sets_and_none_that_is_not_close(hcp: Hcp) -> None:
    graphs = "--external-cuda-graph --cuda-graph-scope attn --te-rng-tracker".split()
    stated = ("--assume", "mcore=0.12.2")
    data = json.loads(hcp("check", *stated, "--format", "json", "--full", *LAUNCH, *graphs).stdout)
    (release,) = data["backports"]
    assert release["closest"]["about"] == ["graphs", "te_rng_tracker", "cuda_graph_scope"]
    assert release["closest"]["reference"] not in {fault["reference"] for fault in data.get("faults", ())}
    said = hcp("check", *stated, *PASSES, *LAUNCH, *graphs).stdout
    assert f": hcp backports), fixed in 0.14.0: {release['closest']['title']}" in said
    assert "the closest of" not in hcp("check", *RELEASES, "--", "--num-layers", "4").stdout


def test_a_number_of_fixes_is_nothing_to_act_on_while_the_launch_fails(hcp: Hcp) -> None:
    broad = ("--", "--num-layers", "4", "--mtp-num-layers", "1", "--position-embedding-type", "rope")
    stated = ("check", "--assume", "mcore=0.16.1", "--assume", "world_size=8")
    assert "parts that this launch turns on" in hcp(*stated, *broad).stdout
    failing = hcp(*stated, *broad, "--tensor-model-parallel-size", "3")
    assert failing.returncode == 1 and "hcp backports" not in failing.stdout


def test_what_is_no_launch_is_said_in_one_line(hcp: Hcp, tmp_path) -> None:
    run = hcp("backports", str(tmp_path / "none.sh"))
    assert run.returncode == 2 and run.stdout == ""
    assert len(run.stderr.splitlines()) == 1 and "none.sh" in run.stderr
