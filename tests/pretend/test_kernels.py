"""The shapes that stand-ins for kernels give, as the packages' own documentation has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from megatron_hcp.pretend.stand_ins.files import share
from megatron_hcp.pretend.stand_ins.frameworks.verl import linear_cross_entropy
from megatron_hcp.pretend.stand_ins.kernels import DSA, KERNELS
from megatron_hcp.pretend.stand_ins.transformer_engine import _gemm, _mlp
from support.rows import rows

pytestmark = pytest.mark.torch

TOKENS, HEADS, WIDTH, KEYS, CHOSEN = 6, 4, 24, 10, 3
FLEX = """
import torch, torch._dynamo, torch.nn.attention.flex_attention
from megatron_hcp.pretend.stand_ins import device, kernels, packages, sized, tensors
device.install()
packages.install()
kernels.install()
tensors.install()
sized.install()
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
shapes = (2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 6)
q, k, v = (torch.zeros(shape, device="cuda", requires_grad=True) for shape in shapes)
mask = create_block_mask(lambda b, h, q, k: q >= k, B=None, H=None, Q_LEN=16, KV_LEN=16, device=q.device)
out = torch.compile(flex_attention)(q, k, v, score_mod=None, block_mask=mask, scale=1.0, enable_gqa=True)
out.sum().backward()
print(tuple(out.shape), tuple(v.grad.shape), out.device)
"""


def test_a_flexible_attention_has_the_queries_heads_and_the_values_width_and_is_differentiated() -> None:
    done = subprocess.run([sys.executable, "-B", "-c", FLEX], capture_output=True, text=True)
    assert done.stdout.strip() == "(2, 4, 16, 6) (2, 2, 16, 6) cuda:0", done.stderr[-600:]


def test_sparse_attention_gives_the_values_width_and_two_numbers_a_row() -> None:
    q = torch.zeros(TOKENS, HEADS, WIDTH, dtype=torch.bfloat16)
    attend = KERNELS["flash_mla"]["flash_mla_sparse_fwd"]
    out, largest, sums = attend(q, torch.zeros(KEYS, 1, WIDTH), torch.zeros(TOKENS, 1, CHOSEN), 1.0, d_v=16)
    assert out.shape == (TOKENS, HEADS, 16) and out.dtype == torch.bfloat16
    assert largest.shape == sums.shape == (TOKENS, HEADS) and sums.dtype == torch.float32


_Q, _K, _W = torch.zeros(1, TOKENS, HEADS, WIDTH), torch.zeros(1, KEYS, 1, WIDTH), torch.zeros(1, TOKENS, HEADS)
_ROWS, _PACKED = torch.zeros(1, TOKENS, KEYS), torch.zeros(TOKENS, HEADS, WIDTH)
_INDEXER = {"d_index_q": (1, TOKENS, HEADS, WIDTH), "d_weights": (1, TOKENS, HEADS), "d_index_k": (1, KEYS, 1, WIDTH)}


@rows("name, args, named, wanted", [
    ("indexer_forward_wrapper", (_Q, _K, _W), {"ratio": 1}, {"scores": (1, TOKENS, KEYS)}),
    ("indexer_forward_wrapper", (_PACKED, _K[0], _W[0]), {"ratio": 1, "max_seqlen_k": 5}, {"scores": (TOKENS, 5)}),
    ("indexer_top_k_wrapper", (_ROWS[0], None), {"top_k": CHOSEN, "next_n": 1, "return_val": True},
     {"indices": (TOKENS, CHOSEN), "values": (TOKENS, CHOSEN)}),
    ("indexer_backward_wrapper", (_Q, _W, _K), {"block_I": 128}, _INDEXER),
    ("dense_indexer_backward_wrapper", (_Q, _W, _K), {"ratio": 1}, _INDEXER),
    ("sparse_attention_backward_wrapper", (_PACKED, _K[0]), {},
     {"dq": (TOKENS, HEADS, WIDTH), "dkv": (KEYS, 1, WIDTH)}),
    ("sparse_attn_score_recompute_wrapper", (_Q, _K, _W, torch.zeros(1, TOKENS, CHOSEN)), {},
     {"target": (1, TOKENS, CHOSEN)}),
    ("dense_attn_score_recompute_wrapper", (_Q, _K, _W), {}, {"out": (1, TOKENS, KEYS), "denom": (1, TOKENS)}),
])  # fmt: skip
def test_cudnns_kernels_for_sparse_attention_give_what_their_interface_names(
    name: str, args: tuple[Any, ...], named: dict[str, Any], wanted: dict[str, tuple[int, ...]]
) -> None:
    assert {key: tuple(one.shape) for key, one in DSA[name](*args, **named).items()} == wanted


def test_verls_fused_loss_gives_two_numbers_a_token_and_gradients_of_both_inputs() -> None:
    hidden, weight = torch.zeros(2, TOKENS, WIDTH, requires_grad=True), torch.zeros(KEYS, WIDTH, requires_grad=True)
    log_probs, entropy = linear_cross_entropy(hidden, weight, torch.zeros(2, TOKENS, dtype=torch.int64), 1.0, "none")
    (log_probs + entropy).sum().backward()
    assert log_probs.shape == entropy.shape == (2 * TOKENS,)
    assert hidden.grad.shape == hidden.shape and weight.grad.shape == weight.shape


BROKEN = """
from megatron_hcp.pretend.stand_ins import kernels, packages
packages.install()
kernels.install()
from cudnn import DSA, pygraph
print(DSA.indexer_backward_wrapper(1, 2, 3)["d_index_q"], pygraph)
"""


def test_an_installed_cudnn_that_cannot_be_imported_here_has_a_stand_in_and_any_other_name(tmp_path: Path) -> None:
    (tmp_path / "cudnn.py").write_text("raise OSError('libcudnn.so.9: cannot open')", encoding="utf-8")
    done = subprocess.run([sys.executable, "-B", "-c", BROKEN], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.startswith("1 "), done.stderr


@rows("layout, a, b, wanted", [
    ("TN", (5, 3), (7, 3), (7, 5)),
    ("NN", (5, 3), (7, 5), (7, 3)),
    ("NT", (7, 3), (7, 5), (5, 3)),
])  # fmt: skip
def test_a_product_has_the_shape_that_cublas_gives_for_its_layout(
    layout: str, a: tuple[int, int], b: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """The three that a linear layer's forward and backward pass take: of weight and input, gradient and both."""
    out, *rest = _gemm(torch.zeros(a), torch.zeros(b), out_dtype=torch.float64, layout=layout)
    assert out.shape == wanted and out.dtype == torch.float64 and rest == [None] * 3


@pytest.mark.parametrize("returns_bias", [False, True])
def test_a_fused_mlp_gives_what_it_gets_and_a_gradient_to_each_weight(returns_bias: bool) -> None:
    mlp = SimpleNamespace(tp_size=2, sequence_parallel=True, return_bias=returns_bias, fc2_bias=torch.zeros(WIDTH))
    weights = [torch.zeros(shape, requires_grad=True) for shape in ((WIDTH,), (HEADS, WIDTH), (WIDTH, HEADS))]
    mlp.layer_norm_weight, mlp.fc1_weight, mlp.fc2_weight = weights
    told = _mlp(mlp, torch.zeros(TOKENS, 1, WIDTH))
    out = told[0] if returns_bias else told
    out.sum().backward()
    assert out.shape == (TOKENS, 1, WIDTH) and all(weight.grad.shape == weight.shape for weight in weights)


def test_a_tensor_that_shares_anothers_storage_has_room_again() -> None:
    given, of = (torch.empty(TOKENS, device="meta") for _ in range(2))
    given.untyped_storage().resize_(0)
    share(given, of)
    assert given.untyped_storage().nbytes() == of.untyped_storage().nbytes() == 4 * TOKENS
