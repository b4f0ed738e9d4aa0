"""Before a job trains: hcp check on its launch, the comparison of its nodes, their health, the place of every rank."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.job.events import Events, complain, one_line
from megatron_hcp.job.folder import JobFolder, wait_until
from megatron_hcp.job.health import judge, read_answers
from megatron_hcp.job.nodes import common_facts, differences, not_shared, report_of_node
from megatron_hcp.job.own import run_hcp
from megatron_hcp.job.placement import map_ranks, sizes_in
from megatron_hcp.job.spec import JobSpec
from megatron_hcp.job.task import JobTask

_CHECK_S = 300.0
_FACTS_S = 120.0
_DRYRUN_S = 600.0
REPORT_S = 900.0
"""Seconds in which every node must report: an image may have to be fetched first."""


class StoppedError(Exception):
    """The job's own checks end it. `unfit`: nodes without which it may train."""

    def __init__(self, reason: str, unfit: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.unfit = one_line(reason), tuple(unfit)


def report_node(spec: JobSpec, folder: JobFolder, task: JobTask, checkpoints: Path | None) -> None:
    """Leaves the report of this node, and which tasks are on it."""
    done = run_hcp(["facts", "--format", "json"], _FACTS_S)
    try:
        facts = {name: fact["value"] for name, fact in json.loads(done.stdout)["facts"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        facts = {}
    written = [str(folder.run), *([str(checkpoints)] if checkpoints is not None else [])]
    report = report_of_node(facts, spec.gpus_to_see, spec.shared, written, spec.free_gib or 0)
    folder.tell(f"nodes/{task.node_index}", {**report, "tasks": task.siblings, "index": task.node_index})


class Preparing:
    """The checks that the leading task makes, phase by phase; each raises StoppedError where the job must not train."""

    def __init__(
        self, spec: JobSpec, folder: JobFolder, events: Events, launch: Sequence[str], still: Callable[[], None]
    ) -> None:
        self.spec, self.folder, self.events, self.launch, self.still = spec, folder, events, launch, still
        self.phase = 0
        self.nodes: list[str] = []

    def enter(self, phase: int, what: str) -> None:
        self.still()
        self.phase = phase
        self.events.say("phase", phase=phase, what=what)

    def check_launch(self, where: str, facts: Sequence[str] = ()) -> None:
        """Runs `hcp check` on the launch; a launch with errors is not trained."""
        if self.spec.check is None:
            return
        report = self.folder.run / "check.json"
        words = ["check", "-o", f"json={report}", "--format", "text", *self._launch_words(self.spec.check, facts)]
        done = run_hcp(words, _CHECK_S, self.still)
        complain(done.stderr)
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        if done.status == 4:
            print(done.stdout, end="", flush=True)
            reason = "hcp check left the launch undecided; see the lines above"
            self.events.say("warning", phase=self.phase, reason=reason)
        elif done.status == 1:
            print(done.stdout, end="", flush=True)
            raise StoppedError(f"hcp check found errors {where}")
        elif done.status == 2:
            raise StoppedError(f"hcp check could not read the launch: {said[-1]}")
        elif done.status != 0:
            how = f"did not end within {_CHECK_S:.0f} s" if done.why else f"exit code {done.status}"
            raise StoppedError(f"hcp check could not run ({how}): {said[-1]}")

    def _launch_words(self, check: Sequence[str], facts: Sequence[str]) -> list[str]:
        words = [*self.spec.assumed, *check, *(f"--assume={fact}" for fact in facts)]
        if self.spec.check_connections:
            value = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "null")
            words.append(f"--assume=env.CUDA_DEVICE_MAX_CONNECTIONS={value}")
        return [*words, "--", *self.launch[self.spec.check_skip :]]

    def try_upstream(self, facts: Sequence[str]) -> None:
        """Runs `hcp dryrun` on the launch, if the job is told to; only upstream's own refusal ends the job."""
        if self.spec.check is None or self.spec.dryrun is None:
            return
        words = ["dryrun", "--format=json", *self.spec.dryrun, *self._launch_words(self.spec.check, facts)]
        done = run_hcp(words, _DRYRUN_S, self.still)
        complain(done.stderr)
        try:
            report = json.loads(done.stdout)
            shown = {key: report[key] for key in ("verdict", "until", "limits")}
            why = _first_rank(report)
        except (ValueError, KeyError, TypeError):
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            shown = {"verdict": "undecided"}
        self.events.say("dryrun", phase=self.phase, **shown)
        if shown["verdict"] == "refused":
            raise StoppedError(f"upstream's own code refuses the launch: {why}")
        if shown["verdict"] != "done":
            why = f"no end within {_DRYRUN_S:.0f} s" if done.why else why
            self.events.say("warning", phase=self.phase, reason=one_line(f"hcp dryrun decides nothing: {why}"))

    def compare_nodes(self, names: Sequence[str]) -> None:
        """Waits for every node's report; they must agree, and have what the job needs."""
        reports = self._reports(names)
        self.nodes = [report["node"] for report in reports]
        lines = "".join(json.dumps(report) + "\n" for report in reports)
        (self.folder.run / "nodes.txt").write_text(lines, encoding="utf-8")
        problems = [*differences(reports, self.spec.nodes), *not_shared(reports)]
        if problems:
            complain("\n".join(f"hcp job: {problem}" for problem in problems))
            raise StoppedError(f"the nodes are not fit to train: {problems[-1]}")
        facts = common_facts(reports)
        (self.folder.run / "facts.txt").write_text("".join(f"{fact}\n" for fact in facts), encoding="utf-8")
        self.check_launch("with the versions on the nodes", facts)
        self.try_upstream(facts)
        self._place_ranks(reports)

    def still_waits_for(self, names: Sequence[str]) -> str:
        """Which nodes have not reported yet, in words; "" if all have."""
        silent = ", ".join(name for index, name in enumerate(names) if not self.folder.is_told(f"nodes/{index}"))
        return f"{silent} had not reported yet" if silent and self.phase == 1 else ""

    def _reports(self, names: Sequence[str]) -> list[dict[str, Any]]:
        def all_in() -> bool:
            self.still()
            return all(self.folder.is_told(f"nodes/{index}") for index in range(self.spec.nodes))

        wait_until(all_in, REPORT_S)
        found = [self.folder.told(f"nodes/{index}") for index in range(self.spec.nodes)]
        silent = [index for index, report in enumerate(found) if report is None]
        if silent:
            known = [names[index] for index in silent if index < len(names)]
            who = ", ".join(known) or f"{len(silent)} nodes"
            raise StoppedError(f"{who} did not report within {REPORT_S:.0f} s what it has", known)
        return [report for report in found if report is not None]

    def judge_health(self) -> None:
        """Reads what the script's own health checks found, if it made any."""
        with suppress(FileNotFoundError):
            lines = (self.folder.run / "health.txt").read_text(encoding="utf-8", errors="replace").splitlines()
            problems, unfit = judge(read_answers(lines), self.spec.nodes, self.nodes)
            if problems:
                complain("\n".join(f"hcp health: {problem}" for problem in problems))
                raise StoppedError(f"a node is not fit to train: {problems[-1]}", unfit)

    def _place_ranks(self, reports: Sequence[dict[str, Any]]) -> None:
        if self.spec.ranks is None:
            return
        if self.spec.tasks_are_ranks:
            at = {rank: report["node"] for report in reports for rank in report["tasks"]}
        else:
            per_node = self.spec.gpus_per_node
            at = {index * per_node + i: report["node"] for index, report in enumerate(reports) for i in range(per_node)}
        lines = "".join(f"{rank} {at[rank]}\n" for rank in sorted(at))
        (self.folder.run / "ranks.txt").write_text(lines, encoding="utf-8")
        said: list[str] = []

        def say(event: str, **fields: Any) -> None:
            line = "hcp-job: " + json.dumps({"event": event, **fields})
            said.append(line)
            print(line, flush=True)

        try:
            map_ranks([at[rank] for rank in sorted(at)], sizes_in(self.spec.ranks), say)
        except HcpError as error:
            raise StoppedError(f"the ranks are not placed as planned: {error}") from None
        finally:
            (self.folder.run / "ranks.log").write_text("".join(f"{line}\n" for line in said), encoding="utf-8")


def _first_rank(report: Mapping[str, Any]) -> str:
    """How the first rank of a dry run's verdict ended, by its report."""
    rank = next(rank for rank in report["ranks"] if rank["verdict"] == report["verdict"])
    error = rank["error"]
    said = error and {**error, "message": error["message"] or error["code"]}
    place = "{file}:{line} {function}: {type}: {message}".format(**said) if said else ""
    return ": ".join(filter(None, (f"rank {rank['rank']} in {rank['stage']}", rank["missing"], place)))
