"""From a launch and a site to an sbatch script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from hcp.core.errors import HcpError
from hcp.core.ranks import DEFAULT_ORDER
from hcp.launch.fact import Launch
from hcp.render.environment import environment_of, needs_arch, reserved_in
from hcp.render.program import launch_words, program_words
from hcp.render.site import BY_NAME, check_text, seconds_of
from hcp.resources import pack_dir

STARTS = ("srun", "torchrun", "ft_launcher", "ray", "verify")
_MAX_SCRIPT = 4_000_000
"""Bytes: Slurm's default limit for a job script (max_script_size)."""
_COMM_SIZES = ("tp", "cp", "pp")


class Container(NamedTuple):
    """How a command gets into the container. `runtime` None: there is none."""

    runtime: str | None
    image: str
    options: tuple[str, ...]
    mounts: tuple[str, ...]


def render_job(
    start: str,
    site: Mapping[str, Any],
    launch: Launch | None = None,
    spoken: Sequence[str] = (),
    steps: Sequence[str] = (),
    model_file: str | None = None,
) -> str:
    """The text of an sbatch script.

    Args:
        start: one of STARTS.
        site: every site key's value, from `load_site`.
        launch: what is trained; None for `verify`.
        spoken: the launch's words after `--` on our command line.
        steps: for `verify`: the steps, as `hcp verify` takes them.
        model_file: a config.json that the check needs too.

    Raises:
        HcpError: something that is needed is not stated (all of it is listed), or a value can be quoted nowhere.
    """
    facts = {name: fact.value for name, fact in launch.facts.items()} if launch else {}
    cluster = ("arch", "nvlink_domain", "gpus_per_node", "nodes")
    facts |= {name: site[name] for name in cluster if site[name] is not None}
    dialect = launch.dialect if launch else None
    lines = launch_words(launch, spoken) if launch else ()
    program = program_words(launch, site["program"] or ()) if launch else ()
    checkpoint_dir = site["checkpoint_dir"] or facts.get("save_dir") or _saved_to(launch)
    _require(start, site, facts, dialect, program, checkpoint_dir)
    _refuse_reserved(site["env"] or {})
    for line in lines:
        for word in line:
            check_text(word, lambda wanted: HcpError(f"a word of the launch: wanted {wanted}; shorten or correct it"))
    if launch is not None and dialect == "verl":
        lines = (*lines, *_verl_cluster(launch, site))
    container = _container(site)
    per_node = site["gpus_per_node"]
    context = {
        "title": _title(start, launch, steps),
        "start": start,
        "directives": _directives(start, site),
        "environment": environment_of(dialect, facts, site["env"] or {}, site["cpus_per_task"]),
        "modules": site["modules"] or (),
        "venv": site["venv"],
        "python": site["python"],
        "interpreter": start not in ("torchrun", "ft_launcher"),
        "program": program,
        "launch_lines": lines,
        "array": site["array"] or (),
        "logs": site["logs"],
        "container": container,
        "shared": site["shared"] or (),
        "gpus_to_see": 0 if site["gpu_request"] == "none" else per_node,
        "ranks_per_node": per_node,
        "requeue": site["requeue"],
        "checkpoint_dir": checkpoint_dir,
        "signal": site["signal"],
        "stop_signal": "USR1" if start in ("torchrun", "ft_launcher") else "TERM",
        "check_arguments": _check_arguments(start, site, launch, facts, model_file),
        "check_skip": _check_skip(launch, lines),
        "has_connections": dialect in ("mlm", "bridge", "bridge-provider"),
        "rank_arguments": _rank_arguments(facts, per_node) if launch else (f"--gpus-per-node {per_node}",),
        "comm_test": site["comm_test"],
        "comm_arguments": _sizes(facts),
        "ft_timeouts": site["ft_timeouts"],
        "ft_outside": site["ft_outside"],
        "ft_restarts": site["ft_restarts"],
        "steps": tuple(steps),
        "verify_level": site["verify_level"],
    }
    text = _fill(f"{start}.sbatch.j2", context)
    if len(text.encode()) > _MAX_SCRIPT:
        raise HcpError(
            f"the script has {len(text.encode()):,} bytes; wanted at most {_MAX_SCRIPT:,}, Slurm's limit; "
            "move long values into files"
        )
    return text


def _quoted(value: object) -> str:
    """A shell word. A comma is quoted too: bash does not need it, shellcheck takes it for a mistake in an array."""
    text = str(value)
    word = shlex.quote(text)
    return f"'{word}'" if "," in text and word == text else word


def _fill(template: str, context: Mapping[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def shown(value: Any) -> Any:
        assert value is not None and str(value) != "", f"a value of {template} would render as nothing"
        return value

    # No escaping of HTML: it is a shell script, whose values go through the filter `sh`.
    environment = Environment(
        loader=FileSystemLoader(pack_dir("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    environment.filters["sh"] = _quoted
    return environment.get_template(template).render(context)


def _require(
    start: str,
    site: Mapping[str, Any],
    facts: Mapping[str, Any],
    dialect: str | None,
    program: Sequence[str],
    checkpoint_dir: str | None,
) -> None:
    missing = [f"{name} ({key.needed})" for name, key in BY_NAME.items() if key.needed and site[name] is None]
    if start != "verify":
        if not program:
            missing.append("program (the launch does not name what it starts)")
        if needs_arch(dialect, facts):
            missing.append("arch (CUDA_DEVICE_MAX_CONNECTIONS depends on it with TP or CP)")
        if site["requeue"] and not checkpoint_dir:
            missing.append("checkpoint_dir (whether a requeued job makes progress)")
    if (site["container_runtime"] is None) != (site["container_image"] is None):
        missing.append("container_image and container_runtime together")
    if site["mounts"] and site["container_image"] is None:
        missing.append("container_image (mounts are the container's)")
    if missing:
        raise HcpError(
            f"not stated: {'; '.join(missing)}; wanted each as an option (--gpus-per-node 8) or a line of "
            "the site file (gpus_per_node: 8)"
        )
    limit = seconds_of(site["time"])
    if site["signal"] >= limit:
        raise HcpError(
            f"signal: found {site['signal']} s before the end of a job of {limit} s; wanted less than the "
            "time limit, or the trainer is asked to end at once; lower it, or raise time"
        )
    if start == "ray" and dialect != "verl":
        raise HcpError(
            f"found --start ray for a {dialect} launch; wanted verl, which starts its ranks with Ray; "
            "use srun or torchrun"
        )
    if dialect == "verl" and start != "ray":
        raise HcpError(
            f"found --start {start} for a verl launch; wanted ray, which starts verl's workers; use --start ray"
        )


def _refuse_reserved(stated: Mapping[str, str | None]) -> None:
    names = reserved_in(stated)
    if names:
        raise HcpError(
            f"env: {names[0]} is set by the job itself or changes how it is read; wanted other variables; leave it out"
        )


def _verl_cluster(launch: Launch, site: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """verl's own words for the size of the cluster: its defaults are 1 node of 8 GPUs, whatever the job has."""
    added: list[tuple[str, ...]] = []
    stated = {setting.key: setting.value for setting in launch.reading.settings}
    for key, name in (("trainer.nnodes", "nodes"), ("trainer.n_gpus_per_node", "gpus_per_node")):
        if key not in stated:
            added.append((f"{key}={site[name]}",))
        elif str(stated[key]) != str(site[name]):
            raise HcpError(
                f"{key}: the launch says {stated[key]}, the job has {site[name]}; wanted the same; correct "
                f"one, or leave {key} out of the launch"
            )
    return added


def _title(start: str, launch: Launch | None, steps: Sequence[str]) -> str:
    if launch is None:
        return f"Verification across nodes: {len(steps) or 'all'} steps."
    words = {
        "srun": "srun starts every rank",
        "torchrun": "torchrun on every node",
        "ft_launcher": "ft_launcher on every node",
        "ray": "one Ray cluster over all nodes",
    }
    return f"Training on the Megatron stack, {launch.dialect}: {words[start]}."


def _directives(start: str, site: Mapping[str, Any]) -> list[tuple[str, Any]]:
    per_node = site["gpus_per_node"]
    found: list[tuple[str, Any]] = [("job-name", site["job_name"])]
    found += [
        (name, site[name])
        for name in ("account", "partition", "qos", "reservation", "constraint", "nodelist", "exclude")
    ]
    found += [("nodes", site["nodes"]), ("ntasks-per-node", per_node if start == "srun" else 1)]
    if site["gpu_request"] == "gres":
        found.append(("gres", f"gpu:{per_node}"))
    elif site["gpu_request"] == "gpus-per-node":
        found.append(("gpus-per-node", per_node))
    found += [
        ("cpus-per-task", site["cpus_per_task"]),
        ("mem", site["mem"]),
        ("distribution", "block"),
        ("segment", site["segment"]),
        ("switches", site["switches"]),
        ("time", site["time"]),
    ]
    logs = _directive_path(site["logs"])
    unit = "%x-%A_%a" if site["array"] else "%x-%j"
    found += [("output", f"{logs}/{unit}.out"), ("signal", f"B:USR1@{site['signal']}")]
    if site["array"]:
        found.append(("array", f"0-{len(site['array']) - 1}"))
    kept = [(name, value) for name, value in found if value is not None]
    if site["exclusive"]:
        kept.append(("exclusive", None))
    kept += [("requeue" if site["requeue"] else "no-requeue", None), ("open-mode", "append")]
    return kept


def _directive_path(path: str) -> str:
    if any(character in path for character in " \t\r\n\"'\\%#$`") or path.startswith("-") or not path.isascii():
        raise HcpError(
            f"logs: found {path[:60]!r}; wanted a path of plain characters: Slurm's directives have no "
            "quoting; choose another folder"
        )
    return path.rstrip("/") or "/"


def _container(site: Mapping[str, Any]) -> Container:
    runtime, image, workdir = site["container_runtime"], site["container_image"], site["container_workdir"]
    mounts = tuple(mount if ":" in mount else f"{mount}:{mount}" for mount in site["mounts"] or ())
    if runtime is None:
        return Container(None, "", (), ())
    if any("," in mount for mount in mounts):
        raise HcpError("mounts: found a comma in a path; wanted paths without: it separates mounts; rename the folder")
    if runtime == "pyxis":
        options = (
            f"--container-image={image}",
            "--no-container-mount-home",
            *((f"--container-workdir={workdir}",) if workdir else ()),
        )
    else:
        options = ("--no-home", *(("--pwd", workdir) if workdir else ()))
    return Container(runtime, image, options, mounts)


def _saved_to(launch: Launch | None) -> str | None:
    if launch is None:
        return None
    keys = {"mlm": "save", "verl": "trainer.default_local_dir"}.get(launch.dialect, "checkpoint.save")
    for setting in reversed(launch.reading.settings):
        if setting.key == keys:
            value = setting.value[-1] if isinstance(setting.value, list) and setting.value else setting.value
            return str(value) if value else None
    return None


def _check_arguments(
    start: str, site: Mapping[str, Any], launch: Launch | None, facts: Mapping[str, Any], model_file: str | None
) -> tuple[str, ...]:
    if launch is None:
        return ()
    words = [launch.reading.target] if launch.reading.form == "yaml" else []
    words.append(f"--launcher={launch.dialect}")
    stated = {
        "start": start,
        "nodes": site["nodes"],
        "gpus_per_node": site["gpus_per_node"],
        "placement": "block",
        "ntasks_per_node": site["gpus_per_node"] if start == "srun" else 1,
        **{name: site[name] for name in ("arch", "nvlink_domain") if site[name] is not None},
        **(site["facts"] or {}),
    }
    words += [f"--assume={name}={value}" for name, value in stated.items() if value is not None]
    if model_file is not None:
        words.append(f"--model={model_file}")
    return tuple(words)


def _check_skip(launch: Launch | None, lines: Sequence[Sequence[str]]) -> int:
    """How many words at the start `hcp check` is not given: the file's name (it is given the file itself), or words
    before Megatron-LM's first flag."""
    if launch is not None and launch.dialect == "mlm":
        words = [word for line in lines for word in line]
        return next((place for place, word in enumerate(words) if word.startswith("--")), 0)
    if launch is None or launch.reading.form != "yaml":
        return 0
    return 4 if launch.dialect == "verl" else 2


def _sizes(facts: Mapping[str, Any]) -> list[str]:
    words = [f"--{name}={facts[name]}" for name in _COMM_SIZES if (facts.get(name) or 1) > 1]
    if facts.get("hcp_sizes"):
        words.append("--hcp=" + ",".join(map(str, facts["hcp_sizes"])))
    if facts.get("rank_order") not in (None, DEFAULT_ORDER):
        words.append(f"--order={facts['rank_order']}")
    return words


def _rank_arguments(facts: Mapping[str, Any], per_node: int) -> tuple[str, ...]:
    words = [f"--gpus-per-node={per_node}", *_sizes(facts)]
    words += [f"--{name}={facts[name]}" for name in ("ep", "etp", "gtp") if (facts.get(name) or 1) > 1]
    return tuple(words)


def default_name(target: str) -> str:
    """A job name out of a target's: plain characters only."""
    stem = PurePath(target).stem
    kept = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "-" for character in stem
    ).strip("-.")
    return kept[:100] or "train"
