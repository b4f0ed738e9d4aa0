"""Code that is followed without being imported gives what Python makes of it."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from follow.call import Call
from follow.modules import Modules
from follow.values import UNKNOWN
from follow.world import World

DATACLASSES = """
from dataclasses import dataclass, field

@dataclass
class Transformer:
    layers: int = 1
    latent: bool = False
    heads: int = 2

@dataclass
class Latent(Transformer):
    latent: bool = True
    rank: int = 512

@dataclass
class Provider(Transformer):
    heads: int = 4

@dataclass
class LatentFirst(Latent, Provider):
    rank: int = 64

@dataclass
class ProviderFirst(Provider, Latent):
    pass

class Plain(Latent):
    latent: bool = False

@dataclass
class BelowPlain(Plain):
    heads = 8
    names: list = field(default_factory=list)
"""
FUNCTIONS = """
import contextlib
from dataclasses import dataclass, field, fields
from typing import cast

@dataclass
class Small:
    layers: int = 1
    own: int = field(default=5, init=False)

@dataclass
class Large(Small):
    heads: int = 2

def copies_fields():
    large = Large(layers=7, heads=3)
    return Small(**{each.name: getattr(large, each.name) for each in fields(Small) if each.init}).layers

def is_below():
    return issubclass(Large, Small), issubclass(Small, Large)

def casts():
    return cast(Small, Large(heads=8)).heads

def works_under_a_manager():
    with contextlib.nullcontext():
        layers = 3
    return layers
"""
DOUBTFUL = """
def loops(asked):
    found = {"always": 1}
    if asked:
        for key in ("first", "second"):
            found[key] = 2
    return found

def extends(asked):
    stages = ["first"]
    stages.extend(["more"] * asked)
    return stages

def swallows(asked):
    value = 1
    with suppress(Exception):
        value = 2
    return value
"""
KINDS = ("Transformer", "Latent", "LatentFirst", "ProviderFirst", "Plain", "BelowPlain")
PACKAGE = {
    "recipes/__init__.py": "from recipes.first import *\nfrom recipes.second import *\n",
    "recipes/first.py": "def shared_config(): return 1\ndef first_config(): return 1\ndef _own_config(): return 1\n",
    "recipes/second.py": (
        "from recipes.first import first_config as again_config\n__all__ = ['shared_config', 'again_config']\n"
        "def shared_config(): return 2\ndef hidden_config(): return 2\n"
    ),
}


@pytest.fixture
def followed(tmp_path: Path) -> Any:
    """What `follow` reads of the modules in a folder."""
    return World(Modules([tmp_path]))


@pytest.mark.parametrize("kind", KINDS)
def test_fields_stand_in_the_order_and_with_the_defaults_of_a_dataclass(
    followed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "made.py").write_text(DATACLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "made", raising=False)
    real = getattr(importlib.import_module("made"), kind)()
    known = followed.named("made", kind)
    assert [name for name, _, _ in followed.fields(known)] == [field.name for field in dataclasses.fields(real)]
    assert Call(followed, "made").new(known, [], {}).fields == vars(real)


def test_a_package_has_the_names_that_its_stars_bring(
    followed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import recipes

    try:
        real = {name: getattr(recipes, name).__module__ for name in dir(recipes) if name.endswith("_config")}
        found = {name: followed.modules.find("recipes", name)[0] for name in followed.modules.attributes("recipes")}
        assert found == real
    finally:
        for name in ("recipes", "recipes.first", "recipes.second"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["copies_fields", "is_below", "casts", "works_under_a_manager"])
def test_a_function_returns_what_python_returns(
    followed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "done.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "done", raising=False)
    real = getattr(importlib.import_module("done"), name)()
    assert Call(followed, "done").follow(followed.named("done", name), [], {}) == real


def test_what_a_doubtful_loop_writes_is_unknown_and_nothing_else_is(followed: Any, tmp_path: Path) -> None:
    (tmp_path / "doubtful.py").write_text(DOUBTFUL)
    call = Call(followed, "doubtful")
    loops = call.follow(followed.named("doubtful", "loops"), [UNKNOWN], {})
    assert loops == {"always": 1, "first": UNKNOWN, "second": UNKNOWN}
    assert call.follow(followed.named("doubtful", "extends"), [UNKNOWN], {}) == [UNKNOWN]
    assert call.follow(followed.named("doubtful", "swallows"), [UNKNOWN], {}) is UNKNOWN
