"""An error as JSON has the fields of its line, whatever the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from megatron_hcp.cli.main import cli
from megatron_hcp.dcp.published import PUBLISHED
from megatron_hcp.launch.dialects.foreign import WANTED as A_LAUNCH

FILES = {
    "launch.yaml": "model:\n  context_parallel_size: four\n",
    "train.toml": "[model]\n",
    "broken.sh": "torchrun pretrain_gpt.py --num-layers 2\nif true; then\n",
    "lengths.txt": "1024\nabc\n",
    "odd.json": '{"num_layers": "\\q"}\n',
    "config.json": '{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "vocab_size": 128}',
    "plan.json": '{"schema": "hcp.dcp-plan/1"}',
    "answers.json": '\n{"task": "t", "arm": "with"}\n',
}
POLICIES = "balanced, dev, main, mcore, fcp, static:C, pr5869"
WHOLE = "the length of a sequence, a whole number from 1 to 1,000,000,000,000"
CORRECT = "correct it and run the check again"
PATH = "check the path"
PLAN = "dcp plan --world-size 8 --max-seqlen 1024"
QUESTION = "--gpus 8 --gpu h100 --seq-length 8192 --global-batch 8"
NO_SKILL = "a folder with config/card.yaml"

# the command | file:line:column | found | expected | do
CASES = [
    f"check launch.yaml | launch.yaml:2:26 | model.context_parallel_size is 'four' | a whole number | {CORRECT}",
    f"check missing.sh | | missing.sh does not exist | a launch file | {PATH}",
    f"dryrun missing.sh | | missing.sh does not exist | a launch file | {PATH}",
    f"check train.toml | | train.toml looks like a TOML configuration (torchtitan, prime-rl), which is not supported | "
    f"{A_LAUNCH} | give the command line or configuration of one of these",
    "check launch.yaml -o yaml=x | | -o yaml=x | FORMAT=PATH with FORMAT one of text, json, sarif, github, html |",
    "check --model odd.json -- model.context_parallel_size=4 | odd.json:1:17 | not JSON (Invalid \\escape) | "
    "a model's config.json | give the one next to the model's weights",
    f"show launch.yaml | launch.yaml:2:26 | model.context_parallel_size is 'four' | a whole number | {CORRECT}",
    f"plan --model missing.json {QUESTION} | | missing.json does not exist | a model's config.json | {PATH}",
    f"plan --model config.json {QUESTION} --hold tp=x | | --hold: found tp=x | a whole number from 1 to 1048576 | "
    "correct the word",
    "dcp calibrate -o x --model missing.json | | missing.json: cannot be read (No such file or directory) | "
    f"a model's config.json | {PATH}",
    f"{PLAN} --lengths 100 --policy foo | | policy: found 'foo' | one of {POLICIES} | for example static:8",
    f"{PLAN} --lengths 100 --policy static:x | | policy: found 'static:x' | static:C with a number of ranks for C | "
    "for example static:8",
    f"{PLAN} --lengths lengths.txt | lengths.txt:2 | 'abc' | {WHOLE} |",
    f"{PLAN} --lengths 100 --cost comm | | cost: found 'comm' | NAME=NUMBER with NAME one of linear, quadratic, comm |",
    "dcp show plan.json | | plan.json: hcp.dcp-plan/1 has no lengths | | plan again: hcp dcp plan --format json",
    "dcp weights --world-size 0 --sizes 4,2 | | --world-size 0 | 1 to 1048576 ranks |",
    f"support missing.json | | missing.json does not exist | a model's config.json | {PATH}",
    "pack check lengths.txt -- --context-parallel-size 2 | lengths.txt:2 | 'abc' | " + WHOLE + " |",
    "pack plan --lengths 8 --pack-size 0 -- --context-parallel-size 2 | | --pack-size 0 | "
    "the tokens of a row, from 1 to 1,000,000,000,000 |",
    "groups --world-size 8 --rank 9 | | --rank is outside a world of 8 ranks | 0 to 7 |",
    "groups --world-size 8 --order tp-tp | | order tp-tp names an axis twice | | "
    "name each once, for example tp-cp-ep-dp-pp",
    "explain HCP099 | | no rule 'HCP099' | an id such as | `hcp explain` lists them all",
    f"backports missing.sh | | missing.sh does not exist | a launch file | {PATH}",
    f"verify no-such | | no skill no-such | {NO_SKILL} |",
    f"verify --launch missing.sh | | missing.sh does not exist | a launch file | {PATH}",
    f"anchors --sources missing | | --sources missing | a folder of unpacked wheels | {PATH}",
    f"skills eval no-such | | no skill no-such | {NO_SKILL} |",
    "skills eval slurm-multi-node-launch --answers answers.json | answers.json:2 | answer: found nothing | "
    "text, or an empty one | correct the file",
    f"skills install no-such --dir x | | no skill no-such | {NO_SKILL} |",
    "skills list x | | Got unexpected extra argument (x) | |",
    f"skills show no-such | | no skill no-such | {NO_SKILL} |",
    "skills uninstall x --dir missing | | missing is not a folder | the skills' folder | name it with --dir",
    "skills update x --dir missing | | missing is not a folder | the skills' folder | name it with --dir",
    f"skills validate no-such | | no skill no-such | {NO_SKILL} |",
    f"triage missing.log | | missing.log: no such file | log files or a folder of logs | {PATH}",
    "facts x | | Got unexpected extra argument (x) | |",
    "doctor x | | Got unexpected extra argument (x) | |",
    "chekc x | | no command 'chekc' | | did you mean check?",
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition("|")[0].strip())
def test_the_json_of_an_error_has_the_fields_of_its_line(hcp, tmp_path: Path, case: str) -> None:
    words, place, found, wanted, do = (part.strip() for part in case.split("|"))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before, dashes, after = words.partition(" -- ")
    done = hcp(*before.split(), "--format", "json", *f"{dashes}{after}".split(), cwd=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2 and set(error) == {"found", "expected", "do", "location"}
    at = error["location"]
    assert ":".join(str(part) for part in (at or {}).values() if part is not None) == place
    for field, text in (("found", found), ("expected", wanted), ("do", do)):
        assert text in error[field] and bool(text) == bool(error[field]), (field, error)
    # The same in the line that is printed, in this order and nothing else.
    line = done.stderr.removeprefix("hcp: ").rstrip("\n")
    for text in filter(None, (place and f"{place}:", error["found"], error["expected"], error["do"])):
        before, there, line = line.partition(text)
        assert there == text and before in ("", " ", "found ", " found ", "; ", "; wanted ", ": ", ": wanted "), before
    assert not line


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*words, name))
    elif any("--format" in option.opts and "json" in getattr(option.type, "choices", ()) for option in command.params):
        yield " ".join(words)


def test_each_command_that_answers_in_json_has_a_wrong_input_here() -> None:
    assert [name for name in commands(cli) if not any(case.startswith(f"{name} ") for case in CASES)] == []


def test_a_wrong_policy_is_told_every_policy_with_ours_first() -> None:
    assert POLICIES.split(", ") == ["balanced", *PUBLISHED]


def test_a_launch_that_is_not_read_is_told_where(hcp, tmp_path: Path) -> None:
    """An error that a script passes on from a file that it starts keeps its fields."""
    (tmp_path / "job.sh").write_text("bash missing.sh\n")
    error = json.loads(hcp("check", "job.sh", "--format", "json", cwd=tmp_path).stdout)["error"]
    assert error["found"].startswith("job.sh has no training command, and missing.sh, which it starts, is not read (")
    assert (error["expected"], error["location"]) == ("the script that starts the training", None) and error["do"]
