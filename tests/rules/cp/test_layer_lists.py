"""CP027 against the installed megatron-core: which entry of a list of communication types a layer gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch

TYPES = ["p2p", "a2a", "all_gather"]


def _type_of_layer(number: int) -> Any:
    """The type that the layer with this number (from 1) hands to its attention."""
    import torch
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    class Attention(torch.nn.Module):
        def __init__(self, cp_comm_type: str | None = None, **_: Any) -> None:
            super().__init__()
            self.cp_comm_type = cp_comm_type

    config = TransformerConfig(
        num_layers=len(TYPES), hidden_size=8, num_attention_heads=2, context_parallel_size=2, cp_comm_type=TYPES
    )
    submodules = TransformerLayerSubmodules(self_attention=ModuleSpec(module=Attention), mlp=IdentityOp)
    group = SimpleNamespace(rank=lambda: 0, size=lambda: 1)
    groups = SimpleNamespace(tp=group, pp=group, cp=group)
    layer = TransformerLayer(config, submodules, layer_number=number, pg_collection=groups)
    return layer.self_attention.cp_comm_type


def test_cp027_the_last_layer_of_a_list_cannot_be_built_and_the_others_get_their_neighbours_type() -> None:
    import megatron.core
    from packaging.version import Version

    if Version(megatron.core.__version__) >= Version("0.17"):
        assert [_type_of_layer(number) for number in (1, 2, 3)] == TYPES
        return
    assert [_type_of_layer(number) for number in (1, 2)] == TYPES[1:]
    with pytest.raises(IndexError):
        _type_of_layer(3)
