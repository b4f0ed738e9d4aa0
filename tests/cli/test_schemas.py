"""Each JSON output is what its schema in schemas/ says, and the schemas allow nothing else."""

from __future__ import annotations

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.cli.reports.json import dump, report_json
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target, read_text
from megatron_hcp.resources import pack_dir
from megatron_hcp.rules.registry import RULES
from support.rows import rows
from support.selection import examples

jsonschema = pytest.importorskip("jsonschema")
referencing = pytest.importorskip("referencing")

SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in pack_dir("schemas").glob("*.json")}
REGISTRY = referencing.Registry().with_resources(
    (schema["$id"], referencing.Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
BROKEN = "examples/mlm_broken.sh"
BRIDGE = "examples/bridge_hcp.yaml"
PLANNED = (
    "plan", "--model", "examples/llama3_8b_config.json", "--gpus", "16", "--gpu", "h100", "--seq-length", "65536",
    "--global-batch", "16",
)  # fmt: skip
_OPTIONAL = ("schema", "left_out", "cut", "not_read")
OUTPUTS = {
    "findings": ("check", BROKEN),
    "findings that leave no room for the rest": ("check", "examples/bridge_overrides.txt"),
    "a patch": ("check", BROKEN, "--diff"),
    "no patch": ("check", BRIDGE, "--diff"),
    "not checked": ("check", BRIDGE, "examples/verl_dcp.yaml"),
    "an unusable one of several": ("check", "missing.sh", BROKEN),
    "unusable": ("check", "missing.sh"),
    "no such option": ("check", "--no-such-option"),
    "a release that was not read": ("check", BROKEN, "--assume", "te=99.0", "mcore=0.20.0"),
    "what such a release supports": ("support", "examples/llama3_8b_config.json", "--assume", "te=99.0"),
    "show": ("show", BROKEN),
    "show several": ("show", BROKEN, BRIDGE, "--assume", "te=2.14"),
    "a plan": ("dcp", "plan", "--world-size", "8", "--max-seqlen", "1024", "--lengths", "3000,900,800,700,600"),
    "plans": (
        "dcp",
        "plan",
        "--world-size",
        "8",
        "--max-seqlen",
        "1024",
        "--lengths",
        "3000,900,800,700,600",
        "--compare",
    ),
    "packed data": (
        "pack",
        "check",
        "examples/lengths.txt",
        "--",
        "--context-parallel-size",
        "4",
        "--sft",
        "--seq-length",
        "64",
    ),
    "pack plan": (*"pack plan --lengths examples/lengths.txt -- --context-parallel-size 4".split(),),
    "support": ("support", "examples/bridge_hcp.yaml", "--tp", "1,8"),
    "layouts": (*PLANNED, "--why-not", "tp=1 cp=16 cp_comm_type=a2a+p2p hcp_sizes=8,2"),
    "layouts of which none fits": (*PLANNED, "--fix", "tp=1", "--fix", "cp=1", "--fix", "pp=1", "--gpus-per-node", "8"),
    "a layout": (*PLANNED, "--layout", "tp=2 cp=8 pp=1", "--assume", "te=2.14"),
    "an illegal layout": (*PLANNED, "--layout", "tp=3"),
    "a layout that does not fit": (*PLANNED, "--layout", "tp=1"),
    "a dead job": ("triage", "tests/triage/dead_job.log"),
    "a rule": ("explain", "HCP001", "KNOWN001"),
    "a guard of upstream": ("explain", "START001/validate_args/bf16-c4ee"),
    "an option of upstream": ("explain", "--cp-comm-type"),
    "a refusal of upstream": ("check", "--", "--bf16", "--fp16"),
    "groups": ("groups", "--world-size", "16", "--tp", "2", "--cp", "4", "--hcp", "2,2", "--gpus-per-node", "4"),
    "groups without levels": ("groups", "--world-size", "8", "--cp", "4", "--pp", "2"),
    "groups with weight shards": ("groups", "--world-size", "16", "--gtp", "4"),
    "the groups of a rank": ("groups", "--world-size", "16", "--cp", "4", "--hcp", "2,2", "--rank", "3"),
    "the groups of a rank with weight shards": ("groups", "--world-size", "16", "--gtp", "4", "--rank", "3"),
    "weights": ("dcp", "weights", "--world-size", "8", "--sizes", "4,2,1,1", "--reduction", "sum"),
    "this machine": ("facts",),
    "skills": ("skills", "list"),
    "a skill": ("skills", "show", "training-resiliency"),
    "what would be installed": ("skills", "install", "training-resiliency", "--dir", "no-such-folder", "--dry-run"),
    "valid skills": ("skills", "validate"),
    "example answers": ("skills", "eval", "hierarchical-context-parallel"),
    "steps": ("verify", "--list"),
    "a step": ("verify", "slurm-multi-node-launch:hostile-values"),
    "anchors": ("anchors", "skills/training-resiliency"),
    "words": ("check", "--strict", "--", "--context-parallel-size", "$UNSET", "--cp-comm-type", "a2a+p2p"),
}


def validator(data: dict[str, Any]) -> Any:
    """`hcp.check/2` is in hcp.check.2.json."""
    schema = SCHEMAS[data["schema"].replace("/", ".")]
    return jsonschema.Draft202012Validator(schema, registry=REGISTRY)


def with_one_more_key(data: Any) -> list[Any]:
    """Copies of the data, each with an unknown key in one of its objects; facts are named by the launch.

    The quick set takes one object of each kind: of those at the same keys, whatever their numbers in lists.
    """
    places: list[tuple[str | int, ...]] = []

    def walk(value: Any, place: tuple[str | int, ...]) -> None:
        if isinstance(value, dict):
            if not place or place[-1] != "facts":
                places.append(place)
            for key, item in value.items():
                walk(item, (*place, key))
        elif isinstance(value, list):
            for number, item in enumerate(value[:2]):
                walk(item, (*place, number))

    walk(data, ())
    kinds = {tuple(step for step in place if isinstance(step, str)): place for place in places}
    copies = []
    for place in places if examples(quick=0, full=1) else kinds.values():
        changed = copy.deepcopy(data)
        inner = changed
        for step in place:
            inner = inner[step]
        inner["one_more"] = 1
        copies.append(changed)
    return copies


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=name, marks=[pytest.mark.slow] * (words[0] == "show")) for name, words in OUTPUTS.items()],
)
def test_an_output_is_what_its_schema_says_and_nothing_else(hcp, root: Path, words: tuple[str, ...]) -> None:
    cut = words.index("--") if "--" in words else len(words)
    data = json.loads(hcp(*words[:cut], "--format", "json", *words[cut:], cwd=root).stdout)
    validator(data).validate(data)
    for changed in with_one_more_key(data):
        assert not validator(changed).is_valid(changed), changed
    for key in data:
        changed = {name: value for name, value in data.items() if name not in (key, *_OPTIONAL[1:])}
        assert key in _OPTIONAL or not validator(data).is_valid(changed), key


@pytest.mark.slow
def test_the_findings_of_every_rule_are_what_the_schema_says() -> None:
    for rule in RULES:
        reading = (
            read_text(rule.bad.text + "\n", "launch.txt", dialect=rule.bad.dialect)
            if "\n" in rule.bad.text
            else read_target("", dialect=rule.bad.dialect, words=shlex.split(rule.bad.text))
        )
        launch = build_launch(reading, assumed=parse_assumptions(rule.bad.assume.split()))
        data = json.loads(dump(report_json(check_launch(launch, RULES))))
        assert rule.id in [finding["rule"] for finding in data["findings"]]
        validator(data).validate(data)


@pytest.mark.slow
@rows("name", SCHEMAS)
def test_a_schema_is_one_and_has_the_name_of_its_output(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"{name}.json"
    assert name in READ_ALONE or schema["properties"]["schema"]["const"].replace("/", ".") == name


def test_the_wheel_carries_the_schemas(root: Path) -> None:
    assert 'schemas = "megatron_hcp/_pack/schemas"' in (root / "pyproject.toml").read_text()


READ_ALONE = {"hcp.config.1"}
"""What a person writes, without the name of its schema."""
INSIDE = {
    "hcp.dcp-plan/1",
    "hcp.installed/1",
    "hcp.step/1",
    "hcp.te-cpu/1",
    "hcp.verified/1",
}
"""What hcp reads, or keeps for itself, and prints nowhere."""


def test_each_output_has_a_schema(root: Path) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    printed = set(re.findall(r'"(hcp\.[a-z-]+/[0-9]+)"', text)) - INSIDE
    assert printed == {f"{name.rpartition('.')[0]}/{name.rpartition('.')[2]}" for name in SCHEMAS.keys() - READ_ALONE}
