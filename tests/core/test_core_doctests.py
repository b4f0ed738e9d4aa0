"""The examples in the docstrings of megatron_hcp.core hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import megatron_hcp.core

MODULES = [module.name for module in pkgutil.walk_packages(megatron_hcp.core.__path__, "megatron_hcp.core.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
