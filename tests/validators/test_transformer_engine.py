"""What Transformer Engine's constructors ask, release by release, and why hcp reads so little of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.validators.reader.checkout import texts_of
from megatron_hcp.validators.reader.layers import TE_RECIPE
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


RECIPE = "transformer_engine/common/recipe/__init__.py"


@pytest.mark.upstream
@pytest.mark.parametrize("folder", RELEASES, ids=lambda path: path.name)
def test_what_recipes_ask_of_their_environment_is_what_our_stand_in_asks(folder: Path) -> None:
    text = (folder / RECIPE).read_text(encoding="utf-8")
    minor = int(folder.name.split(".")[1])
    asked = set(re.findall(r'"(NVTE_\w+) must be', text)) | set(re.findall(r"(Delayed scaling only supports)", text))
    guards = {line.split("\t")[1] for line in TE_RECIPE.lines if "\t" in line}
    since = {guard: 17 if "4OVER6" in guard else 15 for guard in guards}
    ours = {said for guard in guards if minor >= since[guard] for said in asked_in(guard)}
    assert ours == asked


def asked_in(guard: str) -> list[str]:
    return re.findall(r"(NVTE_\w+) must be", guard) or re.findall(r"Delayed scaling only supports", guard)


FP8 = "--fp8-format hybrid --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1"


@pytest.mark.parametrize(
    ("more", "stated", "said"),
    [
        ("--fp8-recipe tensorwise", ("te=2.18", "env.NVTE_BACKWARD_OVERRIDE=wrong"), "must be unset or one of"),
        ("--fp8-recipe delayed", ("te=2.18", "env.NVTE_BACKWARD_OVERRIDE=dequantized"), "Delayed scaling only"),
        ("--fp8-recipe tensorwise", ("te=2.18", "env.NVTE_BACKWARD_OVERRIDE=dequantized"), ""),
        ("--fp8-recipe delayed", ("te=2.14", "env.NVTE_BACKWARD_OVERRIDE=dequantized"), ""),
        ("--fp8-recipe tensorwise", ("te=2.18",), ""),
    ],
)
def test_variables_of_transformer_engine_are_inputs_of_its_recipes(
    more: str, stated: tuple[str, ...], said: str
) -> None:
    words = tuple(f"{FP8} --max-position-embeddings 64 {more}".split())
    report = check_launch(load_launch("", LoadOptions(words=words, assumes=("mcore=0.19.0", *stated))), rules_for)
    found = [one.problem.message for one in report.findings if "te.common.recipe" in one.problem.message]
    assert len(found) == bool(said) and all(said in one for one in found)
