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
    done = hcp(*PLAN, "--lengths", ",".join(["1024"] * 8), "--cost", "linear=24576,quadratic=1")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "8 sequences, 8192 tokens (longest 1024) on 8 ranks, at most 1024 tokens per rank",
        "groups main: 1 2 4 8",
        "times: a dense 7B on H100, 8 GPUs per node (assumed)",
    ]
    assert lines[3].startswith("policy balanced: ")
    assert lines[3].endswith(" estimated, imbalance 1.000, groups 1.00 times as wide as needed, 1 micro-batch")
    assert lines[4] == (
        "ranks are idle 0.0% of the time and communicate 0.0% of it; groups wider than needed cost 0.0% of the work, "
        "100% of token slots filled"
    )
    assert lines[5].split() == [
        "mb",
        "time",
        "exposed",
        "idle",
        "seqs",
        "tokens",
        "groups",
        "(count",
        "x",
        "size)",
    ]
    assert lines[6].split()[-6:] == ["0", "s", "0.0%", "8", "8192", "8x1"]
    assert (len(lines), done.returncode, done.stderr) == (7, 0, "")


def test_the_json_places_every_sequence_once_on_aligned_disjoint_groups(hcp: Hcp) -> None:
    lengths = [3000, 100, 900, 7000, 1500, 40, 1024, 1025, 2048, 512]
    done = hcp(*PLAN, "--lengths", ",".join(map(str, lengths)), "--format", "json")
    told = json.loads(done.stdout)
    assert (told["schema"], told["policy"], told["world_size"], told["max_seqlen_per_rank"]) == (
        "hcp.dcp-plan/2",
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


def test_policy_pr5869_makes_micro_batches_and_splits_each(hcp: Hcp) -> None:
    """Ten sequences of 2000 tokens need three micro-batches of 8 x 1024; of 4 sequences each group of two ranks gets
    one, of 3 each group of four ranks two or one."""
    done = hcp(*PLAN, "--lengths", ",".join(["2000"] * 10), "--policy", "pr5869", "--format", "json")
    shapes = [
        [(group["local_cp_size"], len(group["samples"])) for group in batch["groups"]]
        for batch in json.loads(done.stdout)["micro_batches"]
    ]
    assert sorted(shapes) == [[(2, 1)] * 4, [(4, 2), (4, 1)], [(4, 2), (4, 1)]]


def test_policies_side_by_side_say_what_each_would_cost(hcp: Hcp) -> None:
    lengths = ",".join(["1000"] * 2 + ["10"] * 14)
    done = hcp("dcp", "plan", "--world-size", "2", "--max-seqlen", "1024", "--lengths", lengths, "--compare")
    table = [line.split() for line in done.stdout.splitlines()[3:10]]
    assert [row[0] for row in table] == ["policy", "balanced", "dev", "main", "fcp", "static:1", "pr5869"]
    # The pull request splits by number: a rank gets a long sequence and three short ones, 1030 tokens.
    assert table[-1][-2:] == ["OVER", "LIMIT"]
    assert done.stdout.splitlines()[-1] == ("policy pr5869: a rank holds 1030 padded tokens, 6 over the limit of 1024")
    told = json.loads(hcp(*PLAN, "--lengths", "2000,2000", "--compare", "dev,static:4", "--format", "json").stdout)
    assert (told["schema"], [plan["policy"] for plan in told["plans"]], told["failed"]) == (
        "hcp.dcp-compare/2",
        ["balanced", "dev", "static:4"],
        [],
    )
    first, *others = told["plans"]
    assert first["time_ratio"] == 1
    for plan in others:
        assert plan["time_ratio"] == pytest.approx(plan["metrics"]["estimated_s"] / first["metrics"]["estimated_s"])


def test_a_policy_without_a_plan_is_said_and_the_others_go_on(hcp: Hcp) -> None:
    done = hcp("dcp", "plan", "--world-size", "6", "--max-seqlen", "1024", "--lengths", "3000,3000", "--compare")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("policy pr5869: no plan: ")
    alone = hcp(
        "dcp", "plan", "--world-size", "6", "--max-seqlen", "1024", "--lengths", "3000,3000", "--policy", "pr5869"
    )
    assert (alone.returncode, alone.stdout) == (2, "")


@pytest.mark.sample(4)
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


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "arguments, stdin, says",
    [
        (("--lengths", "1,x"), None, "found 'x' among numbers"),
        (("--lengths", "x.txt"), None, "x.txt: cannot be read"),
        (("--lengths", "-"), "", "-: found no sequence"),
        (("--lengths", "-"), "12\nx\n", "-:2: found 'x'; wanted the length of a sequence"),
        (("--lengths", "-"), '{"a": 1}\n', "-:1: found the fields a; wanted a length, such as length"),
        (("--lengths", "-", "--field", "b"), '{"a": 1}\n', "-:1: has no field 'b'; it has a"),
        (("--lengths", "-"), '{"length": 1}\n{"length"\n', "-:2: found '{\"length\"', not JSON"),
        (("--lengths", "-"), '{"length": true}\n', "-:1: found 'true'"),
        (("--lengths", "0"), None, "found '0'"),
        (("--lengths", "1,024"), None, "found '024'; wanted numbers without leading zeros: 1024, not 1,024"),
        (("--lengths=-5,5",), None, "found '-5'; wanted the length of a sequence"),
        (("--lengths", "-", "--field", "b"), "12\n", "-:1: found '12', which has no fields"),
        (("--lengths", "100", "--cost", ""), None, "--cost: found no number"),
        (("--lengths", "100", "--cost", "linear=1e308"), None, "from 1e-30 to 1e+30"),
        (("--lengths", "100", "--compare="), None, "policy: found no name"),
        (("--lengths", "100", "--policy", "static:x"), None, "wanted static:C with a number of ranks"),
        (("--lengths", "100", "--vpp", "9" * 400), None, "vpp: found 999"),
        (("--lengths", "100", "--svg", "a.svg", "--html", "./a.svg"), None, "--svg and --html both name"),
        (("--lengths", "9000"), None, "sequence 0 has 9000 tokens"),
        (("--lengths", "100", "--cost", "linear=x"), None, "linear"),
        (("--lengths", "100", "--cost", "time=1"), None, "'time=1'"),
        (("--lengths", "100", "--svg", "no/such/folder/x.svg"), None, "--svg no/such/folder/x.svg: cannot be written"),
        (("--lengths", "100", "--tp", "0"), None, "tp"),
        (("--lengths", "100", "--compare", "dev,best"), None, "policy: found 'best'"),
        (("--lengths", "100", "--compare", "dev,static:x"), None, "wanted static:C with a number of ranks"),
        (("--lengths", "100", "--compare", "static:C"), None, "policy: found 'static:C'"),
        (("--lengths", "100", "--take", "0"), None, "--take 0"),
        (("--lengths", "100", "--memory", "limit=1"), None, "wanted at least limit=BYTES,token=BYTES"),
        (("--lengths", "100", "--memory", "limit=1,token=nan"), None, "found 'token=nan'"),
        (("--lengths", "100", "--profile", "no.json"), None, "no.json"),
        (("--lengths", "100", "--profile", "x", "--cost", "comm=1"), None, "found --cost and --profile; wanted one"),
        (("--lengths", "100", "--model", "no.json"), None, "no.json"),
        (("--lengths", "100", "--gpu", "b200"), None, "found --gpu without a model"),
        (("--lengths", "100", "--gpu", "tpu", "--model", "examples/llama3_8b_config.json"), None, "gpu: found 'tpu'"),
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


@pytest.mark.slow
def test_pictures_are_written_where_they_are_wanted(hcp: Hcp, tmp_path: Path) -> None:
    for _ in range(2):  # over what hcp made itself, again
        done = hcp(
            *PLAN, "--lengths", "3000,100,900", "--compare", "--svg", "a.svg", "--html", "a.html", "-o", "a.json",
            cwd=tmp_path,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "wrote a.svg\nwrote a.html\nwrote a.json\n")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    page = (tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<svg") == 1 and "<script" not in page


@pytest.mark.sample(3)
@pytest.mark.parametrize("option", ["--svg", "--html", "-o"])
def test_a_file_that_hcp_did_not_make_stays_as_it_is(hcp: Hcp, tmp_path: Path, option: str) -> None:
    (tmp_path / "config.json").write_text('{"mine": 1}')
    done = hcp(*PLAN, "--lengths", "100", option, "config.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"hcp: {option} config.json: already exists and was not made by hcp; remove it, or name another file\n"
    )
    assert (tmp_path / "config.json").read_text() == '{"mine": 1}'
    (tmp_path / "empty").touch()
    assert hcp(*PLAN, "--lengths", "100", option, "empty", cwd=tmp_path).returncode == 0


def test_a_plan_is_shown_as_it_was_planned(hcp: Hcp, tmp_path: Path) -> None:
    made = hcp(*PLAN, "--lengths", "3000,100,900,1000", "--tp", "2", "-o", "plan.json", cwd=tmp_path)
    shown = hcp("dcp", "show", "plan.json", "--svg", "plan.svg", cwd=tmp_path)
    assert (shown.returncode, shown.stdout) == (0, made.stdout)
    assert ElementTree.parse(tmp_path / "plan.svg").getroot().tag.endswith("svg")
    again = hcp("dcp", "show", "plan.json", "--format", "json", cwd=tmp_path)
    assert again.stdout == (tmp_path / "plan.json").read_text()


def test_what_a_command_reads_it_does_not_write_over(hcp: Hcp, tmp_path: Path) -> None:
    """A plan and a profile are files that hcp made, which it would else write anew."""
    hcp(*PLAN, "--lengths", "3000,100", "-o", "plan.json", cwd=tmp_path)
    before = (tmp_path / "plan.json").read_text()
    for words in (
        ("dcp", "show", "plan.json", "--svg", "./plan.json"),
        (*PLAN, "--lengths", "100", "--profile", "plan.json", "-o", "plan.json"),
        ("dcp", "calibrate", "--model", "plan.json", "-o", "plan.json"),
    ):
        done = hcp(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "plan.json: is also read and would be overwritten; name another file" in done.stderr
    assert (tmp_path / "plan.json").read_text() == before


def test_a_plan_that_cannot_run_is_exit_1(hcp: Hcp, tmp_path: Path) -> None:
    made = json.loads(hcp(*PLAN, "--lengths", "1024,100,900,1000", "--format", "json").stdout)
    (tmp_path / "plan.json").write_text(json.dumps({**made, "max_seqlen_per_rank": 400}))
    done = hcp("dcp", "show", "plan.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "policy balanced: a rank holds " in done.stdout.splitlines()[-1]


def test_a_plan_loads_nothing_heavy(root: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom megatron_hcp.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'numpy', 'pyarrow', 'jinja2'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *PLAN, "--lengths", "3000,900", "--compare"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_choices_on_the_command_line_are_those_of_the_core() -> None:
    import click

    from megatron_hcp.cli.dcp.command import dcp
    from megatron_hcp.dcp import LAYOUTS, TARGETS
    from megatron_hcp.dcp.normalize import GATHERS, REDUCTIONS

    def choices(command: str, option: str) -> tuple[str, ...]:
        (found,) = [one for one in dcp.commands[command].params if one.name == option]
        assert isinstance(found.type, click.Choice)
        return tuple(found.type.choices)

    assert choices("plan", "layout") == tuple(LAYOUTS)
    assert choices("plan", "groups") == tuple(TARGETS)
    assert choices("weights", "gather") == tuple(GATHERS)
    assert choices("weights", "reduction") == tuple(REDUCTIONS)


def test_a_policy_that_is_compared_with_others_stands_there_once(hcp: Hcp) -> None:
    done = hcp(*PLAN, "--lengths", "1000,900", "--policy", "fcp", "--compare=fcp,dev", "--format", "json")
    assert [plan["policy"] for plan in json.loads(done.stdout)["plans"]] == ["fcp", "dev"]


def test_an_option_that_overrides_the_launch_says_so(hcp: Hcp) -> None:
    launch = "torchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 2 --num-layers 2 --hidden-size 64"
    done = hcp("dcp", "plan", "-", "--world-size", "4", "--max-seqlen", "1024", "--lengths", "100", stdin=launch)
    assert (done.returncode, done.stderr) == (0, "--world-size 4 instead of the launch's 8\n")
