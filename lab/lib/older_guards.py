"""Which options tell that guards of older releases, which the newest no longer has, may refuse a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from megatron_hcp.judge.start.context import context_of
from megatron_hcp.judge.start.made_from import sources_of
from megatron_hcp.validators.given.options import option_of
from megatron_hcp.validators.outcome import Guard
from megatron_hcp.validators.program import StartProgram
from megatron_hcp.validators.start import parser_in
from megatron_hcp.validators.table import guards_of, program_of_release
from megatron_hcp.validators.trees import names_in, tree_of

_EVERYWHERE = frozenset(
    "num_layers hidden_size num_attention_heads seq_length max_position_embeddings micro_batch_size global_batch_size "
    "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size sequence_parallel bf16 fp16 "
    "num_experts data_path load save ckpt_format use_distributed_optimizer transformer_impl train_iters optimizer "
    "swiglu num_query_groups overlap_grad_reduce overlap_param_gather moe_token_dispatcher_type train_samples "
    "disable_bias_linear".split()
)
"""Options of most launches: alone they tell nothing."""


def older_guards(repo: str, releases: Sequence[str]) -> str:
    """The table: for each release the options of guards that it is the last to have. `releases` are oldest first."""
    guards = guards_of(repo)
    *older, newest = releases
    still = {(guard.function, part) for guard, having in guards.items() if newest in having for part in _parts(guard)}
    found: dict[str, set[str]] = {release: set() for release in older}
    for guard, having in guards.items():
        having_it = [release for release in older if release in having]
        if having_it and newest not in having and not any((guard.function, part) in still for part in _parts(guard)):
            program = program_of_release(repo, having_it[-1])
            assert program is not None
            found[having_it[-1]].update(_options(program, guard))
    rows = (f"{release} {' '.join(sorted(options))}" for release, options in found.items() if options)
    return "\n".join(
        ("# Written by lab/validators.py: a release, and options of guards that no later one has", *rows, "")
    )


def _parts(guard: Guard) -> tuple[str, ...]:
    return tuple(filter(None, (guard.condition, guard.message)))


def _options(program: StartProgram, guard: Guard) -> Iterator[str]:
    keys: dict[str, list[str]] = {}
    for key, line in parser_in(program).lines.items():
        keys.setdefault(option_of(line).dest, []).append(key)
    for text in (guard.condition, *context_of(program, guard).around):
        for name, _ in names_in(tree_of(text)):
            own = name.rpartition(".")[2]
            for argument in [own] if own in keys else sources_of(program, guard.function, name):
                yield from (key for key in keys.get(argument, ()) if key not in _EVERYWHERE)
