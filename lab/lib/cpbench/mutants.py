"""Published launches of Megatron-LM with one setting changed, so that its own start-up refuses them."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from agree.megatron_lm import as_drawn, branch_of
from agree.megatron_lm_launches import Drawn
from agree.process import Upstream

from cpbench.case import Case

_MEANT = ("AssertionError", "ValueError", "NotImplementedError", "RuntimeError")
"""What upstream raises on purpose; anything else may be a gap of the stand-ins."""
_MISSING = re.compile("not installed|lease install|not available|is required for|unsupported format character")
"""Refusals for want of a package, which this machine lacks, and faults of upstream's own messages."""
_PER_LAUNCH = 40
"""Changes that are tried on one launch."""
_GPUS_PER_NODE = 8
_IDENTIFIER = re.compile(r"--[a-z][\w-]+|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_NO_SETTING = frozenset(("validate_args", "world_size", "local_rank"))


class Change(NamedTuple):
    """A launch's words with one option changed, and which."""

    option: str
    words: tuple[str, ...]


def mutants_of(checkout: Path, wanted: int, seed: int) -> list[Case]:
    """Up to `wanted` cases that upstream's start-up refuses, of launches that it accepts; each refusal is kept once
    per place and option, so that a common one does not fill the bench.
    """
    upstream = Asked(checkout)
    version, te, options = (upstream.ready[name] for name in ("version", "te", "options"))
    versions = (f"mcore={version}", f"mcore_branch={branch_of(options)}", f"te={te}", "arch=sm90")
    rng = random.Random(seed)
    files = sorted((checkout / "tests" / "functional_tests").rglob("model_config.yaml"))
    files = [file for file in files if "MODEL_ARGS" in yaml.safe_load(file.read_text(encoding="utf-8"))]
    rng.shuffle(files)
    found: dict[tuple[str, str], Case] = {}
    for file in files:
        launch = as_drawn(file)
        if upstream.refusal(launch) != {}:
            continue
        for change in changes_of(launch, options, rng):
            changed = launch._replace(words=change.words)
            refusal = upstream.refusal(changed)
            if not refusal or not refusal["where"] or not refusal["text"].startswith(_MEANT):
                continue
            if _MISSING.search(refusal["text"]):
                continue
            key = (f"{refusal['where']} {refusal['code']}", change.option)
            if key not in found:
                name = f"mutant:{checkout.name}:{file.parent.name}:{change.option}"
                found[key] = _case(name, file.relative_to(checkout), changed, change.option, refusal, versions)
        if len(found) >= wanted:
            break
    upstream.close()
    return list(found.values())[:wanted]


class Asked:
    """Upstream's start-up, made anew after a launch that ended its process."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._upstream = Upstream("megatron_lm_upstream.py", str(checkout))
        self.ready = self._upstream.ready

    def refusal(self, launch: Drawn) -> dict[str, str] | None:
        """The refusal; empty if there is none, None if the launch ended the process."""
        try:
            answer: dict[str, str] | None = self._upstream.ask(launch._asdict())["refusal"]
        except (RuntimeError, BrokenPipeError):
            self._upstream = Upstream("megatron_lm_upstream.py", str(self._checkout))
            return None
        return answer or {}

    def close(self) -> None:
        self._upstream.close()


def changes_of(launch: Drawn, options: Mapping[str, Mapping[str, Any]], rng: random.Random) -> Iterator[Change]:
    """Random single changes: a size that is another, an option that is left out, and one that is added."""
    words = launch.words
    places = [place for place, word in enumerate(words) if word in options]
    for _ in range(_PER_LAUNCH):
        kind = rng.choice(("size", "size", "drop", "add"))
        if kind == "add":
            option = rng.choice([name for name in options if name.startswith("--") and name not in words])
            choices = options[option]["choices"]
            if choices:
                yield Change(option, (*words, option, str(rng.choice(choices))))
            elif options[option]["takes"] == 0:
                yield Change(option, (*words, option))
            continue
        place = rng.choice(places)
        after = next((later for later in places if later > place), len(words))
        values = words[place + 1 : after]
        if kind == "drop":
            yield Change(words[place], words[:place] + words[after:])
        elif len(values) == 1 and values[0].isdigit():
            size = int(values[0])
            other = rng.choice((size * 3, size + 1, max(1, size // 2), size * 2))
            yield Change(words[place], (*words[: place + 1], str(other), *words[after:]))


def _case(
    name: str, file: Path, launch: Drawn, option: str, refusal: Mapping[str, str], versions: tuple[str, ...]
) -> Case:
    said = f"{refusal['text']} {refusal['code']}"
    return Case(
        name,
        f"megatron-lm {file.as_posix()}, with {option} changed",
        "run.sh",
        {"run.sh": script_of(launch)},
        versions=versions,
        expect="refused",
        cause=refusal["text"],
        names=spellings({option, *_IDENTIFIER.findall(said)} - _NO_SETTING),
        place=refusal["where"],
    )


def script_of(launch: Drawn) -> str:
    """A shell script that starts the command line on nodes of eight ranks."""
    env = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in launch.env.items() if value is not None)
    return f"#!/bin/bash\n{env}{torchrun(launch.world_size)} pretrain_gpt.py {shlex.join(launch.words)}\n"


def torchrun(ranks: int) -> str:
    """How torchrun starts so many ranks, on nodes of eight."""
    nodes = max(1, ranks // _GPUS_PER_NODE)
    meet = " --rdzv-backend c10d --rdzv-endpoint host0:29500" if nodes > 1 else ""
    return f"torchrun --nproc-per-node {min(ranks, _GPUS_PER_NODE)} --nnodes {nodes}{meet}"


def spellings(names: set[str]) -> tuple[str, ...]:
    """Each name as an option and as a field: a tool may print either."""
    fields = {name.removeprefix("--").replace("-", "_") for name in names}
    return tuple(sorted(fields | {f"--{field.replace('_', '-')}" for field in fields}))
