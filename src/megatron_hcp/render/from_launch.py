"""What a launch says about its own job: its #SBATCH lines, srun options, exports, modules and folders."""

from __future__ import annotations

import posixpath
import re
from typing import Any, NamedTuple

from megatron_hcp.ground.numbers import whole_number
from megatron_hcp.launch.fact import Fact, Launch, shown_value
from megatron_hcp.launch.forms.script.options import gpu_count
from megatron_hcp.render.container import binds_in
from megatron_hcp.render.site import ASSUMABLE
from megatron_hcp.render.starts import STARTS, only_start
from megatron_hcp.render.surroundings import refuse_what_no_job_can_carry, take_commands, take_environment
from megatron_hcp.render.taken import Taken
from megatron_hcp.render.values import dashed
from megatron_hcp.render.words import TakenWord

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
_TAKES_NODES = frozenset(("ntasks", "nodelist", "nodefile"))
"""Options for which Slurm takes more than one node, if they need it."""
_SIZES = frozenset(("sbatch.nodes", "srun.nodes", "sbatch.ntasks", "srun.ntasks", "nodes"))
_RENDEZVOUS = frozenset("node_rank master_addr master_port local_addr standalone".split())
"""Options of torchrun that the job sets itself, as every `rdzv_*`: its ranks must keep the order of the nodes."""
_FT_KEYS = {"ft_rank_section_timeouts": "ft_timeouts", "ft_rank_out_of_section_timeout": "ft_outside"}
"""Options of ft_launcher, and the site keys for them."""
_LAUNCHER_OURS = frozenset("nnodes nproc_per_node module m no_python run_path use_env help h".split())
"""Options of torchrun that are sizes of the job or part of its command."""
_APPTAINER = (".sif", ".simg")
_TYPED = re.compile(r"(?P<type>[A-Za-z][\w.-]*):(?P<count>\d+)\Z")


class Stated(NamedTuple):
    """`site`: values of site keys; `origins`: where each is stated, `FILE:LINE`; `words`: what became of each word."""

    start: str | None
    site: dict[str, Any]
    origins: dict[str, str]
    words: tuple[TakenWord, ...]
    setup: tuple[tuple[str, str], ...] = ()
    """Lines that set up software, with their places."""


def stated_by(launch: Launch, in_pods: bool = False) -> Stated:
    """What the launch says about its job; empty if it is not a script. `in_pods`: the job takes the image of a pod."""
    reader = _JobReader(launch)
    if launch.reading.form == "shell":
        refuse_what_no_job_can_carry(launch, reader)
        reader.sizes()
        reader.options()
        reader.logs()
        reader.steps(in_pods)
        reader.launcher()
        take_environment(launch, reader)
        take_commands(launch, reader, in_pods)
    name = only_start(launch) or reader.start or reader.start_of_mpi()
    start = name if name in STARTS else None
    return Stated(start, reader.site, reader.origins, tuple(reader.words), tuple(reader.setup))


def with_project(stated: Stated, launch: Launch) -> Stated:
    """The same, with the facts of the repository's `.hcp.yaml` that the launch uses, below all that the launch says.

    Those of the cluster become settings of the job. The job's own check gets the others by name: the file need not be
    where the job runs.
    """
    used = {name: fact for name, fact in launch.facts.items() if fact.origin == "project" and fact.value is not None}
    cluster = {name: used[name].value for name in ASSUMABLE if name in used and name not in stated.site}
    facts = {name: shown_value(fact.value) for name, fact in used.items() if name not in ASSUMABLE}
    places = {name: f"{fact.location.file}:{fact.location.line}" for name, fact in used.items() if fact.location}
    origins = {name if name in cluster else f"facts.{name}": place for name, place in places.items()}
    site = {**cluster, **({"facts": facts} if facts else {}), **stated.site}
    return stated._replace(site=site, origins={**origins, **stated.origins})


def _is_of_apptainer(image: str) -> bool:
    """Whether it is a file or an unpacked folder, not a name in a registry."""
    return image.endswith(_APPTAINER) or image.startswith("/")


class _JobReader(Taken):
    def sizes(self) -> None:
        for name in ("nodes", "gpus_per_node"):
            fact = self.launch.facts.get(name)
            if fact is not None and fact.origin in ("launch", "derived") and isinstance(fact.value, int):
                self.take(name, fact.value, fact)
        self.nodes_of_slurm()
        self.cluster_of_ray()
        sbatch = self.of("sbatch")
        asked = next((name for name in ("gpus_per_node", "gres", "gpus", "gpus_per_task") if name in sbatch), None)
        if asked is None:
            if sbatch and "gpus_per_node" in self.site:
                self.take("gpu_request", "none")
                self.change("#SBATCH lines without GPUs", self.where(None), "the job does not request any either")
            return
        fact = sbatch[asked]
        self.take("gpu_request", "gres" if asked == "gres" else "gpus-per-node", fact)
        typed = _TYPED.match(str(fact.value).removeprefix("gpu:"))
        if typed:
            self.take("gpu_type", typed["type"], fact)
        count, used = gpu_count(str(fact.value)), self.site.get("gpus_per_node")
        if asked in ("gres", "gpus_per_node") and count is not None and used is not None and count != used:
            self.change(f"--{dashed(asked)}={fact.value}", self.where(fact), f"{used}, as many as the launch uses")
        if asked not in ("gres", "gpus_per_node"):
            self.change(f"--{dashed(asked)}={fact.value}", self.where(fact), "the job requests GPUs per node instead")

    def nodes_of_slurm(self) -> None:
        """The nodes that Slurm allocates, if a launcher that states none has as many by default.

        torchrun's default and verl's is 1: in a larger job each node would train by itself, or all but one would idle.
        Slurm's is 1 too, for a script that asks for nothing that may take more: tasks, nodes by name, GPUs in all.
        """
        own = self.launch.facts.get("nodes")
        default = own.value if own is not None else 1 if self.launch.dialect == "verl" else None
        if (own is not None and own.origin != "default") or not _SIZES.isdisjoint(self.launch.unknown):
            return
        srun, sbatch = self.of("srun"), self.of("sbatch")
        slurm = srun.get("nodes") or sbatch.get("nodes")
        if slurm is not None and whole_number(str(slurm.value), 9) == default:
            self.take("nodes", default, slurm)
            return
        gpus, of_node = sbatch.get("gpus"), self.launch.facts.get("gpus_per_node")
        asked = {name for name, fact in (srun | sbatch).items() if (name, str(fact.value)) != ("ntasks", "1")}
        may_be_more = not _TAKES_NODES.isdisjoint(asked)
        if gpus is not None:
            may_be_more |= of_node is None or gpu_count(str(gpus.value)) != of_node.value
        if slurm is None and default == 1 and sbatch and not may_be_more:
            self.take("nodes", 1)
            self.change("#SBATCH lines without nodes", self.where(None), "1 node, as Slurm's default is")

    def cluster_of_ray(self) -> None:
        """The sizes of the allocation, all of which is Ray's, where the launch's own are not known.

        NeMo-RL's ray.sub has as many GPUs on a node as GPUS_PER_NODE says, or as it has by default.
        """
        if only_start(self.launch) != "ray":
            return
        sbatch = self.of("sbatch")
        gpus = sbatch.get("gpus_per_node") or sbatch.get("gres")
        if gpus is None and self.launch.dialect == "nemo-rl":
            gpus = self.of("env").get("GPUS_PER_NODE") or self.of("ray_sub").get("gpus_per_node")
        nodes = sbatch.get("nodes")
        if "nodes" not in self.site and nodes is not None and (count := whole_number(str(nodes.value), 9)):
            self.take("nodes", count, nodes)
        if "gpus_per_node" not in self.site and gpus is not None and (count := gpu_count(str(gpus.value))):
            self.take("gpus_per_node", count, gpus)

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
            self.array(array, sbatch.get("nodes"))
        if (signal := sbatch.get("signal")) is not None:
            seconds = re.search(r"@(\d+)", str(signal.value))
            self.take("signal", int(seconds[1]) if seconds else 60, signal)
            if not re.match(r"B:(SIG)?USR1@", str(signal.value)):
                became = f"B:USR1@{self.site.get('signal')}; the script gets it, and sends TERM to the trainer"
                self.change(f"--signal={signal.value}", self.where(signal), became)
        for name, may in (("requeue", True), ("no_requeue", False)):
            if (requeue := sbatch.get(name)) is not None:
                self.take("slurm_requeue", may, requeue)
        for name, fact in sbatch.items():
            if name == "distribution" and str(fact.value).split(":")[0] not in ("block", "*"):
                self.change(f"--distribution={fact.value}", self.where(fact), "block, which CP groups need")

    def array(self, array: Fact, per_element: Fact | None) -> None:
        """The elements of an array, unless they are the launch's nodes: in the job, each would train with all nodes."""
        last = re.fullmatch(r"0-(\d{1,6})", str(array.value))
        own = whole_number(str(per_element.value), 9) if per_element is not None else 1
        nodes = self.site.get("nodes", 1)
        if last is not None and own is not None and own < nodes == own * (int(last[1]) + 1):
            self.change(f"--array={array.value}", self.where(array), f"{nodes} nodes of one job, as the launch has")
        else:
            self.take("array_range", array.value, array)

    def logs(self) -> None:
        sbatch = self.of("sbatch")
        if (output := sbatch.get("output")) is not None:
            self.take("log_file", output.value, output)
            folder = posixpath.dirname(str(output.value))
            if folder and "%" not in folder and "log_file" in self.site:
                self.take("logs", folder, output)
        if (error := sbatch.get("error")) is not None and error.value != getattr(output, "value", None):
            self.change(f"--error={error.value}", self.where(error), "errors go to the --output log, in order")

    def steps(self, in_pods: bool) -> None:
        """The container, and srun's other options."""
        if (pod := self.of("pod").get("image")) is not None:
            if in_pods:
                self.take("container_image", pod.value, pod)
            else:
                self.leave(f"image {pod.value}", self.where(pod), "name what this cluster runs with --container-image")
        srun, sbatch = self.of("srun"), self.of("sbatch")
        containers = {name: fact for name, fact in (sbatch | srun).items() if "container" in name}
        if (image := containers.get("container_image")) is not None:
            self.take("container_image", image.value, image)
        elif (own := self.of("docker").get("image")) is not None:
            self.image_of_command(own)
        if image is not None and "container_image" in self.site:
            self.take("container_runtime", "pyxis", image)
            self.take("container_home", "no_container_mount_home" not in containers, image)
            if (mounts := containers.get("container_mounts")) is not None:
                self.take("mounts", [mount for mount in str(mounts.value).split(",") if mount], mounts)
            if (workdir := containers.get("container_workdir")) is not None:
                self.take("container_workdir", workdir.value, workdir)
        if "docker.image" in self.launch.unknown:
            why = self.launch.unknown["docker.image"]
            self.leave("the container's image", self.where(None), f"{why}; name it with --container-image")
        passed = {name: fact for name, fact in (srun | containers).items() if name in _PASSED}
        self.pass_on("srun", list(passed.items()))
        for name, fact in srun.items():
            if name not in _PASSED | _SRUN_OURS:
                self.leave(f"srun --{dashed(name)}", self.where(fact), "state it with --srun if the job needs it")
        for name, why in self.launch.unknown.items():
            if name.startswith(("sbatch.", "srun.")):
                option = dashed(name.partition(".")[2])
                self.leave(f"--{option}", self.where(None), f"{why}; state it as an option")

    def image_of_command(self, image: Fact) -> None:
        """The image of `apptainer exec` or `docker run`."""
        if not _is_of_apptainer(str(image.value)):
            self.leave(f"image {image.value}", self.where(image), "name it with --container-image")
            return
        self.take("container_image", image.value, image)
        self.take("container_runtime", "apptainer", image)
        plain = []
        for line, bind, folder in binds_in(self.launch.reading.text or ""):
            if folder is not None:
                plain.append(folder)
            else:
                self.leave(f"apptainer --bind {bind}", self.where(None, line), "state it with --mounts")
        if plain:
            self.take("mounts", plain, image)

    def launcher(self) -> None:
        """torchrun's options. (ft_launcher's have the same prefix.)"""
        stated = self.of("torchrun")
        hidden = {name.partition(".")[2] for name in self.launch.unknown if name.startswith("torchrun.")}
        named = [name for name in (*stated, *sorted(hidden)) if name in _RENDEZVOUS or name.startswith("rdzv_")]
        if named:
            options = ", ".join(f"--{dashed(name)}" for name in named)
            self.change(options, self.where(stated.get(named[0])), "the job sets the rendezvous itself")
        is_ft = any(name.startswith("ft_") for name in stated) or self.start == "ft_launcher"
        taken = {"max_restarts": "ft_restarts" if is_ft else "max_restarts", **_FT_KEYS}
        for name, fact in stated.items():
            if name in taken:
                self.take(taken[name], fact.value, fact)
            elif name not in (*named, *_LAUNCHER_OURS):
                value = "" if fact.value is True else f"={fact.value}"
                self.leave(f"--{dashed(name)}{value}", self.where(fact), "the job starts the launcher without it")
