"""What Transformer Engine's constructors ask, release by release, and why hcp reads so little of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.validators.reader.checkout import texts_of
from megatron_hcp.validators.reader.sources import Sources
from megatron_hcp.validators.reader.statements import Reader
from megatron_hcp.validators.roots import MEGATRON_LM
from support.needs import UPSTREAM

BASE = "transformer_engine/pytorch"
LAYERS = {
    "DotProductAttention": f"{BASE}/attention/dot_product_attention/dot_product_attention.py",
    "Linear": f"{BASE}/module/linear.py",
    "LayerNormLinear": f"{BASE}/module/layernorm_linear.py",
    "GroupedLinear": f"{BASE}/module/grouped_linear.py",
    "LayerNorm": f"{BASE}/module/layernorm.py",
    "RMSNorm": f"{BASE}/module/rmsnorm.py",
}
"""What megatron-core's layers are made of (megatron/core/extensions/transformer_engine.py)."""
CONSTANT = (
    "attention_type", "self.parallel_mode", "parameters_split", "name, str", "parameter_split_sizes", "is_subview",
    "ub_name", "is_ub_initialized", "ub_overlap", "hidden_size", "kwargs", "use_grouped_tensor",
)  # fmt: skip
"""Arguments that megatron-core's wrappers set themselves, the same for every launch."""
ANSWERED = {
    "num_attention_heads % self.num_gqa_groups == 0": "`te.DotProductAttention.__init__` stands for it",
    "normalization in ['LayerNorm', 'RMSNorm']": "the choices of --normalization",
    "torch_version() >= (2, 7, 0)": "megatron-core's own constructors ask for torch 2.7 before",
    "size % self.tp_size == 0": "TP004",
    "not (self.tp_size > 1 and bias)": "megatron-core makes experts with tp_size 1, and refuses their bias itself",
}
RELEASES = [path for path in UPSTREAM.glob("transformer-engine-2.*") if int(path.name.split(".")[1]) >= 10]


@pytest.mark.upstream
@pytest.mark.parametrize("folder", sorted(RELEASES), ids=lambda folder: folder.name)
def test_every_guard_of_a_layers_constructor_is_constant_or_answered(folder: Path) -> None:
    reader = Reader(Sources(texts_of(str(folder), MEGATRON_LM)))
    for name, file in LAYERS.items():
        assert reader.read(file, f"{name}.__init__"), name
        for line in reader.units[f"{name}.__init__"].guards:
            condition = line.partition(" ")[2].partition("\t")[0]
            assert condition in ANSWERED or any(word in condition for word in CONSTANT), f"{name}: {condition}"
