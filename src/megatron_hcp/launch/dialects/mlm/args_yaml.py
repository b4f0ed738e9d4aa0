"""Megatron-LM's functional-test configurations: `MODEL_ARGS:` as flags, `ENV_VARS:` as the environment."""

from __future__ import annotations

import re
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import is_secret_name, without_secrets
from megatron_hcp.launch.dialects.foreign import not_supported
from megatron_hcp.launch.dialects.mlm.elsewhere import taken_from_elsewhere
from megatron_hcp.launch.fact import ELASTIC_STARTS, Fact, Reading, Setting
from megatron_hcp.launch.forms.words.settings import option_setting
from megatron_hcp.launch.forms.yaml.settings import YamlDoc

_FILLED_IN = re.compile(r"\$[\w{(]")


def read_args_yaml(doc: YamlDoc) -> Reading:
    """A reading of a `model_config.yaml`, loaded with `last_wins`.

    Values become words as in upstream's `tests/functional_tests/shell_test_utils/_run_training.sh`: `true` is a bare
    flag, brackets around a list are dropped, every other value follows its flag. If a flag is written twice, the last
    one counts (22 of upstream's 333 files have one). A value with `${…}` or `$…` is filled in by that script and so is
    unknown. Locations are those of the values.

    Raises:
        HcpError: `MODEL_ARGS` isn't a mapping of flags.
    """
    arguments = doc.data.get("MODEL_ARGS", False)
    if arguments is not None and not isinstance(arguments, dict):
        raise HcpError(
            f"{doc.file} has no MODEL_ARGS mapping",
            wanted="`MODEL_ARGS:` with one flag per line (--num-layers: 12)",
            do="correct the file",
        )
    if arguments and not any(str(key).startswith("-") for key in arguments):
        raise not_supported(doc.file, "a NeMo 2 test launch")  # dotted keys of a recipe instead of flags
    settings: list[Setting] = []
    facts: dict[str, Fact] = {}
    unknown: dict[str, str] = {}
    hidden: str | None = None
    for setting in doc.settings:
        section, _, name = setting.key.partition(".")
        if section == "MODEL_ARGS" and _FILLED_IN.search(name):
            hidden = f"{name} is filled in when the test runs, perhaps with options"
        elif section == "MODEL_ARGS" and name:
            _flag(setting, name, settings, unknown)
        elif section == "ENV_VARS" and name:
            _variable(setting, name, facts, unknown)
        elif setting.key == "LAUNCHER" and setting.value in ELASTIC_STARTS:
            facts["start"] = Fact(setting.value, "launch", setting.location, "LAUNCHER")
    elsewhere, unseen = taken_from_elsewhere(settings)
    unseen = unseen or hidden
    return Reading(
        dialect="mlm",
        target=doc.file,
        form="args-yaml",
        settings=tuple(setting for setting in settings if setting.key not in unknown),
        facts=facts,
        unknown={**elsewhere, **unknown},
        unseen=unseen,
        acceptances=doc.acceptances,
        text=doc.text,
        notes=tuple(f"{twice.found}; the last one counts, as for argparse" for twice in doc.duplicates),
    )


def _flag(setting: Setting, name: str, settings: list[Setting], unknown: dict[str, str]) -> None:
    read = option_setting(name, _words(setting.value), setting.location)
    if any(map(_FILLED_IN.search, read.value)):
        unknown[read.key] = "is filled in when the test runs"
    settings.append(read)


def _words(value: Any) -> list[str]:
    if value is True:
        return []
    if value is False:
        return ["false"]
    if isinstance(value, list):
        return [str(item) for item in value]
    text = "" if value is None else str(value).strip()
    if text[:1] == "[" and text[-1:] == "]" and "]" not in text[1:-1]:
        return text[1:-1].split()
    if re.fullmatch(r"[\d.]+(\s+[\d.]+)+", text):  # numbers in one text, as 0.12 writes --rampup-batch-size
        return text.split()
    return [text] if text else []


def _variable(setting: Setting, name: str, facts: dict[str, Fact], unknown: dict[str, str]) -> None:
    if is_secret_name(name):
        return
    text = "" if setting.value is None else str(setting.value)
    if isinstance(setting.value, bool):
        text = text.lower()
    if _FILLED_IN.search(text):
        unknown[f"env.{name}"] = "is filled in when the test runs"
    else:
        facts[f"env.{name}"] = Fact(without_secrets(text), "launch", setting.location, name)
