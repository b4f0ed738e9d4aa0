"""megatron-core's own TEDotProductAttention class, over a base class of our choice.

Which process group reaches the attention, and so whether HCP is on, is decided in the constructor of
megatron.core.extensions.transformer_engine.TEDotProductAttention. Without Transformer Engine that class does not exist
(its base is a mock). Here its source, from the installed megatron-core, is compiled over the reference attention, so
that the decision that a CPU check shows is upstream's and no copy of it.
"""

from __future__ import annotations

import ast
import inspect
from types import SimpleNamespace
from typing import Any

import torch

from hcp.core.errors import HcpError
from hcp.runtime.dot_product_attention import DotProductAttention

CLASS = "TEDotProductAttention"
PRETENDED_TE_VERSION = "2.14.0"
"""The Transformer Engine version that the class is told it runs on: it asks which features exist."""


def core_attention_class(base: type[torch.nn.Module] = DotProductAttention,
                         te_version: str = PRETENDED_TE_VERSION) -> Any:
    """The class for `core_attention` in a megatron-core layer spec.

    Args:
        base: what stands for transformer_engine.pytorch.DotProductAttention.

    Raises:
        HcpError: the installed megatron-core has no such class.
    """
    import megatron.core.extensions.transformer_engine as extension
    from packaging.version import Version

    found = Version(te_version)

    def is_te_min_version(version: str, check_equality: bool = True) -> bool:
        return found >= Version(version) if check_equality else found > Version(version)

    scope = {
        **vars(extension), "te": SimpleNamespace(pytorch=SimpleNamespace(DotProductAttention=base)), "HAVE_TE": True,
        "is_te_min_version": is_te_min_version, "get_te_version": lambda: found,
    }
    exec(compile(_class_source(extension), inspect.getfile(extension), "exec"), scope)
    return scope[CLASS]


def _class_source(module: Any) -> ast.Module:
    # Parsed, not inspect.getsource(class): over a mock base the class statement leaves no class behind.
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == CLASS:
            return ast.Module(body=[node], type_ignores=[])
    raise HcpError(f"{module.__name__} has no class {CLASS}: wanted megatron-core 0.13 to 0.16.1")
