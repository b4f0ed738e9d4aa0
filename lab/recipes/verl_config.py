"""Writes launch/dialects/verl/config.txt: the keys of verl's composed Megatron configuration, by release.

    python lab recipes/verl_config FOLDER…

Each folder holds verl's sources (an unpacked wheel, or a checkout). Needs hydra-core: Hydra itself composes them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from program import ROOT, parser_of

from megatron_hcp.launch.dialects.verl.config import NAME

TARGET = ROOT / "src" / "megatron_hcp" / "launch" / "dialects" / "verl" / "config.txt"


def composed(folder: Path, name: str) -> dict[str, bool]:
    """Key -> whether its value is a plain one: no null, `???`, list, mapping or reference; see `VerlKey`."""
    from omegaconf import OmegaConf

    hydra: Any = importlib.import_module("hydra")

    with hydra.initialize_config_dir(config_dir=str(folder.resolve() / "verl/trainer/config"), version_base=None):
        return dict(flat(OmegaConf.to_container(hydra.compose(config_name=name), resolve=False), ""))


def flat(value: Any, prefix: str) -> Iterator[tuple[str, bool]]:
    for name, item in value.items():
        key = f"{prefix}.{name}" if prefix else str(name)
        yield key, not (item is None or isinstance(item, (dict, list)) or item == "???" or "${" in str(item))
        if isinstance(item, dict):
            yield from flat(item, key)


def release_of(folder: Path) -> tuple[int, int, int]:
    text = (folder / "verl/version/version").read_text(encoding="utf-8")
    numbers = re.findall(r"\d+", text)[:3]
    return int(numbers[0]), int(numbers[1]), int(numbers[2]) if len(numbers) > 2 else 0


def section(found: dict[tuple[int, int, int], dict[str, bool]]) -> list[str]:
    """The table: one line per parent; `key=` has a value, `key@0.7.0-0.8.0` some releases, `key!0.7.1` all but one."""
    releases = sorted(found)
    shown = [".".join(map(str, release)) for release in releases]
    parents: dict[str, list[str]] = {}
    for key in sorted({key for keys in found.values() for key in keys}):
        have = [place for place, release in enumerate(releases) if key in found[release]]
        parent, _, last = key.rpartition(".")
        is_always_there = have == list(range(have[0], have[-1] + 1))
        text = last + "=" * (is_always_there and all(found[releases[place]][key] for place in have))
        if (have[0], have[-1]) != (0, len(releases) - 1):
            text += f"@{shown[have[0]]}-" + (shown[have[-1]] if have[-1] < len(releases) - 1 else "")
        text += "".join(f"!{shown[place]}" for place in range(have[0], have[-1]) if place not in have)
        parents.setdefault(parent or "-", []).append(text)
    return [f"[{NAME} {shown[0]} {shown[-1]}]", *(f"{parent}: {' '.join(keys)}" for parent, keys in parents.items())]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    folders = {release_of(folder): folder for folder in parser.parse_args().folders}
    lines = ["# Keys of verl's composed configuration. Written by lab/recipes/verl_config.py; do not edit."]
    lines += section({release: composed(folder, NAME) for release, folder in folders.items()})
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
