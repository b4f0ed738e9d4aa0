"""Publicly reported faults, as `lab reported` has them, as cases of CP-Bench."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from cpbench.case import Case
from cpbench.mutants import spellings, torchrun

_PROGRAMS = {
    "mlm": "{torchrun} pretrain_gpt.py",
    "bridge": "{torchrun} run_recipe.py",
    "verl": "python3 -m verl.trainer.main_ppo",
}
_IDENTIFIER = re.compile(
    r"--[a-z][\w-]+|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b|\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b|\b[a-z]+(?:-[a-z]+){2,}\b"
)
"""Options with or without their dashes, fields, and variables of the environment."""
_OPTIONS = ("--launcher", "--dialect", "--recipe")
_MEANS = {
    "TP": "tensor_model_parallel_size",
    "PP": "pipeline_model_parallel_size",
    "CP": "context_parallel_size",
    "EP": "expert_model_parallel_size",
    "ETP": "expert_tensor_parallel_size",
    "SP": "sequence_parallel",
    "MTP": "mtp_num_layers",
    "GDN": "gated_delta_net",
    "DSv4": "dsv4_hybrid",
    "MLA": "multi_latent_attention",
    "virtual": "virtual_pipeline",
    "interleaved": "virtual_pipeline",
    "experts": "num_experts",
    "FP8": "fp8",
}
"""The field's short words for settings: a report uses these, a tool the settings' names."""


def cases_of_reports(file: Path) -> Iterator[Case]:
    """The cases of a launch within reach of a static check; those that name a pattern of recipes are left out."""
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        out_of_reach = not row.get("reach", True) or row["must"] in ("nothing", "-") or row["must"].startswith("read")
        if row.get("kind", "check") != "check" or out_of_reach:
            continue
        source = row.get("source") or row["src"]
        given, words, versions = _split(row["argv"])
        if given.get("--recipe", "").startswith("@"):
            continue
        files, main = dict(row["files"]), next(iter(row["files"]), "run.sh")
        if not files:
            recipe = ["--recipe", given["--recipe"]] if "--recipe" in given else []
            start = _PROGRAMS[given.get("--launcher") or given.get("--dialect") or "bridge"]
            start = start.format(torchrun=torchrun(_ranks(versions)))
            files = {main: f"#!/bin/bash\n{start} {shlex.join([*recipe, *words])}\n"}
        expect = "ok" if row["must"] == "silent" else "refused"
        said = f"{row['cause']} {row['must']}"
        numbers = tuple(f"#{number}" for number in re.findall(r"#(\d+)", source))
        means = {_MEANS[word] for word in re.findall(r"\w+", said) if word in _MEANS}
        names = (*(row.get("expect") or ()), *numbers, *spellings({*_IDENTIFIER.findall(said), *means}))
        names = names if expect == "refused" else ()
        yield Case(
            f"reported:{row['id']}",
            source,
            main,
            files,
            versions=versions,
            expect=expect,
            cause=row["cause"],
            names=names,
        )


def _ranks(stated: tuple[str, ...]) -> int:
    """How many ranks the report states; a node of eight if it doesn't say."""
    return int(dict(word.split("=", 1) for word in stated).get("world_size", 8))


def _split(argv: list[str]) -> tuple[dict[str, str], list[str], tuple[str, ...]]:
    """(the options of `hcp check`, the words after --, what --assume states)"""
    before = argv[: argv.index("--")] if "--" in argv else argv
    words = argv[len(before) + 1 :]
    given = {name: before[place + 1] for place, name in enumerate(before) if name in _OPTIONS}
    versions = [word for word in before if "=" in word and not word.startswith("-")]
    return given, words, tuple(part for word in versions for part in word.split())
