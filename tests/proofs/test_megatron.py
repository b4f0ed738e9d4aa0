"""The CPU adapter: CUDA calls land on the CPU while it is entered, and upstream's attention class is upstream's."""

from __future__ import annotations

import ast

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.proofs.megatron import cpu_megatron  # noqa: E402
from megatron_hcp.proofs.te_attention import CLASS, core_attention_class  # noqa: E402

pytestmark = pytest.mark.torch


def test_cuda_means_cpu_inside_and_nothing_outside():
    before = (torch.cuda.current_device, torch.cuda.Stream, torch.cuda.synchronize)
    with cpu_megatron():
        assert torch.zeros(2, device="cuda").device.type == "cpu"
        assert torch.zeros(2, device=torch.cuda.current_device()).device.type == "cpu"
        assert torch.tensor([1], pin_memory=True).cuda(non_blocking=True).device.type == "cpu"
        assert torch.ones(1).to("cuda").device.type == "cpu"
        assert torch.ones(1).to(torch.device("cuda", 0), torch.float64).dtype == torch.float64
        torch.cuda.Stream()
        torch.cuda.synchronize()
    assert (torch.cuda.current_device, torch.cuda.Stream, torch.cuda.synchronize) == before
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            torch.zeros(2, device="cuda")


def test_the_class_is_compiled_from_the_installed_megatron_core():
    import megatron.core.extensions.transformer_engine as extension

    from megatron_hcp.proofs.dot_product_attention import DotProductAttention

    cls = core_attention_class()
    assert issubclass(cls, DotProductAttention)
    assert cls.__init__.__code__.co_filename == extension.__file__
    assert "get_hierarchical_context_parallel_groups" in cls.__init__.__code__.co_names
    assert extension.HAVE_TE is False or extension.TEDotProductAttention is not cls


def test_a_transformer_engine_without_hierarchical_cp_is_refused_by_upstreams_own_check():
    from megatron.core.transformer.enums import AttnMaskType

    from megatron_hcp.proofs.gpt import transformer_config
    from megatron_hcp.proofs.gpt_data import GptShape

    class Group:
        def size(self):
            return 1

    class Groups:
        tp = cp = Group()
        hcp = None

    config = transformer_config(GptShape(), context_parallel_size=2, cp_comm_type="a2a+p2p")
    with cpu_megatron(), pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match=r"1\.12\.0"):
        patch.setattr(torch.distributed, "get_process_group_ranks", lambda group: [0, 1])
        core_attention_class(te_version="1.11.0")(
            config, 1, AttnMaskType.causal, "self", cp_comm_type="a2a+p2p", pg_collection=Groups()
        )


@pytest.mark.upstream
def test_every_released_megatron_core_has_the_class_and_takes_the_groups_from_the_global_state(upstream):
    found = sorted(upstream.glob("megatron-core-*"))
    assert len(found) >= 3
    for path in found:
        source = (path / "megatron/core/extensions/transformer_engine.py").read_text()
        cls = next(
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == CLASS
        )
        init = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        assert (
            "extra_kwargs['cp_group'] = get_hierarchical_context_parallel_groups(check_initialized=False)"
            in ast.unparse(init)
        ), path.name


def test_training_state_is_gone_after_model_parallel(ranks):
    def work(rank):
        from megatron.core import parallel_state

        from megatron_hcp.proofs.megatron import model_parallel
        from megatron_hcp.runtime.groups import built_groups

        before = built_groups()
        with cpu_megatron(), model_parallel(cp=4, hcp_sizes=[2, 2]):
            inside = len(parallel_state.get_hierarchical_context_parallel_groups())
        left = parallel_state.get_hierarchical_context_parallel_groups(check_initialized=False)
        return inside, left, built_groups() == before

    assert ranks(work) == [(2, None, True)] * 4
