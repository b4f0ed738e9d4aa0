"""Turns a launch and a site into a job: everything that the script's templates read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.json_layout import laid_out
from megatron_hcp.ground.visible import visible
from megatron_hcp.job.spec import JobSpec, spec_json
from megatron_hcp.launch.fact import LAUNCH_FOLDER, OF_LAUNCH_TIME, Argument, Launch, RunText, is_of_script
from megatron_hcp.launch.forms.script.arguments import CommandWords, command_words
from megatron_hcp.render import arguments
from megatron_hcp.render.container import Container, container_of
from megatron_hcp.render.directives import Directive, directives_of
from megatron_hcp.render.environment import MEGATRON, Variable, environment_of, reserved_in
from megatron_hcp.render.health import HealthCheck, health_checks
from megatron_hcp.render.program import Lines, cluster_words, launch_words, program_words, saved_to, with_cluster_words
from megatron_hcp.render.shell_words import dates_in, is_new_each_time
from megatron_hcp.render.site import BY_NAME, limit_s
from megatron_hcp.render.starts import STARTS, Start, only_start, title_of
from megatron_hcp.render.targets.table import SLURM, Target, carried_by, fate_of
from megatron_hcp.render.values import check_text

_CLUSTER_FACTS = ("arch", "nvlink_domain", "gpus_per_node", "nodes")


@dataclass(frozen=True)
class Job:
    """Everything in an sbatch script. `site` has every site key's value, from `load_site`."""

    start: Start
    site: Mapping[str, Any]
    title: str
    directives: tuple[Directive, ...]
    origins: Mapping[str, str]
    """Where the value of each site key comes from, by `settle_site`."""
    environment: tuple[Variable, ...]
    container: Container
    checkpoint_dir: Argument | None
    program: tuple[str, ...]
    """The program to start; empty for a verification."""
    launch_lines: Lines
    own: CommandWords
    """The commands whose output the launch's words hold, by the variables that they set."""
    launch_home: str
    """The folder that holds the launch's file."""
    has_connections: bool
    """Whether the launch's framework reads CUDA_DEVICE_MAX_CONNECTIONS, so that the check needs its value."""
    check_arguments: tuple[str, ...]
    dryrun: list[str] | None
    check_skip: int
    """How many leading words of the launch are not passed to the check."""
    rank_arguments: tuple[str, ...]
    group_arguments: tuple[str, ...]
    health: tuple[HealthCheck, ...]
    """The health checks that every node runs before training."""
    steps: tuple[str, ...]
    """The steps of a verification; empty for all of them."""
    setup: tuple[tuple[str, str], ...] = ()
    """As in `Stated`; the first may be that for bash."""

    @property
    def writes_checkpoints(self) -> bool:
        """Whether checkpoints go to a known folder and not to an object store."""
        if not self.launch_lines or self.checkpoint_dir is None or "://" in str(self.checkpoint_dir):
            return False
        # An element of an array may write elsewhere, by words of its own.
        return not any("save" in word or "local_dir" in word for words in self.site["array"] or () for word in words)

    @property
    def launch_folder(self) -> str | None:
        """The folder of the launch's file, if its words name it."""
        return self.launch_home if LAUNCH_FOLDER in self._unknown or self._names(f"${LAUNCH_FOLDER}") else None

    @property
    def has_dates(self) -> bool:
        """Whether the launch's words hold dates."""
        return dates_in(word for line in self.launch_lines for word in line) or self._names(OF_LAUNCH_TIME)

    @property
    def is_of_script(self) -> bool:
        """Whether the launch's words hold outputs or choices of its script, which this one makes."""
        return any(map(is_of_script, self._unknown))

    def _names(self, variable: str) -> bool:
        """Whether a command or condition of the launch's script names a variable of this one."""
        return any(variable in text for text in (*self._unknown, *self.own.outputs.values()))

    @property
    def from_outside(self) -> list[str]:
        """The variables in the launch's words that whoever submits the job sets: neither Slurm nor every shell does."""
        names = self._unknown - {LAUNCH_FOLDER, "HOME", "USER", "PWD", *self.own.outputs}
        return sorted(name for name in names if name.isidentifier() and not name.startswith("SLURM_"))

    @property
    def givers(self) -> list[str]:
        """The files that the launch's script sources for some of these variables, and that nobody could read."""
        return sorted({visible(word.giver)[:200] for word in self._run_words if word.giver})

    @property
    def has_lists(self) -> bool:
        """Whether a variable or an output among the launch's words may be several of them."""
        return any(word.splits for word in self._run_words)

    @property
    def arguments(self) -> int:
        """How many arguments of its own the job needs for the launch's words."""
        return max((int(name) for name in self._unknown if name.isdecimal()), default=0)

    @property
    def _unknown(self) -> set[str]:
        return {name for word in self._run_words for name in word.unknown}

    @property
    def _run_words(self) -> list[RunText]:
        return [word for line in self.launch_lines for word in line if isinstance(word, RunText)]

    @property
    def spec(self) -> JobSpec:
        """What the job's supervisor must know."""
        trains, site = bool(self.program), self.site
        return JobSpec(
            start=self.start.name,  # type: ignore[arg-type]  # a key of STARTS
            nodes=site["nodes"],
            gpus_per_node=site["gpus_per_node"],
            gpus_to_see=0 if site["gpu_request"] == "none" else site["gpus_per_node"],
            check=list(self.check_arguments) if trains else None,
            check_skip=self.check_skip,
            check_connections=self.has_connections,
            dryrun=self.dryrun,
            ranks=list(self.rank_arguments) if self.start.has_ranks else None,
            communication=self._communication_arguments(),
            shared=tuple(site["shared"] or ()),
            free_gib=site["free_gib"],
            requeue=site["requeue"],
            stall_s=None if site["stall"] is None else site["stall"] * 60,
        )

    @property
    def spec_text(self) -> str:
        """The spec as JSON."""
        text = laid_out(spec_json(self.spec))  # printing the script must not send control characters to the terminal
        return "".join(
            letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text
        )

    def _communication_arguments(self) -> list[str] | None:
        if not (self.site["comm_test"] or self.site["comm_gbps"]) or not self.start.has_ranks:
            return None
        least = [f"--min-gbps={self.site['comm_gbps']}"] if self.site["comm_gbps"] is not None else []
        return [*self.group_arguments, *least]

    @property
    def ntasks_per_node(self) -> int:
        """How many tasks srun starts per node by default."""
        return self.site["gpus_per_node"] if self.start.tasks_are_ranks else 1


def plan_job(
    start: str,
    site: Mapping[str, Any],
    launch: Launch | None = None,
    cli_words: Sequence[str] = (),
    steps: Sequence[str] = (),
    model_file: str | None = None,
    recipe: str | None = None,
    origins: Mapping[str, str] = MappingProxyType({}),
    target: Target = SLURM,
    setup: tuple[tuple[str, str], ...] = (),
) -> Job:
    """The job that trains a launch, or verifies steps, on a site.

    Args:
        start: one of STARTS.
        site: every site key's value, from `load_site`.
        origins: where each value comes from, by `settle_site`.
        launch: the launch to train; None for `verify`.
        cli_words: the launch's words after `--` on our command line.
        steps: for `verify`: the steps, as `hcp verify` takes them.
        model_file: a config.json that the check needs too.
        recipe: the Megatron-Bridge recipe that the check needs too.
        target: where the job runs.
        setup: as in `Stated`.

    Raises:
        HcpError: required settings are missing (all are listed), or a value cannot be quoted.
    """
    site = carried_by(target, site)
    if (limit := limit_s(site)) is not None and "signal" not in origins and site["signal"] >= limit:
        site = {**site, "signal": max(limit // 4, 1)}  # the default is for longer jobs
    facts = {name: fact.value for name, fact in launch.facts.items()} if launch else {}
    facts |= {name: site[name] for name in _CLUSTER_FACTS if site[name] is not None}
    dialect = launch.dialect if launch else None
    own = command_words(launch.reading.items if launch else ())
    lines = launch_words(launch, own, cli_words, STARTS[start].has_ranks) if launch else ()
    program = program_words(launch, site["program"] or ()) if launch else ()
    saved = saved_to(launch, own.argv or ()) if launch else None
    checkpoint_dir = site["checkpoint_dir"] or facts.get("save_dir") or saved
    _refuse_gaps(start, site, program, checkpoint_dir, target)
    _refuse_contradictions(start, site, launch, is_new_each_time(saved, own.outputs))
    for line in lines:
        for word in line:
            check_text(
                str(word), lambda wanted: HcpError("a word of the launch:", wanted=wanted, do="shorten or correct it")
            )
    if launch is not None and dialect == "verl" and start == "ray":
        lines = with_cluster_words(lines, cluster_words(launch, site))
    return Job(
        start=STARTS[start],
        site=site,
        container=container_of(site),
        title=title_of(start, launch, steps),
        directives=directives_of(STARTS[start], site, origins),
        origins=origins,
        environment=environment_of(dialect, facts, site["env"] or {}, site, origins),
        checkpoint_dir=checkpoint_dir,
        program=program,
        launch_lines=lines,
        own=own,
        launch_home=os.path.dirname(os.path.abspath(launch.reading.target)) if launch else "",
        has_connections=dialect in MEGATRON,
        check_arguments=arguments.check_arguments(launch, site, model_file, recipe) if launch else (),
        dryrun=arguments.dryrun_arguments(launch) if launch and site["preflight"] else None,
        check_skip=arguments.words_to_skip(launch, lines) if launch else 0,
        rank_arguments=arguments.rank_arguments(facts, site["gpus_per_node"]),
        group_arguments=arguments.group_arguments(facts),
        health=health_checks(site["health"] or ()),
        steps=tuple(steps),
        setup=setup,
    )


def _refuse_gaps(
    start: str, site: Mapping[str, Any], program: Sequence[str], checkpoint_dir: Argument | None, target: Target
) -> None:
    unstated = (name for name in target.needs if site[name] in (None, BY_NAME[name].default))
    missing = {name: f"{name} ({target.needs[name]})" for name in unstated}
    if start != "verify":
        if not program:
            missing["program"] = "program (the launch does not name the program to start)"
        if site["requeue"] and not checkpoint_dir and fate_of("checkpoint_dir", target).fate == "carried":
            missing["checkpoint_dir"] = "checkpoint_dir (whether a requeued job makes progress)"
    if site["container_image"] is None and site["mounts"]:
        missing["container_image"] = "container_image (mounts need a container)"
    for name, other in (("container_image", "container_runtime"), ("container_runtime", "container_image")):
        if target.is_slurm_script and site[name] is None and site[other] is not None:
            missing[name] = f"{name} ({other} needs it)"
    if missing:
        options = " ".join(f"--{name.replace('_', '-')}" for name in missing)
        keys = " ".join(f"{name}:" for name in missing)
        raise HcpError(f"not stated: {'; '.join(missing.values())}", wanted=f"{options}, or in the site file {keys}")


def _refuse_contradictions(start: str, site: Mapping[str, Any], launch: Launch | None, is_new_folder: bool) -> None:
    limit = limit_s(site)
    if limit is not None and site["signal"] >= limit:
        raise HcpError(
            f"signal: found {site['signal']} s before the end of a job of {limit} s",
            wanted="less than the time limit, or the trainer is stopped at once",
            do="lower it, or raise time",
        )
    for name in ("requeue", "array", "array_range"):
        if site["in_allocation"] and site[name]:
            raise HcpError(
                f"found {name} with --in-allocation",
                wanted="only one of them: inside an allocation, Slurm does not start the job again",
                do="leave one of them out",
            )
    if site["requeue"] and is_new_folder:
        raise HcpError(
            "found requeue with a checkpoint folder that each attempt names anew",
            wanted="one folder, or training begins again at its first step",
            do="write the folder out, or leave requeue out",
        )
    dialect, only = launch.dialect if launch else None, only_start(launch)
    if start == "ray" and only != "ray":
        raise HcpError(
            f"found --start ray for a {dialect} launch",
            wanted="verl, NeMo-RL or slime, which start their ranks with Ray",
            do="use srun or torchrun",
        )
    if only is not None and start != only:
        raise HcpError(
            f"found --start {start} for a {dialect} launch",
            wanted=f"{only}, with which {dialect} starts its workers",
            do=f"use --start {only}",
        )
    if reserved := reserved_in(site["env"] or {}):
        raise HcpError(
            f"env: {reserved[0]} is set by the job itself or changes how bash reads the script",
            wanted="other variables",
            do="leave it out",
        )
