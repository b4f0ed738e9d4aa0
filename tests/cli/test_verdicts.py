"""What a report's verdict does: to the exit code, and in each format."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from megatron_hcp.cli.check import exit_code
from megatron_hcp.cli.reports.github import report_github
from megatron_hcp.cli.reports.json import dump, many_json, report_json
from megatron_hcp.cli.reports.sarif import reports_sarif
from megatron_hcp.cli.reports.text import report_lines
from megatron_hcp.cli.repository.result import TargetResult
from megatron_hcp.cli.screen import safe_text
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.place import Location
from megatron_hcp.judge.report import Finding, NotChecked, Presumed, Report, Undecided
from megatron_hcp.launch.fact import Fact, Launch, Reading
from megatron_hcp.rules.registry import BY_ID
from megatron_hcp.rules.rule import Problem, Severity

RULE = BY_ID["HCP001"]
PLACE = Location("launch.sh", 29, 1, 29, 20)
HIDDEN = Undecided(
    "line 29 sources models/x.sh, which is not read", ("heads", "tp"), PLACE, "give its values with --set"
)
SECOND = Undecided("the recipe is not known", ("cp",), None, "state what it decides")
PRESUMED = Presumed("model.cp_comm_type", "p2p", 46, 741)


def finding(severity: Severity, *presumed: Presumed) -> Finding:
    problem = Problem("the launcher stops", "a2a+p2p without sizes", "two sizes", ("cp",))
    return Finding(RULE, problem, severity, "crash", "config", ("cp",), PLACE, presumed=presumed)


def report(*found: Finding, undecided: tuple[Undecided, ...] = (), unchecked: str = "", **more: Any) -> Report:
    facts = {"cp": Fact(8, "launch", PLACE, "context_parallel_size"), "tp": Fact(1, "default")}
    launch = Launch(Reading("mlm", "launch.sh", "shell"), facts, {})
    left = tuple(NotChecked(BY_ID[rule], ("te",)) for rule in unchecked.split())
    return Report(launch, found, left, 20, undecided=undecided, **more)


OK, FAILED, UNDECIDED = report(), report(finding("error")), report(undecided=(HIDDEN,))
BOTH = report(finding("error"), undecided=(HIDDEN,))
WARNED = report(finding("warning"))
UNCHECKED = report(unchecked="HCP001")
CODES = [(OK, 0), (WARNED, 0), (UNCHECKED, 0), (FAILED, 1), (BOTH, 1), (UNDECIDED, 4), (None, 2)]


def code_of(*reports: Report | None, strict: bool = False, allow_undecided: bool = False) -> int:
    """Of launches with these reports; None stands for a target that could not be used."""
    results = [TargetResult("a", one, None if one else HcpError("x")) for one in reports]
    return exit_code([result.verdict(strict) for result in results], allow_undecided)


@pytest.mark.parametrize(("one", "code"), CODES)
def test_the_exit_code_of_one_launch(one: Report | None, code: int) -> None:
    assert code_of(one) == code
    assert code_of(one, allow_undecided=True) == (0 if code == 4 else code)


def test_of_several_launches_the_first_of_2_1_4_0_counts() -> None:
    for several in itertools.product(CODES, repeat=3):
        codes = {code for _, code in several}
        expected = next(code for code in (2, 1, 4, 0) if code in codes)
        assert code_of(*(one for one, _ in several)) == expected


def test_strict_fails_on_warnings_and_on_error_rules_that_are_not_decided() -> None:
    assert [code_of(one, strict=True) for one in (OK, WARNED, UNCHECKED, FAILED, None)] == [0, 1, 1, 1, 2]
    hidden = report(undecided=(HIDDEN,), unchecked="HCP001")
    assert code_of(hidden, strict=True) == 1


def test_strict_and_allow_undecided_contradict_each_other(hcp) -> None:
    done = hcp("check", "--strict", "--allow-undecided", "--", "--context-parallel-size", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hcp: found --strict with --allow-undecided; wanted one of them; leave one out\n"


@pytest.mark.parametrize(
    ("one", "verdict"), [(OK, "ok"), (WARNED, "ok"), (FAILED, "failed"), (BOTH, "failed"), (UNDECIDED, "undecided")]
)
def test_json_is_ok_exactly_where_the_verdict_is(one: Report, verdict: str) -> None:
    data = report_json(one)
    assert (data["verdict"], data["ok"]) == (verdict, verdict == "ok")
    many = many_json([report_json(OK), data])
    assert many["ok"] == (verdict == "ok")
    assert many["summary"]["targets"] == 2 and many["summary"]["unusable"] == 0
    assert many["summary"]["ok"] == 1 + (verdict == "ok")


def test_json_holds_what_is_undecided_and_presumed_and_the_facts_that_findings_use() -> None:
    data = report_json(report(finding("warning", PRESUMED), undecided=(HIDDEN, SECOND), presumed=(PRESUMED,)))
    assert data["undecided"] == [
        {
            "reason": "line 29 sources models/x.sh, which is not read",
            "needs": ["heads", "tp"],
            "location": {"file": "launch.sh", "line": 29, "column": 1},
            "do": "give its values with --set",
        },
        {"reason": "the recipe is not known", "needs": ["cp"], "location": None, "do": "state what it decides"},
    ]
    presumed = [{"key": "model.cp_comm_type", "value": "p2p", "recipes_set": 46, "recipes": 741}]
    assert data["presumed"] == data["findings"][0]["presumed"] == presumed
    assert list(data["facts"]) == ["cp"]
    assert dump(data).isascii()


def text(one: Report, strict: bool = False) -> list[str]:
    return safe_text(report_lines(one, strict=strict)).splitlines()


NUMBERS = "0 errors, 0 warnings, 0 infos; 20 rules applied"


def test_the_last_line_says_the_verdict() -> None:
    assert text(OK) == [f"launch.sh: ok: {NUMBERS}, 0 not checked"]
    assert text(FAILED)[-1] == f"launch.sh: FAILED: {NUMBERS.replace('0 errors', '1 error')}, 0 not checked"
    assert text(UNDECIDED) == [
        "launch.sh: UNDECIDED: give its values with --set, because line 29 sources models/x.sh, which is not read; "
        "20 rules applied, 0 not checked"
    ]
    assert text(UNCHECKED) == [
        "not checked: HCP001 (te); add --assume te=VERSION",
        "launch.sh: ok as far as checked; not ruled out: HCP001, silently wrong in some releases "
        f"(--assume te=VERSION): {NUMBERS}, 1 not checked",
    ]


def test_strict_says_that_it_is_why() -> None:
    assert text(WARNED, strict=True)[-1].startswith("launch.sh: FAILED (--strict): 0 errors, 1 warning, ")
    assert text(WARNED)[-1].startswith("launch.sh: ok: ")


def test_what_is_undecided_is_said_once_for_each_reason() -> None:
    lines = text(report(undecided=(HIDDEN, SECOND)))
    assert lines[0] == "launch.sh: undecided: state what it decides, because the recipe is not known"
    assert lines[1].startswith("launch.sh: UNDECIDED: give its values with --set, because line 29 ")
    assert len(lines) == 2
    assert text(BOTH)[1] == (
        "launch.sh:29:1: undecided: give its values with --set, because line 29 sources models/x.sh, which is not read"
    )
    assert text(BOTH)[2].startswith("launch.sh: FAILED: 1 error")


def test_what_is_presumed_with_doubts_says_who_decides_it_and_the_least_certain_first() -> None:
    sure = Presumed("model.sure", None, 0, 741)
    rare = [Presumed(f"model.key_{number}", None, 1, 741) for number in range(4)]
    assert text(report(presumed=(sure,)))[0].startswith("launch.sh: ok: ")
    assert text(report(presumed=(sure, *rare, PRESUMED)))[:2] == [
        "presumed: 5 settings that the recipe decides; name it with --recipe NAME",
        "    model.cp_comm_type p2p (46 of 741 recipes differ), model.key_0 null (1), model.key_1 null (1); "
        "2 more in hcp show",
    ]


def test_a_model_whose_config_was_read_is_not_called_unknown() -> None:
    """config.json says nothing of the fields that the launch may set: the line asks for those, not for the file."""
    item = report(presumed=(PRESUMED,))
    verl = item._replace(launch=item.launch._replace(reading=Reading("verl", "launch.sh", "shell")))
    assert text(verl)[0] == "presumed: 1 setting that the model decides; add --model config.json"
    read = verl._replace(launch=verl.launch._replace(model={"model_name": Fact("llama", "assumed")}))
    assert text(read)[0] == (
        "presumed: 1 setting that neither the launch nor config.json states; "
        "add --set KEY=VALUE where the model differs"
    )


def test_a_finding_is_one_line_that_says_nothing_twice() -> None:
    assert text(FAILED)[0] == (
        "launch.sh:29:1: error HCP001 the launcher stops (found a2a+p2p without sizes; expected two sizes)"
    )
    twice = finding("error")._replace(problem=finding("error").problem._replace(found="the launcher"))
    assert text(report(twice))[0].endswith("error HCP001 the launcher stops (expected two sizes)")


def test_every_rule_that_is_not_checked_is_named(hcp, root) -> None:
    import json

    words = ("check", "--format", "json", "--", "model.context_parallel_size=8")
    data = json.loads(hcp(*words).stdout)
    shown = hcp("check", *words[3:]).stdout
    lines = shown.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("not checked: ")]
    assert len(data["not_checked"]) > 8
    named = re.findall(r"\w+", " ".join(itertools.takewhile(lambda line: line.startswith("    "), lines[at + 1 :])))
    assert [item["rule"] for item in data["not_checked"] if item["rule"] not in named] == []
    assert max(map(len, lines)) <= 160
    assert lines[at].startswith(f"not checked: {len(data['not_checked'])} rules; add --model config.json --assume ")
    assert " thd=true|false " in lines[at]


def test_github_warns_of_what_is_undecided() -> None:
    assert report_github(UNDECIDED) == [
        "::warning file=launch.sh,line=29,col=1,endLine=29,title=undecided::line 29 sources models/x.sh, "
        "which is not read: give its values with --set%0Aneeds heads, tp"
    ]


def test_sarif_notifies_of_what_is_undecided() -> None:
    (run,) = reports_sarif([report(undecided=(HIDDEN, SECOND))])["runs"]
    (invocation,) = run["invocations"]
    notes = invocation["toolExecutionNotifications"]
    assert [note["level"] for note in notes] == ["warning", "warning"]
    assert notes[0]["message"]["text"].startswith("line 29 sources models/x.sh")
    assert notes[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 29
    assert notes[1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "launch.sh"
    assert invocation["executionSuccessful"] is True


@pytest.mark.parametrize("fmt", ["sarif", "github"])
def test_a_patch_goes_with_text_and_json(hcp, root, fmt: str) -> None:
    done = hcp("check", "examples/mlm_broken.sh", "--diff", "--format", fmt, cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hcp: found --diff with --format {fmt}; wanted text or json; leave one out\n"


def test_a_check_without_a_rule_is_refused(hcp, root) -> None:
    done = hcp("check", "examples/mlm_broken.sh", "--select", "CP024", "--ignore", "CP024", cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "hcp: found --select CP024 with --ignore CP024, which leaves no rule; wanted at least one; ignore fewer\n"
    )


def test_what_a_check_says_to_assume_can_be_assumed(hcp, tmp_path) -> None:
    script = tmp_path / "run.sbatch"
    script.write_text(
        "#SBATCH --nodes=1 --ntasks-per-node=2 --output=logs/%j\n"
        "srun --container-image=x.sqsh python pretrain_gpt.py --context-parallel-size 2 --save /ckpt\n"
    )
    said = hcp("check", str(script), "--select", "SLURM011,SLURM012").stdout
    assert "add --assume log_directory=present|missing srun.container_mounts=HOST:CONTAINER" in said
    stated = ("--assume", "log_directory=present", "srun.container_mounts=/ckpt:/ckpt")
    done = hcp("check", str(script), "--select", "SLURM011,SLURM012", *stated)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 rules applied, 0 not checked" in done.stdout


def test_a_launch_that_fails_names_what_to_mend_and_only_counts_what_was_not_checked() -> None:
    both = report(finding("error"), unchecked="HCP013", presumed=(PRESUMED,))
    assert [line for line in text(both) if line.startswith(("not checked", "presumed"))] == []
    assert text(both)[-1].endswith("1 not checked")
    assert any(line.startswith("not checked: ") for line in text(report(unchecked="HCP013")))


def test_a_reason_that_the_last_line_has_no_room_for_stands_in_a_line_of_its_own() -> None:
    long = HIDDEN._replace(do="name the recipe, or state what it sets, or check what it writes")
    before, last = text(report(undecided=(long,)))
    assert before.startswith("launch.sh:29:1: undecided: name the recipe") and len(before) <= 160
    assert last == "launch.sh: UNDECIDED: 20 rules applied, 0 not checked"
