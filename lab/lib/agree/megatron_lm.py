"""Megatron-LM's command line against `hcp check`."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agree.compare import Refusal, Result, Tally, errors_of, owners_of
from agree.megatron_lm_any import draw_any
from agree.megatron_lm_launches import Drawn, draw
from agree.megatron_lm_tables import TABLES
from agree.process import Upstream, commit_of
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target
from megatron_hcp.rules.registry import rules_for


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random command lines, every second one over all options that the checkout's parser has."""
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    version, te, options = (upstream.ready[name] for name in ("version", "te", "options"))
    branch = branch_of(options)
    tally = Tally(TABLES)
    rng = random.Random(seed)
    for number in range(commands):
        launch = (draw_any if number % 2 else draw)(rng, options)
        answer = upstream.ask(launch._asdict())["refusal"]
        try:
            report = report_on(launch, [f"mcore={version}", f"mcore_branch={branch}", f"te={te}"])
        except HcpError:  # a value that is no size: hcp stops there
            tally.counts["not read"] += 1
            continue
        tally.add(str(launch), Refusal(**answer) if answer else None, errors_of(report, TABLES))
    upstream.close()
    made_with = {"branch": branch, "commands": commands, "seed": seed, "te": te}
    return Result("megatron-lm", version, commit_of(checkout), made_with, tally)


def branch_of(options: dict[str, object]) -> str:
    """Which branch of megatron-core has these options: dev calls dynamic CP by another name."""
    return "dev" if "--dynamic-context-parallel" in options else "main"


def report_on(launch: Drawn, versions: list[str]) -> Report:
    """What `hcp check` reports on the words, with the versions, the world size and the environment stated."""
    stated = [*versions, f"world_size={launch.world_size}", "arch=sm90"]
    stated += [f"env.{name}={'null' if value is None else value}" for name, value in launch.env.items()]
    built = build_launch(read_target("", dialect="mlm", words=launch.words), assumed=parse_assumptions(stated))
    return check_launch(built, rules_for, fixes=False)


class FunctionalTests(NamedTuple):
    """Our errors on one revision's functional tests: those that upstream's own start-up refuses alike, and the others.

    `refused_by_both` and `false_alarms` hold "<test>: <rule>".
    """

    version: str
    branch: str
    commit: str
    read: int
    not_read: int
    refused_by_both: tuple[str, ...]
    false_alarms: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"upstream": "megatron-lm, functional tests", **self._asdict()}


def check_functional_tests(checkout: Path) -> FunctionalTests:
    """Judges the functional tests of a checkout, and prints our errors on them; upstream is asked about each."""
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    version, branch = upstream.ready["version"], branch_of(upstream.ready["options"])
    assumed = parse_assumptions([f"mcore={version}", f"mcore_branch={branch}"])
    read = not_read = 0
    confirmed: list[str] = []
    wrong: list[str] = []
    for file in sorted((checkout / "tests" / "functional_tests").rglob("model_config.yaml")):
        try:
            launch = build_launch(read_target(str(file)), assumed=assumed)
        except HcpError as error:
            not_read += 1
            print(f"not read: {file.relative_to(checkout)}: {str(error).replace(f'{checkout}/', '')}")
            continue
        read += 1
        report = check_launch(launch, rules_for, fixes=False)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        answer = upstream.ask(as_drawn(file)._asdict())["refusal"] if errors else None
        refusal = Refusal(**answer) if answer else None
        owners = owners_of(refusal, TABLES) if refusal else ()
        for finding in errors:
            agreed = finding.rule.id in owners or (refusal is not None and is_guard_of(finding, refusal))
            (confirmed if agreed else wrong).append(f"{file.parent.name}: {finding.rule.id}")
            said = "refused by both" if agreed else "false alarm"
            problem = finding.problem
            print(f"{said}: {file.parent.name}: {finding.rule.id}: {problem.found}; wanted {problem.wanted}")
    upstream.close()
    print(f"megatron-lm {version} ({branch}): {read} functional tests read, {not_read} not; {len(wrong)} false alarms")
    return FunctionalTests(version, branch, commit_of(checkout), read, not_read, tuple(confirmed), tuple(wrong))


def is_guard_of(finding: Finding, refusal: Refusal) -> bool:
    """Whether a finding is the guard of the function in which upstream refuses."""
    function = (finding.problem.guard or "").partition("/")[0]
    return bool(function) and refusal.where.rpartition(" ")[2].endswith(function.rpartition(".")[2])


def as_drawn(file: Path) -> Drawn:
    """A functional test as a command line on as many whole nodes of eight ranks as its parallel sizes take."""
    test = yaml.safe_load(file.read_text(encoding="utf-8"))
    options = test.get("MODEL_ARGS") or {}
    words: list[str] = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value != "":
            words += [name, *re.sub(r"[][()]", " ", str(value)).split()]
    sizes = [int(options.get(f"--{axis}-parallel-size", 1)) for axis in ("tensor-model", "pipeline-model", "context")]
    env: dict[str, str | None] = {name: str(value) for name, value in (test.get("ENV_VARS") or {}).items()}
    return Drawn(tuple(words), math.lcm(8, math.prod(sizes)), env)
