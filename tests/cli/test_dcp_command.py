"""`hcp dcp` as a process: exact output, exit codes, JSON against the arithmetic, every way to give lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
PLAN = ("dcp", "plan", "--world-size", "8", "--max-seqlen", "1024")


def test_a_plan_as_text(hcp: Hcp) -> None:
    """Eight sequences of one length that a rank just holds: one micro-batch, nobody waits, nothing to choose."""
    done = hcp(*PLAN, "--lengths", ",".join(["1024"] * 8))
    assert (
        done.stdout
        == """\
8 sequences, 8192 tokens (the longest 1024) on 8 ranks of at most 1024 tokens
groups pow2: 1 2 4 8
policy balanced: 1 micro-batch, imbalance 1.000 (0.0% idle), groups 1.00 x the smallest that fit, at most 1.00 of the \
tokens a rank may hold
mb   time  idle  seqs  tokens  groups (count x size)
 0  1.000  0.0%     8    8192  8x1
time: 1 = all work / ranks; the sum of all micro-batches is the imbalance
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_json_places_every_sequence_once_on_aligned_disjoint_groups(hcp: Hcp) -> None:
    lengths = [3000, 100, 900, 7000, 1500, 40, 1024, 1025, 2048, 512]
    done = hcp(*PLAN, "--lengths", ",".join(map(str, lengths)), "--format", "json")
    told = json.loads(done.stdout)
    assert (told["schema"], told["policy"], told["world_size"], told["max_seqlen_per_rank"]) == (
        "hcp.dcp-plan/1",
        "balanced",
        8,
        1024,
    )
    placed = []
    for batch in told["micro_batches"]:
        ranks = [rank for group in batch["groups"] for rank in group["ranks"]]
        assert sorted(ranks) == list(range(8))
        for group in batch["groups"]:
            size, start = group["local_cp_size"], group["ranks"][0]
            assert group["ranks"] == list(range(start, start + size)) and start % size == 0
            assert (
                sum(-(-lengths[i] // (2 * size if size > 1 else 1)) * (2 if size > 1 else 1) for i in group["samples"])
                <= 1024
            )
            placed += group["samples"]
    assert sorted(placed) == list(range(len(lengths)))
    metrics = {"imbalance", "mean_cp_over_min", "num_micro_batches", "token_fill", "lower_bound", "estimated_s"}
    assert set(told["metrics"]) == metrics
    assert told["metrics"]["num_micro_batches"] == len(told["micro_batches"])


def test_policy_pr5869_is_the_split_of_the_pull_request(hcp: Hcp) -> None:
    """Vector 17: 10 sequences of 2000 tokens on 8 ranks of 1024 give groups of 2 with 3, 3, 2 and 2 sequences."""
    done = hcp(*PLAN, "--lengths", ",".join(["2000"] * 10), "--policy", "pr5869", "--format", "json")
    (batch,) = json.loads(done.stdout)["micro_batches"]
    assert [(group["ranks"], group["samples"]) for group in batch["groups"]] == [
        ([0, 1], [0, 1, 2]),
        ([2, 3], [3, 4, 5]),
        ([4, 5], [6, 7]),
        ([6, 7], [8, 9]),
    ]


def test_policies_side_by_side_say_which_holds_too_many_tokens(hcp: Hcp) -> None:
    done = hcp(*PLAN, "--lengths", ",".join(["2000"] * 10), "--compare")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[2:]] == ["policy balanced", "policy pr5869"]
    # Three sequences of 2000 on two ranks are 3000 tokens a rank where 1024 are allowed.
    assert lines[3].endswith("at most 2.93 of the tokens a rank may hold (TOO MANY)")
    told = json.loads(hcp(*PLAN, "--lengths", "2000,2000", "--compare", "--format", "json").stdout)
    assert (told["schema"], [plan["policy"] for plan in told["plans"]], told["failed"]) == (
        "hcp.dcp-compare/1",
        ["balanced", "pr5869"],
        [],
    )


def test_a_policy_without_a_plan_is_said_and_the_others_go_on(hcp: Hcp) -> None:
    done = hcp("dcp", "plan", "--world-size", "6", "--max-seqlen", "1024", "--lengths", "3000,3000", "--compare")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("policy pr5869: no plan: ")
    alone = hcp(
        "dcp", "plan", "--world-size", "6", "--max-seqlen", "1024", "--lengths", "3000,3000", "--policy", "pr5869"
    )
    assert (alone.returncode, alone.stdout) == (2, "")


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("100 200\n300\n", ()),
        ("100,200,\n300", ()),
        ("[100, 200, 300]", ()),
        ("[\n100,\n200,\n300\n]\n", ()),
        ('{"length": 100}\n{"length": 200}\n\n{"length": 300}\n', ()),
        ('{"text": "a", "n": 100}\n{"n": 200}\n{"n": 300.0}\n', ("--field", "n")),
        ('[{"seqlen": 100}, {"seqlen": 200}, {"seqlen": 300}]', ()),
        ("\n".join(json.dumps({"input_ids": [0] * n}) for n in (100, 200, 300)), ()),
        ("\n".join(json.dumps([7] * n) for n in (100, 200, 300)), ()),
    ],
)
def test_lengths_come_from_a_file_or_standard_input_in_every_form(
    hcp: Hcp, tmp_path: Path, text: str, arguments: tuple[str, ...]
) -> None:
    wanted = hcp(*PLAN, "--lengths", "100,200,300", "--format", "json").stdout
    (tmp_path / "lengths.txt").write_text(text)
    assert hcp(*PLAN, "--lengths", "lengths.txt", *arguments, "--format", "json", cwd=tmp_path).stdout == wanted
    assert hcp(*PLAN, "--lengths", "-", *arguments, "--format", "json", stdin=text).stdout == wanted


@pytest.mark.parametrize(
    "arguments, stdin, says",
    [
        (("--lengths", "1,x"), None, "cannot be read"),
        (("--lengths", "-"), "", "-: found no sequence"),
        (("--lengths", "-"), "12\nx\n", "-:2: found 'x'; wanted the length of a sequence"),
        (("--lengths", "-"), '{"a": 1}\n', "-:1: has none of the fields length"),
        (("--lengths", "-", "--field", "b"), '{"a": 1}\n', "-:1: has no field 'b'; it has a"),
        (("--lengths", "-"), '{"length": 1}\n{"length"\n', "-:2: found '{\"length\"', no JSON"),
        (("--lengths", "-"), '{"length": true}\n', "-:1: found 'true'"),
        (("--lengths", "0"), None, "found '0'"),
        (("--lengths", "-3"), None, "cannot be read"),
        (("--lengths", "9000"), None, "sequence 0 has 9000 tokens"),
        (("--lengths", "100", "--cost", "linear=x"), None, "linear"),
        (("--lengths", "100", "--cost", "time=1"), None, "'time=1'"),
        (("--lengths", "100", "--svg", "no/such/folder/x.svg"), None, "--svg no/such/folder/x.svg: cannot be written"),
        (("--lengths", "100", "--tp", "0"), None, "tp"),
        (("--lengths", "100", "--world-size", "7", "--groups", "main"), None, "even"),
        (("--lengths", "100", "--world-size", "0"), None, "world_size"),
        (("--lengths", "100", "--world-size", "9" * 30), None, "at most 1048576 ranks"),
        (("--lengths", "100", "--max-seqlen", "0"), None, "max_seqlen"),
        (("--lengths", "100", "--policy", "best"), None, "best"),
        ((), None, "--lengths"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(hcp: Hcp, arguments: tuple[str, ...], stdin: str | None, says: str) -> None:
    done = hcp(*PLAN, *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hcp: ") and done.stderr.count("\n") == 1
    assert says in done.stderr


def test_pictures_are_written_where_they_are_wanted(hcp: Hcp, tmp_path: Path) -> None:
    done = hcp(*PLAN, "--lengths", "3000,100,900", "--compare", "--svg", "a.svg", "--html", "a.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "wrote a.svg\nwrote a.html\n")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<svg") == 1 and "<script" not in page


def test_weights_as_text(hcp: Hcp) -> None:
    done = hcp("dcp", "weights", "--world-size", "8", "--sizes", "8", "--sizes", "4,2,1,1")
    assert done.stdout.splitlines()[:6] == [
        "8 ranks, DDP mean, outputs detached; all are factors of (loss sum of the group) / T",
        "mb  groups  backward  report  per token",
        " 0     1x8         8       1          1",
        " 1     1x4         8       2          1",
        " 1     1x2         8       4          1",
        " 1     2x1         8       8          1",
    ]
    assert done.returncode == 0


def test_weights_count_in_what_megatron_core_multiplies_a_loss_by(hcp: Hcp) -> None:
    """schedules.py times 4 over 6: what is returned is 8 x 6 / 4; without a number of micro-batches 8 x 2 / 4."""
    sizes = ("--world-size", "8", "--sizes", "8", "--sizes", "4,2,1,1", "--context-parallel-size", "4")
    done = hcp("dcp", "weights", *sizes, "--num-micro-batches", "6")
    assert [line.split()[2] for line in done.stdout.splitlines()[2:6]] == ["12"] * 4
    assert "megatron-core multiplies that by 2/3" in done.stdout
    told = json.loads(hcp("dcp", "weights", *sizes, "--format", "json").stdout)
    assert told["applied"] == 2
    assert {group["backward"] for group in told["groups"]} == {4}
    assert [group["report_mean"] for group in told["groups"]] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    "reduction, gather, backward",
    [
        ("mean", "detached", [8, 8, 8]),
        ("mean", "autograd", [2, 4, 8]),
        ("mean", "replicated", [2, 4, 8]),
        ("sum", "detached", [1, 1, 1]),
        ("sum", "autograd", [0.25, 0.5, 1]),
        ("sum", "replicated", [0.25, 0.5, 1]),
    ],
)
def test_weights_as_json_are_those_of_the_derivation(
    hcp: Hcp, reduction: str, gather: str, backward: list[float]
) -> None:
    done = hcp(
        "dcp",
        "weights",
        "--world-size",
        "8",
        "--sizes",
        "4 2 1 1",
        "--reduction",
        reduction,
        "--gather",
        gather,
        "--format",
        "json",
    )
    told = json.loads(done.stdout)
    assert told["schema"] == "hcp.dcp-weights/1"
    assert [group["local_cp_size"] for group in told["groups"]] == [4, 2, 1]
    assert [group["num_groups"] for group in told["groups"]] == [1, 1, 2]
    assert [group["backward"] for group in told["groups"]] == backward
    assert [group["report_mean"] for group in told["groups"]] == [2, 4, 8]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("--sizes", "4,2"), "6 ranks together; wanted 8"),
        (("--sizes", "4,x"), "wanted group sizes"),
        (("--sizes", ""), "wanted group sizes"),
        (("--sizes", "8,0"), "wanted group sizes"),
        ((), "--sizes"),
        (("--sizes", "8", "--gather", "all"), "'all'"),
        (("--sizes", "8", "--num-micro-batches", "3"), "give megatron-core's static size too"),
        (("--sizes", "8", "--context-parallel-size", "0"), "context_parallel_size: found 0"),
    ],
)
def test_bad_sizes_are_one_line_and_exit_2(hcp: Hcp, arguments: tuple[str, ...], says: str) -> None:
    done = hcp("dcp", "weights", "--world-size", "8", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_the_choices_on_the_command_line_are_those_of_the_core() -> None:
    import click

    from hcp.cli.dcp import dcp
    from hcp.core.dcp import POLICIES, TARGETS
    from hcp.core.dcp.normalize import GATHERS, REDUCTIONS

    def choices(command: str, option: str) -> tuple[str, ...]:
        (found,) = [one for one in dcp.commands[command].params if one.name == option]
        assert isinstance(found.type, click.Choice)
        return tuple(found.type.choices)

    assert choices("plan", "policy") == tuple(POLICIES)
    assert choices("plan", "groups") == tuple(TARGETS)
    assert choices("weights", "gather") == tuple(GATHERS)
    assert choices("weights", "reduction") == tuple(REDUCTIONS)
