"""Which case of recomputation a class is, told by the method and by what its backward names."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.proofs.recompute import METHOD, names_used, recompute_case


class Plain:
    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        def inner() -> Any:
            return ctx.saved_tensors

        return inner()


def test_a_class_without_the_method_is_plain_and_its_inner_functions_are_read() -> None:
    assert recompute_case(Plain) == "plain"
    assert "saved_tensors" in names_used(Plain, "backward")
    assert METHOD not in names_used(Plain, "backward")


def test_a_class_with_the_method_recovers() -> None:
    assert recompute_case(type("With", (), {METHOD: None})) == "recovers"
    assert names_used(type("With", (), {METHOD: None}), "backward") == frozenset()


@pytest.mark.upstream
def test_no_released_megatron_core_has_the_method(upstream: Path) -> None:
    files = sorted(upstream.glob("megatron-core-*/megatron/core/tensor_parallel/random.py"))
    assert len(files) >= 6
    for file in files:
        classes = [
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef) and node.name == "CheckpointFunction"
        ]
        assert len(classes) == 1
        methods = {node.name for node in classes[0].body if isinstance(node, ast.FunctionDef)}
        assert {"forward", "backward"} <= methods
        assert METHOD not in methods
