"""A dry run of the launch as evidence beside the logs: what upstream refuses; nothing is run."""

import json

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.triage.inputs.dry_run import read_dry_run
from support.hcp_process import run_hcp

ERROR = {
    "type": "AssertionError",
    "message": "world size is not divisible",
    "file": "megatron/training/arguments.py",
    "line": 7,
    "function": "validate_args",
    "code": "assert x",
}


def _write(tmp_path, ranks, schema="hcp.dryrun/1"):
    path = tmp_path / "dryrun.json"
    path.write_text(json.dumps({"schema": schema, "ranks": ranks}))
    return str(path)


def test_the_rank_that_upstream_refuses_is_said_with_its_place(tmp_path):
    ranks = [
        {"rank": 0, "role": "first", "verdict": "done", "stage": "backward", "error": None},
        {"rank": 3, "role": "last stage", "verdict": "refused", "stage": "arguments", "error": ERROR},
    ]
    (refusal,) = read_dry_run(_write(tmp_path, ranks))
    assert refusal.text() == (
        "upstream refuses rank 3 (last stage) at the stage arguments: AssertionError: world size is not divisible "
        "(megatron/training/arguments.py:7, in validate_args)"
    )


@pytest.mark.parametrize(
    "rank", [None, 7, {}, {"verdict": "refused"}, {"verdict": "refused", "error": {}, "rank": "3"}]
)
def test_a_rank_of_another_shape_says_nothing(tmp_path, rank):
    assert read_dry_run(_write(tmp_path, [rank])) == ()


def test_another_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "x.json").write_text("[1")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\xfd")
    for name, found in (
        ("x.json", "no JSON"),
        ("deep.json", "no JSON"),
        ("bytes.json", "no JSON"),
        ("none", "No such file or directory"),
        (_write(tmp_path, [], "hcp.check/2"), "found no hcp.dryrun/1"),
    ):
        with pytest.raises(HcpError, match=f"{found}; wanted the JSON of a dry run; hcp dryrun"):
            read_dry_run(str(tmp_path / name))


def test_the_command_prints_it_beside_the_logs(tmp_path):
    (tmp_path / "job.log").write_text("0: loading the tokenizer\n")
    ranks = [{"rank": 3, "role": "last stage", "verdict": "refused", "stage": "arguments", "error": ERROR}]
    words = ["triage", str(tmp_path / "job.log"), "--dryrun", _write(tmp_path, ranks)]
    text = run_hcp(*words)
    assert text.returncode == 4 and "dry run: upstream refuses rank 3 (last stage)" in text.stdout
    (refusal,) = json.loads(run_hcp(*words, "--format", "json").stdout)["dry_run"]
    assert refusal["where"] == "megatron/training/arguments.py:7, in validate_args"
