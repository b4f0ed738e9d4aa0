"""Megatron-LM's command line against `hcp check`."""

from __future__ import annotations

import random
from pathlib import Path

from agree.compare import Refusal, Result, Tally, errors_of
from agree.megatron_lm_launches import Drawn, draw
from agree.megatron_lm_tables import TABLES
from agree.process import Upstream, commit_of
from hcp.core.errors import HcpError
from hcp.launch.build import build_launch
from hcp.launch.options import parse_assumptions
from hcp.launch.read import read_target
from hcp.rules.engine import check_launch
from hcp.rules.registry import rules_for
from hcp.rules.report import Report


def compare(checkout: Path, commands: int, seed: int) -> Result:
    """Judges random command lines; the parser of the checkout says which options there are."""
    upstream = Upstream("megatron_lm_upstream.py", str(checkout))
    version, te, options = (upstream.ready[name] for name in ("version", "te", "options"))
    branch = branch_of(options)
    tally = Tally(TABLES)
    rng = random.Random(seed)
    for _ in range(commands):
        launch = draw(rng, options)
        answer = upstream.ask(launch._asdict())["refusal"]
        report = report_on(launch, [f"mcore={version}", f"mcore_branch={branch}", f"te={te}"])
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


def check_functional_tests(checkouts: list[Path]) -> int:
    """Prints our errors on the functional tests of the checkouts, which upstream runs; the number of them decides."""
    wrong = 0
    for checkout in checkouts:
        upstream = Upstream("megatron_lm_upstream.py", str(checkout))
        version, branch = upstream.ready["version"], branch_of(upstream.ready["options"])
        upstream.close()
        assumed = parse_assumptions([f"mcore={version}", f"mcore_branch={branch}"])
        read = unread = 0
        for file in sorted((checkout / "tests" / "functional_tests").rglob("model_config.yaml")):
            try:
                launch = build_launch(read_target(str(file)), assumed=assumed)
            except HcpError as error:
                unread += 1
                print(f"not read: {file.relative_to(checkout)}: {error}")
                continue
            read += 1
            for finding in check_launch(launch, rules_for, fixes=False).findings:
                if finding.severity == "error":
                    wrong += 1
                    problem = finding.problem
                    print(f"{file.relative_to(checkout)}: {finding.rule.id}: {problem.found}; wanted {problem.wanted}")
        print(f"megatron-lm {version} ({branch}): {read} functional tests read, {unread} not")
    return 1 if wrong else 0
