"""The launches that a checkout of upstream publishes: scripts, configurations, and commands of verification cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cpbench.case import Case

_SCRIPTS = frozenset((".sh", ".sbatch", ".slurm"))
_LARGEST_BYTES = 1 << 20
_STARTS = re.compile(
    r"^(?!\s*#).*(\b(pretrain_\w+|train|train_async|finetune\w*|run_recipe|run_script|run_grpo\w*|run_sft|run_dpo|run_vlm_\w+)"
    r"\.py\b|\bmegatron (pt|sft|rlhf)\b|-m verl\.|scripts/training/train\.sh)",
    re.MULTILINE,
)
"""A line that starts a training. A file without one is a tool, a conversion or an evaluation."""


class Upstream(NamedTuple):
    """A framework's checkout: a file that only it has, the version there, and where its launches are."""

    name: str
    fact: str
    version_file: str
    version: str
    scripts: tuple[str, ...]
    configs: tuple[str, ...] = ()
    megatron: str = ""
    """What a file must contain to start Megatron; some frameworks have other backends."""


_NUMBERS = r"MAJOR = (\d+)\s+MINOR = (\d+)\s+PATCH = (\d+)"
UPSTREAMS = (
    Upstream(
        "megatron-lm", "mcore", "megatron/core/package_info.py", _NUMBERS, ("examples",),
        ("tests/functional_tests/**/model_config.yaml",), r"(?s).",
    ),
    Upstream("bridge", "bridge", "src/megatron/bridge/package_info.py", _NUMBERS, ("examples", "scripts", "tutorials")),
    Upstream("verl", "verl", "verl/version/version", r"(\S+)", ("examples", "recipe", "docker"), (), "(?i)megatron"),
    Upstream(
        "nemo-rl", "nemo_rl", "nemo_rl/package_info.py", _NUMBERS, ("examples",),
        ("examples/configs/recipes/**/*.yaml",), r"(?i)megatron",
    ),
    Upstream("slime", "slime", "slime/__init__.py", "", ("scripts", "examples", "docker")),
    Upstream("miles", "miles", "miles/__init__.py", "", ("scripts", "examples", "docker")),
    Upstream(
        "ms-swift", "ms_swift", "swift/version.py", r"__version__ = '([^']+)'", ("examples",), (),
        r"\bmegatron (pt|sft|rlhf)\b",
    ),
)  # fmt: skip


def cases_of(checkout: Path) -> Iterator[Case]:
    """Every launch that a checkout publishes, with the version of the tree.

    Raises:
        ValueError: the folder is no checkout of a framework that is known here.
    """
    upstream = next((one for one in UPSTREAMS if (checkout / one.version_file).is_file()), None)
    if upstream is None:
        raise ValueError(f"{checkout}: found no checkout of {', '.join(one.name for one in UPSTREAMS)}")
    versions = versions_of(upstream, checkout)
    for path in _launches(upstream, checkout):
        name = path.relative_to(checkout).as_posix()
        yield Case(f"{checkout.name}:{name}", f"{upstream.name} {name}", name, tree=str(checkout), versions=versions)
    if upstream.name == "bridge":
        yield from _card_commands(checkout, versions)


def versions_of(upstream: Upstream, checkout: Path) -> tuple[str, ...]:
    """The version that the tree itself states, and megatron-core's branch where both branches have the same."""
    if upstream.version:
        found = re.search(upstream.version, (checkout / upstream.version_file).read_text(encoding="utf-8"))
    else:
        found = re.search(r'^\s*version="([\d.]+)"', (checkout / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{checkout} states no version"
    if upstream.name == "nemo-rl":  # its main keeps the number of a release that it is newer than
        return ()
    stated = [f"{upstream.fact}={'.'.join(found.groups())}"]
    if upstream.name == "megatron-lm":
        arguments = (checkout / "megatron/training/arguments.py").read_text(encoding="utf-8")
        stated.append(f"mcore_branch={'dev' if '--use-varlen-dataset' in arguments else 'main'}")
    return tuple(stated)


def _launches(upstream: Upstream, checkout: Path) -> Iterator[Path]:
    scripts = (path for folder in upstream.scripts for path in (checkout / folder).rglob("*"))
    for path in sorted(path for path in scripts if path.suffix in _SCRIPTS and path.is_file()):
        if path.stat().st_size <= _LARGEST_BYTES:
            text = path.read_text(encoding="utf-8", errors="replace")
            if _STARTS.search(text) and re.search(upstream.megatron, text):
                yield path
    for pattern in upstream.configs:
        for path in sorted(checkout.glob(pattern)):
            if re.search(upstream.megatron, path.read_text(encoding="utf-8")):
                yield path


def _card_commands(checkout: Path, versions: tuple[str, ...]) -> Iterator[Case]:
    """The training commands of Bridge's model verification cards; the launcher's own files are not needed."""
    for card in sorted(checkout.glob("examples/model_verification_cards/*/card.yaml")):
        name = card.parent.name
        for place, command in _commands(yaml.safe_load(card.read_text(encoding="utf-8")), ()):
            if "scripts/training/train.sh" in command:
                text = f"#!/bin/bash\n{command}\n"
                yield Case(
                    f"card:{name}:{'/'.join(place)}",
                    f"bridge examples/model_verification_cards/{name}/card.yaml {' '.join(place)}",
                    "run.sh",
                    {"run.sh": text},
                    versions=versions,
                )


def _commands(item: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    below = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in below:
        if key == "command" and isinstance(value, str):
            yield place, value
        else:
            yield from _commands(value, (*place, str(key)))
