"""The file of arguments that a command of ms-swift names: `megatron sft FILE`, or Ray's `--use_ray --config FILE`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from megatron_hcp.bash.value import Field, Hole
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.files import read_text
from megatron_hcp.ground.record import NamedTuple
from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.dialects.framework import StartCommand
from megatron_hcp.launch.fact import Fact, Setting
from megatron_hcp.launch.facts.spec import FactSpec
from megatron_hcp.launch.forms.yaml.settings import YamlDoc, load_yaml

if TYPE_CHECKING:
    from megatron_hcp.launch.forms.script.files import Files

_CONFIG = "--config"
_ENDS = (".yaml", ".yml", ".json")
_OF_RAY = ("colocate_groups", "sleep_level", "nnodes", "rollout", "teacher", "train", "gpus")
"""Keys of Ray's file that are no arguments of the training; `train` holds some of its own, and its GPUs."""


class FromFile(NamedTuple):
    """A file's arguments and facts. `by_ray`: the command's own arguments are not read; `unseen`: why it isn't."""

    settings: tuple[Setting, ...] = ()
    facts: Mapping[str, Fact] = {}
    by_ray: bool = False
    unseen: str | None = None


def from_file(command: StartCommand, files: Files) -> FromFile:
    """What the file says that the command names; nothing where it names none."""
    named = _named(command)
    if named is None:
        return FromFile()
    by_ray = named is not command.items[0]
    if by_ray and ("use_ray" not in command.flags or command.values("--use_ray")[-1:] == ["false"]):
        return FromFile(unseen=f"{_CONFIG} holds further arguments and is not read")
    parts = named.parts if named.text is None else (Hole("", named.span, named.text),)
    place, why = files.place(parts)
    try:
        if place is None or (why := files.written([place]) or ""):
            raise HcpError(why, wanted="a file")
        doc = load_yaml(read_text(place, "a file of ms-swift's arguments"), place)
    except HcpError as error:
        return FromFile(unseen=f"{named.prefix[:60] or _CONFIG} holds further arguments and is not read: {error.fault}")
    return _of_ray(doc) if by_ray else FromFile(arguments_of(doc), variables_of(doc))


def _named(command: StartCommand) -> Field | None:
    words = command.items
    if words and isinstance(words[0], Field) and words[0].prefix.endswith(_ENDS):
        return words[0]
    for word, after in zip(words, (*words[1:], None), strict=True):
        if isinstance(word, Field) and word.prefix.partition("=")[0] == _CONFIG:
            return after if word.text == _CONFIG and isinstance(after, Field) else word
    return None


def arguments_of(doc: YamlDoc) -> tuple[Setting, ...]:
    """Each key but `ENV`, a mapping as JSON. Source: swift/cli/main.py `parse_yaml_args`."""
    own = {setting.key: setting for setting in doc.settings}
    return tuple(
        own[key] if key in own else Setting(key, json.dumps(value), doc.mappings[key].location)
        for key, value in doc.data.items()
        if key != "ENV"
    )


def variables_of(doc: YamlDoc) -> dict[str, Fact]:
    """The variables below `ENV`."""
    return {
        f"env.{setting.key.removeprefix('ENV.')}": Fact(str(setting.value), "launch", setting.location, setting.key)
        for setting in doc.settings
        if setting.key.startswith("ENV.") and isinstance(setting.value, str | int)
    }


def _of_ray(doc: YamlDoc) -> FromFile:
    """What all groups share, then the training's own. Source: swift/ray/megatron/driver_utils.py `parse_ray_yaml`."""
    shared = {one.key: one for one in arguments_of(doc)}
    train = {one.key.removeprefix("train."): one for one in doc.settings if one.key.startswith("train.")}
    settings = {**shared, **{key: one._replace(key=key) for key, one in train.items() if "." not in key}}
    facts = {"start": Fact("ray", "derived")}
    if (gpus := train.get("gpus")) and (ranks := coerce(FactSpec("world_size", "size", ""), gpus)):
        facts["world_size"] = Fact(ranks, "launch", gpus.location, gpus.key)
    return FromFile(
        tuple(one for key, one in settings.items() if key not in _OF_RAY and one.value is not None), facts, by_ray=True
    )
