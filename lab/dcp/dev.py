"""Dynamic CP trains as static CP does, on Megatron-LM's dev branch: `python lab dcp/dev --megatron DIR`.

DIR is a checkout of the dev branch, which is in no wheel. Four processes on gloo train dev's own GPTModel on the same
sequences, with dev's `wrap_data_iterator`, batch reader, forward-backward schedule, DDP, gradient finalization and
Adam: once under dev's packing with static CP ("dp_balanced"), once under dev's dynamic CP, once under it with
`megatron_hcp.integrations.megatron` imported. The losses of all steps and the norms of
their gradients must agree to rounding.

Stubs replace only what needs CUDA: Triton's kernels, Transformer Engine's attention (ours, on packed sequences) and
its order of THD rows.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from program import parser_of

RANKS, STEPS, PER_RANK, MAX_SEQLEN, LONGEST, BOUND = 4, 3, 6, 48, 192, 1e-12
ALIGN = 2 * RANKS


class _Anything:
    """A stand-in for Triton: it has every name, and nothing of it is called."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else self


def _kernel(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything()


def import_dev(checkout: str) -> None:
    """dev's megatron.core without Triton and Transformer Engine, of which its configuration wants 2.9."""
    sys.path.insert(0, checkout)
    kernels = types.ModuleType("megatron.core.transformer.moe.ops.paged_stash")
    kernels.__file__ = __file__
    kernels.__getattr__ = _kernel  # type: ignore[method-assign]
    sys.modules[kernels.__name__] = kernels
    import megatron.core.datasets.data_schedule_utils as utils
    import torch

    from megatron_hcp.core.shards import shard_thd_indices

    def rows_of_rank(cu_seqlens: Any, total: int, cp_size: int, cp_rank: int) -> Any:
        return torch.tensor(shard_thd_indices(cu_seqlens.tolist(), cp_rank, cp_size))

    utils.get_thd_partitioned_indices = rows_of_rank
    from megatron.core.transformer import transformer_config

    transformer_config.is_te_min_version = lambda *_: True
    torch.cuda.current_stream = lambda *_: _Anything()
    barrier = torch.distributed.barrier
    torch.distributed.barrier = lambda group=None, **_: barrier(group)


def samples(step: int, rank: int) -> Iterator[dict[str, Any]]:
    """Sequences that a data-parallel rank reads, as a variable-length dataset gives them: padded, one at a time."""
    import torch

    draw = torch.Generator().manual_seed(100 * step + rank)
    for _ in range(PER_RANK):
        length = int(torch.randint(4, 40, (1,), generator=draw)) if torch.rand(1, generator=draw) < 0.8 else LONGEST - 5
        padded = -(-length // ALIGN) * ALIGN
        text = torch.randint(96, (padded + 1,), generator=draw)
        mask = torch.zeros(padded)
        mask[:length] = (torch.rand(length, generator=draw) > 0.2).float()
        yield {
            "tokens": text[:-1].clone(), "labels": text[1:].clone(), "loss_mask": mask,
            "position_ids": torch.arange(padded),
            "original_seq_len": torch.tensor([length]), "padded_seq_len": torch.tensor([padded]),
        }  # fmt: skip


def attention_class() -> Any:
    """Core attention of packed sequences over the group that the micro-batch names, by runtime.attention."""
    import torch

    from megatron_hcp.proofs.dot_product_attention import DotProductAttention

    class CoreAttention(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, config: Any, *_: Any, pg_collection: Any = None, **__: Any) -> None:
            super().__init__()
            self.pg_collection = pg_collection
            self.attention = DotProductAttention(
                config.num_attention_heads, config.kv_channels, config.num_query_groups,
                qkv_format="thd", attn_mask_type="padding_causal",
            )  # fmt: skip

        def forward(self, q: Any, k: Any, v: Any, *_: Any, packed_seq_params: Any, **__: Any) -> Any:
            group = packed_seq_params.cp_group or self.pg_collection.cp
            self.attention.set_context_parallel_group(group if group.size() > 1 else None, None)
            return self.attention(
                q, k, v, cu_seqlens_q=packed_seq_params.cu_seqlens_q,
                cu_seqlens_q_padded=packed_seq_params.cu_seqlens_q_padded,
            )  # fmt: skip

    return CoreAttention


class Run(NamedTuple):
    """What one run of training did, by step, and the group sizes of one rank's micro-batches."""

    losses: list[float]
    gradient_norms: list[float]
    sizes: list[int]


def train(scheduler: str, cp: int) -> Run:
    """Trains from the same weights on the same data. Collective."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.datasets.data_schedule import get_batch_on_this_rank_for_sequence_packing, wrap_data_iterator
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from megatron_hcp.proofs.gpt import build_gpt, transformer_config
    from megatron_hcp.proofs.gpt_data import GptShape

    dynamic = scheduler == "default_dynamic_cp"
    shape = GptShape(seq_length=LONGEST)
    config = transformer_config(
        shape, context_parallel_size=cp, max_seqlen_per_dp_cp_rank=MAX_SEQLEN, variable_seq_lengths=True,
        sequence_packing_scheduler=scheduler, dynamic_context_parallel=dynamic, moe_token_dispatcher_type="alltoall",
    )  # fmt: skip
    model = build_gpt(config, shape, attention_class(), torch.device("cpu"))
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    adam = OptimizerConfig(optimizer="adam", lr=1e-2, clip_grad=0.0, params_dtype=config.params_dtype)
    optimizer = get_megatron_optimizer(adam, [ddp], use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads

    def forward_step(iterator: Any, model: Any) -> Any:
        tokens, labels, loss_mask, _, positions, packed, _ = get_batch_on_this_rank_for_sequence_packing(
            iterator, dynamic_cp=dynamic, config=config
        )
        if packed.cp_group is None and cp > 1:
            packed.cp_group = parallel_state.get_context_parallel_group()
        sizes.add(1 if packed.cp_group is None else packed.cp_group.size())
        losses = model(tokens, positions, None, labels=labels, packed_seq_params=packed)

        def loss_func(output: Any) -> Any:
            loss_sum, tokens = (output.double() * loss_mask).sum(), loss_mask.sum()
            return loss_sum, tokens.int(), {"loss": torch.stack([loss_sum.detach(), tokens.double()])}

        return losses, loss_func

    found, sizes = Run([], [], []), set()
    dp, dp_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    for step in range(STEPS):
        ddp.zero_grad_buffer()
        optimizer.zero_grad()
        # The same sequences however many ranks read: those of RANKS readers, dealt to the data-parallel ranks.
        mine = [one for reader in range(dp_rank, RANKS, dp) for one in samples(step, reader)]
        iterator, number, *_ = wrap_data_iterator(iter(mine), config, len(mine))
        reports = get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=iterator, model=ddp, num_microbatches=number,
            seq_length=LONGEST, micro_batch_size=1, forward_only=False,
        )  # fmt: skip
        totals = torch.stack([report["loss"] for report in reports]).sum(0)
        dist.all_reduce(totals)
        norm = torch.stack([parameter.main_grad.square().sum() for parameter in model.parameters()]).sum().sqrt()
        optimizer.step()
        found.losses.append((totals[0] / totals[1]).item())
        found.gradient_norms.append(norm.item())
    return found._replace(sizes=sorted(sizes))


def runs() -> tuple[dict[str, Run], list[str]]:
    """All three, one after the other, on this rank."""
    from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel

    found: dict[str, Run] = {}
    with cpu_megatron():
        with model_parallel(cp=RANKS):
            found["static CP, dp_balanced"] = train("dp_balanced", RANKS)
        with model_parallel(cp=1, dynamic_context_parallel=True):
            found["dynamic CP, dev's scheduler"] = train("default_dynamic_cp", 1)
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("megatron_hcp.integrations").addHandler(handler)
        importlib.import_module("megatron_hcp.integrations.megatron")
        with model_parallel(cp=1, dynamic_context_parallel=True):
            found["dynamic CP, megatron_hcp.integrations.megatron"] = train("default_dynamic_cp", 1)
    return found, lines


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--megatron", required=True, metavar="DIR", help="a checkout of Megatron-LM's dev branch")
    options = parser.parse_args()
    import_dev(options.megatron)  # here, because the processes are forked
    from megatron_hcp.proofs.procs import run_workers
    from megatron_hcp.proofs.world import joined_world

    with tempfile.TemporaryDirectory() as folder:

        def work(rank: int) -> Any:
            with joined_world(rank, RANKS, argparse.Namespace(timeout=600), f"{folder}/store"):
                return runs()

        everyone = run_workers(work, RANKS, 600)
    found, lines = everyone[0]
    wanted = found["static CP, dp_balanced"]
    print(f"{'':<40} {'loss by step':<26} {'norm of the gradient':<26} group sizes on all ranks")
    for name, run in found.items():
        sizes = sorted({size for of_rank, _ in everyone for size in of_rank[name].sizes})
        print(f"{name:<40}", *(f"{x:.6f}" for x in (*run.losses, *run.gradient_norms)), sizes)
    print(*lines, sep="\n")
    pairs = [
        pair
        for run in found.values()
        for pair in zip(run.losses + run.gradient_norms, wanted.losses + wanted.gradient_norms)
    ]
    worst = max(abs(one / other - 1) for one, other in pairs)
    print(f"{'the same' if worst <= BOUND else 'NOT THE SAME'}: largest difference {worst:.1e}, at most {BOUND:.0e}")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
