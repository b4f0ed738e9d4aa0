"""Known faults, seen in megatron-core's own code on CPU ranks (gloo), beside what the row says of the same launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

torch = pytest.importorskip("torch")

from megatron_hcp.core.shards import cu_seqlens_of, shard_thd_indices  # noqa: E402
from megatron_hcp.judge.engine import check_launch  # noqa: E402
from megatron_hcp.proofs.gpt import transformer_config  # noqa: E402
from megatron_hcp.proofs.gpt_data import GptShape  # noqa: E402
from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel  # noqa: E402
from megatron_hcp.proofs.procs import run_workers  # noqa: E402
from megatron_hcp.rules.registry import BY_ID  # noqa: E402
from support.processes import HANG_S  # noqa: E402
from support.rules import launch  # noqa: E402
from support.upstream_code import Named, function  # noqa: E402

pytestmark = pytest.mark.torch

Ranks = Callable[..., list[Any]]
TOKENS, HIDDEN, EXPERTS = 16, 64, 4


def reported(rule: str, options: str) -> bool:
    """Whether the rule speaks of these options of Megatron-LM, with the installed megatron-core."""
    report = check_launch(launch("mlm", options, f"mcore={version('megatron-core')}"), (BY_ID[rule],), fixes=False)
    return bool(report.findings)


def experts_gradients(tp: int, rank: int) -> dict[str, list[float]]:
    """By weight of an expert, its reduced gradient; `output`: the layer's. A TP rank feeds its part of the tokens."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.spec_utils import build_module

    vars(moe_utils).setdefault("te_general_gemm", None)  # 0.16 looks it up although Transformer Engine is absent
    with cpu_megatron(), model_parallel(tp=tp, expert_tensor_parallel_size=1):
        config = transformer_config(
            GptShape(num_layers=1),
            per_token_loss=False,
            num_moe_experts=EXPERTS,
            moe_router_load_balancing_type="none",
            moe_token_dispatcher_type="alltoall",
            tensor_model_parallel_size=tp,
            expert_tensor_parallel_size=1,
            sequence_parallel=tp > 1,
            add_bias_linear=False,
            moe_ffn_hidden_size=HIDDEN,
        )
        spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=False)
        layer = build_module(spec, config=config, layer_number=1).double()
        for name, weight in layer.named_parameters():
            weight.data = 0.1 * torch.randn(
                weight.shape, generator=torch.Generator().manual_seed(sum(map(ord, name))), dtype=torch.float64
            )
        ddp = DistributedDataParallel(config, DistributedDataParallelConfig(), layer)
        ddp.zero_grad_buffer()
        draw = torch.Generator().manual_seed(1)
        tokens, wanted = torch.randn(2, TOKENS, 1, HIDDEN, generator=draw, dtype=torch.float64).chunk(tp, 1)[rank]
        output, _ = ddp(tokens)
        (output * wanted).sum().backward()
        finalize_model_grads([ddp], None)
        found = {name: weight.main_grad.flatten().tolist() for name, weight in layer.named_parameters()}
    experts = {name: gradient for name, gradient in found.items() if "experts" in name}
    return {**experts, "output": output.flatten().tolist()}


def test_each_tensor_parallel_rank_trains_its_own_copy_of_the_experts(ranks: Ranks) -> None:
    [whole] = ranks(partial(experts_gradients, 1), 1)
    first, second = ranks(partial(experts_gradients, 2), 2)
    assert first.pop("output") + second.pop("output") == pytest.approx(whole.pop("output"))
    assert len(whole) == 2 * EXPERTS
    for name, gradient in whole.items():
        mine, other = torch.tensor(first[name]), torch.tensor(second[name])
        assert (mine + other).tolist() == pytest.approx(gradient, abs=1e-6), "each has its own tokens' part of it"
        assert (mine - other).norm() > 0.5 * torch.tensor(gradient).norm(), "and it is never summed"
    options = "--num-experts 4 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size"
    assert reported("KNOWN033", f"{options} 1 --expert-tensor-parallel-size 1")
    assert not reported("KNOWN033", f"{options} 1")


def counted(rank: int) -> dict[str, int]:
    """By kind of parameter: how many of one such parameter this rank's part of the gradient norm contains."""
    from megatron.core.optimizer.optimizer import MegatronOptimizer
    from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType

    with cpu_megatron(), model_parallel(tp=2):
        config = transformer_config(GptShape(), tensor_model_parallel_size=2, softmax_type="learnable")
        attention = DotProductAttention(config, 1, AttnMaskType.causal, "self")
        assert attention.softmax_offset.numel() == GptShape().heads // 2, "each rank has other heads' sinks"
        expert, marked = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        expert.allreduce = False  # as megatron-core marks the experts of expert parallelism
        set_tensor_model_parallel_attributes(marked, True, 0, 1)
        parameters = {"sink": attention.softmax_offset, "expert": expert, "marked": marked}
        norms = {}
        for name, parameter in parameters.items():
            parameter.grad = torch.ones_like(parameter)
            optimizer = SimpleNamespace(
                get_parameters=lambda found=parameter: [found],
                config=SimpleNamespace(use_precision_aware_optimizer_no_fp8_or_ds_fp8=False),
            )
            norms[name] = len(MegatronOptimizer.get_main_grads_for_grad_norm(optimizer))
    return norms


def test_what_lacks_the_mark_counts_on_the_first_tensor_parallel_rank_alone(ranks: Ranks) -> None:
    first, second = ranks(counted, 2)
    assert first == {"sink": 1, "expert": 1, "marked": 1}
    assert second == {"sink": 0, "expert": 0, "marked": 1}
    assert reported("KNOWN036", "--tensor-model-parallel-size 2 --softmax-type learnable")


def marks(folder: Path, _: int) -> list[bool]:
    """Whether each weight of Transformer Engine's grouped experts is marked as tensor-parallel."""
    from megatron_hcp.proofs.te_cpu.load import load
    from megatron_hcp.proofs.te_cpu.module import as_on_a_gpu

    load(folder)
    from transformer_engine.pytorch import GroupedLinear

    build = as_on_a_gpu(GroupedLinear)
    module = build(num_gemms=2, in_features=8, out_features=8, bias=False, device="cpu", params_dtype=torch.float32)
    return [getattr(weight, "tensor_model_parallel", False) for weight in module.parameters()]


@pytest.mark.upstream
@pytest.mark.parametrize(("release", "marked"), [("2.10.0", True), ("2.14.0", False), ("2.20.2", False)])
def test_transformer_engine_no_longer_marks_grouped_experts(release: str, marked: bool, upstream: Path) -> None:
    [found] = run_workers(partial(marks, upstream / f"transformer-engine-{release}"), 1, HANG_S)
    assert found == [marked, marked]
    row = BY_ID["KNOWN034"].bad
    report = check_launch(launch("mlm", row.text, f"mcore=0.18 te={release}"), (BY_ID["KNOWN034"],), fixes=False)
    assert bool(report.findings) == (not marked)


def rolled(lengths: tuple[int, ...], given: tuple[int, ...], rank: int) -> list[int]:
    """This rank's tokens, shifted by multi-token prediction: `lengths` cut the row, `given` are its cu_seqlens_q."""
    from megatron.core.packed_seq_params import PackedSeqParams
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    mine = shard_thd_indices(cu_seqlens_of(lengths), rank, 2)
    boundaries = torch.tensor(cu_seqlens_of(given), dtype=torch.int32)
    padded = torch.tensor(cu_seqlens_of(lengths), dtype=torch.int32)
    packed = PackedSeqParams(qkv_format="thd", cu_seqlens_q=boundaries, cu_seqlens_q_padded=padded)
    row = 1 + torch.arange(sum(lengths))[None, list(mine)]
    with cpu_megatron():
        out, _ = roll_tensor(row, -1, -1, torch.distributed.group.WORLD, packed)
    return list(out[0].tolist())


def test_padded_rows_are_shifted_across_their_boundaries(ranks: Ranks) -> None:
    lengths, real = (8, 8), (7, 6)
    starts = cu_seqlens_of(lengths)
    following = {end: [*range(start + 2, end + 1), 0] for start, end in pairwise(starts)}
    right = [token for end in starts[1:] for token in following[end]]
    for given in (lengths, real):
        found = ranks(partial(rolled, lengths, given), 2)
        wanted = [[right[index] for index in shard_thd_indices(starts, rank, 2)] for rank in range(2)]
        assert (found == wanted) == (given == lengths), found


@pytest.mark.upstream
@pytest.mark.parametrize("release", ["0.17.1", "0.18.2", "0.19.2"])
def test_importing_beside_a_resiliency_extension_without_a_version_raises(
    release: str, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = upstream / f"megatron-core-{release}/megatron/core/dist_checkpointing/strategies/nvrx.py"
    extension = ModuleType("nvidia_resiliency_ext")
    monkeypatch.setitem(sys.modules, extension.__name__, extension)
    scope = Named(NVRX_MIN_VERSION="0.6.0", HAVE_PACKAGING=True, PkgVersion=Version)
    exec(function(path, "is_nvrx_min_version"), scope)
    with pytest.raises(AttributeError, match="__version__"):
        scope["is_nvrx_min_version"]("0.6.0")
    vars(extension)["__version__"] = "0.6.0"
    assert scope["is_nvrx_min_version"]("0.6.0")
