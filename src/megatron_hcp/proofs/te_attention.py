"""megatron-core's own TEDotProductAttention class, over Transformer Engine's class or over ours.

Which process group reaches the attention, and so whether HCP is on, is decided in the constructor of
megatron.core.extensions.transformer_engine.TEDotProductAttention. Without Transformer Engine that class does not exist
(its base is a mock). Here its source, from the installed megatron-core, is compiled over the reference attention, so
that the decision a CPU check shows is upstream's own and not a copy of it.
"""

from __future__ import annotations

import ast
import functools
import inspect
from types import CodeType, SimpleNamespace
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.arguments import REFERENCE
from megatron_hcp.proofs.dot_product_attention import DotProductAttention

CLASS = "TEDotProductAttention"
PRETENDED_TE_VERSION = "2.14.0"
"""The Transformer Engine version that the class is told; it decides which features exist."""


def dot_product_attention_class(attention: str) -> Any:
    """The class that an --attention option names: "reference" (ours), or Transformer Engine's."""
    if attention == REFERENCE:
        return DotProductAttention
    import transformer_engine.pytorch

    return transformer_engine.pytorch.DotProductAttention


def core_attention_class(attention: str = REFERENCE, te_version: str = PRETENDED_TE_VERSION) -> Any:
    """The class for `core_attention` in a megatron-core layer spec: always upstream's TEDotProductAttention.

    Args:
        attention: "reference": over our DotProductAttention; Transformer Engine's: as it is, over the installed one or
            over the wheel that te_cpu.module has imported.
        te_version: what the class is told about Transformer Engine's version, with "reference".

    Raises:
        HcpError: the installed megatron-core has no such class.
    """
    import megatron.core.extensions.transformer_engine as extension
    from packaging.version import Version

    if attention != REFERENCE:
        return extension.TEDotProductAttention
    found = Version(te_version)

    def is_te_min_version(version: str, check_equality: bool = True) -> bool:
        return found >= Version(version) if check_equality else found > Version(version)

    pytorch = SimpleNamespace(DotProductAttention=DotProductAttention)
    scope = {
        **vars(extension),
        "te": SimpleNamespace(pytorch=pytorch),
        "HAVE_TE": True,
        "is_te_min_version": is_te_min_version,
        "get_te_version": lambda: found,
    }
    exec(_class_code(extension), scope)
    return scope[CLASS]


@functools.cache
def _class_code(module: Any) -> CodeType:
    # Parsed, not inspect.getsource(class): over a mock base the class statement leaves no class behind.
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == CLASS:
            return compile(ast.Module(body=[node], type_ignores=[]), inspect.getfile(module), "exec")
    raise HcpError(f"{module.__name__} has no class {CLASS}:", wanted="megatron-core 0.13 to 0.16.1")
