"""What a launch says about its own job: its #SBATCH lines, srun options, exports, modules and folders."""

from __future__ import annotations

import posixpath
import re
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import is_secret_name
from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.fact import Fact, Launch
from megatron_hcp.render.environment import reserved_in
from megatron_hcp.render.preparation import preparation_in
from megatron_hcp.render.site import BY_NAME
from megatron_hcp.render.starts import ONLY_START, STARTS
from megatron_hcp.render.values import checked, dashed, shortened

_SAME = (
    "job_name account partition qos reservation constraint nodelist exclude mem cpus_per_task segment switches time"
).split()
"""Options of sbatch that are site keys of the same name."""
_OURS = frozenset(
    "nodes ntasks ntasks_per_node gpus gpus_per_node gpus_per_task gres distribution open_mode no_requeue parsable "
    "exclusive output error signal array requeue".split()
)
"""Options of sbatch that the job sets itself."""
_PASSED = frozenset(
    "mpi gpu_bind cpu_bind mem_bind hint container_name container_env container_writable container_readonly "
    "container_remap_root no_container_remap_root container_entrypoint no_container_entrypoint network".split()
)
"""Options of srun that are passed to the training step."""
_SRUN_OURS = frozenset(
    "nodes ntasks ntasks_per_node label kill_on_bad_exit distribution container_image container_mounts output error "
    "container_workdir no_container_mount_home container_mount_home unbuffered overlap exclusive wait gres gpus "
    "gpus_per_node gpus_per_task cpus_per_task nodelist job_name partition account time qos export jobid mem verbose "
    "chdir open_mode".split()
)
_RENDEZVOUS = frozenset("node_rank master_addr master_port local_addr standalone".split())
"""Options of torchrun that the job sets itself, as every `rdzv_*`: its ranks must keep the order of the nodes."""
_FT_KEYS = {"ft_rank_section_timeouts": "ft_timeouts", "ft_rank_out_of_section_timeout": "ft_outside"}
"""Options of ft_launcher, and the site keys for them."""
_LAUNCHER_OURS = frozenset("nnodes nproc_per_node module m no_python run_path use_env help h".split())
"""Options of torchrun that are sizes of the job or part of its command."""
_APPTAINER = (".sif", ".simg")
_BINDS = re.compile(r"\s(?:--bind|-B)[ =]\"?([^\s\"\\]+)()")
_PLAIN_BIND = re.compile(r"[\w./:,@+-]+")
_TYPED = re.compile(r"(?P<type>[A-Za-z][\w.-]*):(?P<count>\d+)\Z")


class Stated(NamedTuple):
    """`site`: values of site keys; `origins`: where each is stated, `FILE:LINE`; also what was changed or left out."""

    start: str | None
    site: dict[str, Any]
    origins: dict[str, str]
    changed: tuple[str, ...]
    left_out: tuple[str, ...]


def stated_by(launch: Launch) -> Stated:
    """What the launch says about its job; empty if it is not a script."""
    reader = _JobReader(launch)
    if launch.reading.form == "shell":
        for take in (
            reader.refuse_what_no_job_can_carry,
            reader.sizes,
            reader.options,
            reader.logs,
            reader.steps,
            reader.launcher,
            reader.environment,
            reader.commands,
        ):
            take()
    name = ONLY_START.get(launch.dialect, reader.start)
    start = name if name in STARTS else None
    return Stated(start, reader.site, reader.origins, tuple(reader.changed), tuple(reader.left_out))


class _JobReader:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.site: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.changed: list[str] = []
        self.left_out: list[str] = []

    def take(self, name: str, value: object, fact: Fact | None = None, *, line: int = 0) -> None:
        """Takes a value for a site key, or records why not."""
        where = self.where(fact, line)
        if BY_NAME[name].type == "size" and isinstance(value, str) and value.isdecimal():
            value = int(value)
        try:
            self.site[name] = checked(BY_NAME[name].type, value, f"{where}: {name}", BY_NAME[name].choices)
        except HcpError as error:
            self.left_out.append(str(error))
        else:
            self.origins[name] = where

    def pass_on(self, program: str, options: list[tuple[str, Fact]]) -> None:
        """Takes options unchanged; only those that a directive cannot express are left out."""
        taken: list[str] = []
        for name, fact in options:
            text = f"--{dashed(name)}" + ("" if fact.value is True else f"={fact.value}")
            self.take(program, [text], fact)
            if self.site.get(program) == (text,):
                taken.append(text)
        if taken:
            self.site[program] = tuple(taken)

    def where(self, fact: Fact | None, line: int = 0) -> str:
        file = visible(posixpath.basename(self.launch.reading.target))
        if fact is not None and fact.location is not None:
            line = fact.location.line
        return f"{file}:{line}" if line else file

    def of(self, program: str) -> dict[str, Fact]:
        """The options of a program, by name."""
        return {
            name.partition(".")[2]: fact
            for name, fact in self.launch.facts.items()
            if name.startswith(program + ".") and fact.origin == "launch"
        }

    @property
    def start(self) -> str | None:
        """What starts the ranks, as the launch says."""
        fact = self.launch.facts.get("start")
        return fact.value if fact is not None and fact.origin == "launch" else None

    def refuse_what_no_job_can_carry(self) -> None:
        for number, line in enumerate((self.launch.reading.text or "").splitlines(), 1):
            if re.match(r"#SBATCH\s+(?:hetjob|packjob)\b", line):
                raise HcpError(
                    f"{self.where(None, number)}: found a heterogeneous job",
                    wanted="one with a single component, which is all that a rendered job can have",
                    do="render the component that trains by itself",
                )

    def sizes(self) -> None:
        for name in ("nodes", "gpus_per_node"):
            fact = self.launch.facts.get(name)
            if fact is not None and fact.origin in ("launch", "derived") and isinstance(fact.value, int):
                self.take(name, fact.value, fact)
        sbatch = self.of("sbatch")
        asked = next((name for name in ("gpus_per_node", "gres", "gpus", "gpus_per_task") if name in sbatch), None)
        if asked is None:
            if sbatch and "gpus_per_node" in self.site:
                self.take("gpu_request", "none")
                self.changed.append("the #SBATCH lines request no GPUs, so the job does not either")
            return
        fact = sbatch[asked]
        self.take("gpu_request", "gres" if asked == "gres" else "gpus-per-node", fact)
        typed = _TYPED.match(str(fact.value).removeprefix("gpu:"))
        if typed:
            self.take("gpu_type", typed["type"], fact)
        if asked not in ("gres", "gpus_per_node"):
            self.changed.append(
                f"--{dashed(asked)}={fact.value} ({self.where(fact)}): the job requests GPUs per node instead"
            )

    def options(self) -> None:
        passed: list[tuple[str, Fact]] = []
        for name, fact in self.of("sbatch").items():
            if name in _SAME:
                self.take(name, fact.value, fact)
            elif name not in _OURS and not name.startswith("container_") and name != "no_container_mount_home":
                passed.append((name, fact))
        self.pass_on("sbatch", passed)
        sbatch = self.of("sbatch")
        self.take("exclusive", "exclusive" in sbatch, sbatch.get("exclusive")) if sbatch else None
        if (array := sbatch.get("array")) is not None:
            self.take("array_range", array.value, array)
        if (signal := sbatch.get("signal")) is not None:
            seconds = re.search(r"@(\d+)", str(signal.value))
            self.take("signal", int(seconds[1]) if seconds else 60, signal)
            if not re.match(r"B:(SIG)?USR1@", str(signal.value)):
                self.changed.append(
                    f"--signal={signal.value} ({self.where(signal)}): B:USR1@{self.site.get('signal')}; the script "
                    "gets it, and sends TERM to the trainer"
                )
        for name, may in (("requeue", True), ("no_requeue", False)):
            if (requeue := sbatch.get(name)) is not None:
                self.take("slurm_requeue", may, requeue)
        for name, fact in sbatch.items():
            if name == "distribution" and str(fact.value).split(":")[0] not in ("block", "*"):
                self.changed.append(
                    f"--distribution={fact.value} ({self.where(fact)}): replaced with block, which CP groups need"
                )

    def logs(self) -> None:
        sbatch = self.of("sbatch")
        if (output := sbatch.get("output")) is not None:
            self.take("log_file", output.value, output)
            folder = posixpath.dirname(str(output.value))
            if folder and "%" not in folder:
                self.take("logs", folder, output)
        if (error := sbatch.get("error")) is not None and error.value != getattr(output, "value", None):
            self.changed.append(f"--error={error.value} ({self.where(error)}): errors go to the --output log, in order")

    def steps(self) -> None:
        """The container, and srun's other options."""
        srun, sbatch = self.of("srun"), self.of("sbatch")
        containers = {name: fact for name, fact in (sbatch | srun).items() if "container" in name}
        if (image := containers.get("container_image")) is not None:
            self.take("container_image", image.value, image)
        elif (image := self.of("docker").get("image")) is not None and str(image.value).endswith(_APPTAINER):
            self.take("container_image", image.value, image)
            self.take("container_runtime", "apptainer", image)
            binds = [where for words in _BINDS.findall(self.launch.reading.text or "") for where in words if where]
            if binds and all(map(_PLAIN_BIND.fullmatch, binds)):
                self.take("mounts", binds, image)
            elif binds:
                self.left_out.append(f"apptainer --bind {binds[0]} ({self.where(image)}): state it with --mounts")
            image = None
        if image is not None and "container_image" in self.site:
            self.take("container_runtime", "pyxis", image)
            self.take("container_home", "no_container_mount_home" not in containers, image)
            if (mounts := containers.get("container_mounts")) is not None:
                self.take("mounts", [mount for mount in str(mounts.value).split(",") if mount], mounts)
            if (workdir := containers.get("container_workdir")) is not None:
                self.take("container_workdir", workdir.value, workdir)
        passed = {name: fact for name, fact in (srun | containers).items() if name in _PASSED}
        self.pass_on("srun", list(passed.items()))
        for name, fact in srun.items():
            if name not in _PASSED | _SRUN_OURS:
                self.left_out.append(f"srun --{dashed(name)} ({self.where(fact)})")
        for name, why in self.launch.unknown.items():
            if name.startswith(("sbatch.", "srun.")):
                option = dashed(name.partition(".")[2])
                self.left_out.append(f"--{option}: {why}; state it as an option")

    def launcher(self) -> None:
        """torchrun's options. (ft_launcher's have the same prefix.)"""
        stated = self.of("torchrun")
        hidden = {name.partition(".")[2] for name in self.launch.unknown if name.startswith("torchrun.")}
        named = [name for name in (*stated, *sorted(hidden)) if name in _RENDEZVOUS or name.startswith("rdzv_")]
        if named:
            options = ", ".join(f"--{dashed(name)}" for name in named)
            self.changed.append(f"{options} ({self.where(stated.get(named[0]))}): the job sets the rendezvous itself")
        is_ft = any(name.startswith("ft_") for name in stated) or self.start == "ft_launcher"
        taken = {"max_restarts": "ft_restarts" if is_ft else "max_restarts", **_FT_KEYS}
        for name, fact in stated.items():
            if name in taken:
                self.take(taken[name], fact.value, fact)
            elif name not in (*named, *_LAUNCHER_OURS):
                value = "" if fact.value is True else f"={fact.value}"
                self.left_out.append(f"--{dashed(name)}{value} ({self.where(fact)})")

    def environment(self) -> None:
        exports = self.of("env")
        reserved = reserved_in(dict.fromkeys(exports))
        kept = {name: fact for name, fact in exports.items() if name not in reserved and name not in _OF_THE_JOB}
        if kept:
            self.take("env", {name: fact.value for name, fact in kept.items()})
            for name, fact in kept.items():
                self.origins[f"env.{name}"] = self.where(fact)
        for name in sorted(reserved):
            if name == "PATH":
                self.left_out.append(f"export PATH ({self.where(exports[name])}): {_PATH}")
            else:
                self.changed.append(f"{name} ({self.where(exports[name])}): the job sets it itself")
        for name, why in self.launch.unknown.items():
            variable = name.removeprefix("env.")
            if not name.startswith("env.") or variable in _OF_THE_JOB:
                continue
            if variable == "PATH":
                self.left_out.append(f"export PATH: {_PATH}")
            elif reserved_in({variable: None}):
                self.changed.append(f"{variable}: the job sets it itself")
            else:
                self.left_out.append(f"export {variable}: {why}; state it with --env")

    def commands(self) -> None:
        script = self.launch.facts.get("script")
        found = preparation_in(self.launch.reading.text or "", str(script.value if script is not None else ""))
        for name in ("modules", "venv", "workdir"):
            value = getattr(found, name)
            if value:
                self.take(name, value, line=getattr(found, f"{name}_line"))
        self.left_out += [f"{shortened(command)} ({self.where(None, line)})" for line, command in found.left_out]
        if found.python:
            self.take("python", found.python, line=found.starter_line)
        self.left_out += [f"{word} ({self.where(None, found.starter_line)}): {why}" for word, why in found.prefixes]
        known = {name.removeprefix("env.") for name in (*self.launch.facts, *self.launch.unknown)}
        for number, line in enumerate((self.launch.reading.text or "").splitlines(), 1):
            match = _EXPORT.match(line)
            if match and is_secret_name(match[1]):
                why = "a secret; export it in the shell that submits the job"
            elif match and match[1] in _OF_THE_JOB and match[1] in known:
                why = "the job sets it, or it must be unset"
            else:
                continue
            self.left_out.append(f"export {match[1]} ({self.where(None, number)}): {why}")


_EXPORT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=")
_PATH = "name its environment with --venv, or its Python with --python"
_OF_THE_JOB = ("SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK", "LD_PRELOAD")
