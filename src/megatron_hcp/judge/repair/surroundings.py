"""Where facts without a key are written in a script: environment variables, options of sbatch and torchrun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from megatron_hcp.judge.repair.fixes import option_of
from megatron_hcp.judge.repair.spots import Change, args_value, line_end, newline_of, span_of, without
from megatron_hcp.launch.fact import ELASTIC_STARTS, Launch

_HEADER = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*")
"""Comments and empty lines at the top of a script: sbatch reads no further."""
_OPTION = re.compile(r"(--[\w-]+|-[A-Za-z])(=|\s+|)(.*)\Z", re.S)


def plain_changes(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    """The ways to make one edit of a fact outside the configuration, best first."""
    if launch.reading.form == "args-yaml" and name.startswith("env."):
        yield from _in_env_vars(launch, text, name, value)
    elif launch.reading.form != "shell":
        return
    elif name.startswith("env."):
        yield from _variable(launch, text, name, value)
    elif value is not None:
        yield from _option(launch, text, name, value)


def _in_env_vars(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    span = _written(launch, text, name)
    if value is None:
        return
    if span is not None:
        yield [Change(*span, args_value(["", str(value)]))]
        return
    for other in launch.reading.facts:
        beside = _written(launch, text, other) if other.startswith("env.") else None
        if beside is not None:
            first = text[text.rfind("\n", 0, beside[0]) + 1 : beside[0]]
            indent, at = first[: len(first) - len(first.lstrip())], line_end(text, beside[1])
            yield [Change(at, at, f"{newline_of(text, at)}{indent}{name.removeprefix('env.')}: {value}")]
            return


def _variable(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    variable = name.removeprefix("env.")
    span = _written(launch, text, name)
    if span is not None:
        start, end = span
        if text[start:end].startswith(f"{variable}="):
            if value is not None:
                yield [Change(start, end, f"{variable}={shlex.quote(str(value))}")]
            else:
                first = text.rfind("\n", 0, start) + 1
                alone = text[first:start].strip() == "export"
                yield [without(text, first if alone else start, end)]
        elif value is not None:  # srun --export=ALL,NAME=VALUE
            new = re.sub(rf"\b{re.escape(variable)}=[^,\s'\"]*", f"{variable}={value}", text[start:end])
            yield [Change(start, end, new)]
        return
    if value is None:
        return
    line = f"export {variable}={shlex.quote(str(value))}"
    for other in launch.reading.facts:
        beside = _written(launch, text, other) if other.startswith("env.") else None
        if beside is not None and text[text.rfind("\n", 0, beside[0]) + 1 : beside[0]].startswith("export "):
            at = line_end(text, beside[1])
            yield [Change(at, at, newline_of(text, at) + line)]
    header = _HEADER.match(text)
    at = header.end() if header else 0
    yield [Change(at, at, line + newline_of(text, at))]


def _option(launch: Launch, text: str, name: str, value: Any) -> Iterator[list[Change]]:
    old = launch.facts.get(name)
    changes = []
    for program, option in option_of(name).items():
        full = f"{program}.{option}"
        span, fact = _written(launch, text, full), launch.reading.facts.get(full)
        if span is None or fact is None or (old is not None and str(fact.value) not in (str(old.value), "True")):
            continue
        match = _OPTION.match(text[span[0] : span[1]])
        if match is not None:
            separator = "=" if fact.value is True else match[2]
            changes.append(Change(*span, f"{match[1]}{separator}{value}"))
    total = _total(launch, text, name, value)
    if changes:
        yield [*changes, *total]
        return
    options = option_of(name)
    header = list(re.finditer(r"^#SBATCH[^\n]*", text, re.M))
    if "torchrun" in options and launch.facts["start"].value in ELASTIC_STARTS:
        for found in re.finditer(r"^[^#\n]*?\b(torchrun|ft_launcher|torch\.distributed\.run)\b", text, re.M):
            word = f" --{options['torchrun'].replace('_', '-')}={value}"
            yield [Change(found.end(), found.end(), word)]
    if "sbatch" in options and header:
        at = line_end(text, header[-1].start())
        line = f"#SBATCH --{options['sbatch'].replace('_', '-')}={value}"
        yield [Change(at, at, newline_of(text, at) + line), *total]


def _total(launch: Launch, text: str, name: str, value: Any) -> list[Change]:
    """The total number of tasks, if that is written too: Slurm gives it precedence over the number per node."""
    factor = launch.facts.get({"ntasks_per_node": "nodes", "nodes": "ntasks_per_node"}.get(name, ""))
    changes = []
    for program in ("sbatch", "srun"):
        span = _written(launch, text, f"{program}.ntasks")
        match = _OPTION.match(text[slice(*span)]) if span is not None and factor is not None else None
        if span is not None and match is not None and factor is not None:
            changes.append(Change(*span, f"{match[1]}{match[2]}{value * factor.value}"))
    return changes


def _written(launch: Launch, text: str, name: str) -> tuple[int, int] | None:
    fact = launch.reading.facts.get(name)
    if fact is None or fact.location is None or fact.location.file != launch.reading.target:
        return None
    return span_of(launch, text, fact.location)
