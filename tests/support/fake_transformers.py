"""A small package named transformers: what hcp changes of it."""

from __future__ import annotations

from pathlib import Path

TRANSFORMERS = """
import runpy

def get_class_in_module(name, path):
    return runpy.run_path(path)[name]

def get_class_from_dynamic_module(name, folder):
    return get_class_in_module(name, f"{folder}/modeling.py")
"""
CONFIGURATIONS = """
class Mapping(dict):
    def register(self, name, kind):
        self[name] = kind

CONFIG_MAPPING = Mapping(known=dict)
"""
BASE = """
class PretrainedConfig:
    def __init__(self, **given):
        vars(self).update(given)

    @classmethod
    def get_config_dict(cls, found, revision=None):
        if revision:
            raise OSError(revision)
        return dict(found), {}
"""


def write_transformers(folder: Path) -> None:
    auto = "transformers/models/auto"
    for package in ("peft", "transformers", "transformers/models", auto):
        (folder / package).mkdir(exist_ok=True)
        (folder / package / "__init__.py").touch()
    (folder / "transformers/__init__.py").write_text(BASE, encoding="utf-8")
    (folder / "transformers/dynamic_module_utils.py").write_text(TRANSFORMERS, encoding="utf-8")
    (folder / auto / "configuration_auto.py").write_text(CONFIGURATIONS, encoding="utf-8")
