"""Context-parallel attention gives the same results as attention in one process.

Every communication type (p2p, all_gather, a2a, and a2a+p2p for each --sizes) runs forward and backward over a zigzag
of the sequence, and is compared with torch's scaled_dot_product_attention on the whole batch: output, dq, dk, dv; for
MHA, GQA and MQA; for sbhd, bshd and packed thd with padding.

float64: the largest error, relative to the largest value, is at most 1e-10.
float32, bfloat16: the root mean square of the error against float64 is at most twice that of torch's attention in the
same precision.

Numbers of heads that an all-to-all cannot divide (HCP007) must be rejected with an error that names them.

With --attention transformer-engine-cpu, the same comparison runs on Transformer Engine's own class and its own choice
of backend, from an unpacked wheel with stand-ins for its kernels, in float64.

With --attention transformer-engine, it runs on GPUs with Transformer Engine's class instead of ours: nccl, one GPU per
process, and by default bfloat16 with sbhd and bshd, which its context-parallel backends accept in every version.
"""

import sys
from itertools import product
from math import prod
from typing import Any, NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.proofs.arguments import REFERENCE, TE, TE_CPU, add_attention, add_sizes
from megatron_hcp.proofs.program import Program

HEADS = {"MHA": (8, 8), "GQA": (8, 4), "MQA": (8, 1)}
LAYOUTS = ["sbhd", "bshd", "thd"]
DTYPES = ["float64", "float32", "bfloat16"]
BOUND = 1e-10
BOUND_RATIO = 2.0


def add_arguments(parser):
    add_sizes(parser)
    add_attention(parser)
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, help="default: all; with transformer-engine sbhd bshd")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, help="default: all; with transformer-engine bfloat16")


def world_size(options):
    return prod(options.sizes[0])


class Way(NamedTuple):
    """One way to compute attention: its name in the results, the process group or groups, the size of its a2a."""

    name: str
    comm_type: str
    group: Any
    a2a_size: int


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    import torch

    from megatron_hcp.proofs.compare import AttentionCase, errors_of
    from megatron_hcp.proofs.te_attention import dot_product_attention_class
    from megatron_hcp.runtime.groups import GroupBuilder

    is_ours = options.attention == REFERENCE
    layouts = options.layouts or (["sbhd", "bshd"] if options.attention == TE else LAYOUTS)
    dtypes = options.dtypes or {REFERENCE: DTYPES, TE_CPU: ["float64"], TE: ["bfloat16"]}[options.attention]
    attention_class = dot_product_attention_class(options.attention)
    everyone = list(range(world.size))

    def errors_in(way, case):
        attention = attention_class(case.num_heads, case.head_dim, num_gqa_groups=case.kv_heads)
        attention.set_context_parallel_group(way.group, everyone, world.stream(), way.comm_type)
        return errors_of(case, attention, world.device)

    with GroupBuilder(world.timeout) as builder:
        flat = builder.build([everyone], "CONTEXT_PARALLEL_GROUP")
        ways = [
            Way("p2p", "p2p", flat, 1),
            Way("all_gather", "all_gather", flat, 1),
            Way("a2a", "a2a", flat, world.size),
        ]
        for sizes in options.sizes:
            levels = builder.build_levels([everyone], sizes)
            ways.append(Way(f"a2a+p2p {list(sizes)}", "a2a+p2p", levels, sizes[0]))
        for way in ways:
            legal = {name: heads for name, heads in HEADS.items() if heads[1] % way.a2a_size == 0}
            for dtype in dtypes:
                cases = {
                    f"{layout} {name}": AttentionCase(
                        layout, *heads, getattr(torch, dtype), world.size, stretch=8 if options.attention == TE else 1
                    )
                    for layout, (name, heads) in product(layouts, legal.items())
                }
                errors = {name: errors_in(way, case) for name, case in cases.items()}
                report(world, f"{way.name} {dtype}", errors, is_exact=dtype == "float64")
            for name, heads in HEADS.items() if is_ours else ():
                if name not in legal:
                    said = refusal(errors_in, way, AttentionCase("sbhd", *heads, torch.float64, world.size))
                    world.expect(f"{way.name} refuses {name}", "heads" in said, said)


def report(world, name, errors, is_exact):
    measured = {case: max((e.largest if is_exact else e.ratio).values()) for case, e in errors.items()}
    worst = max(measured, key=lambda case: measured[case])
    detail = f"{len(errors)} cases, worst {worst}: {errors[worst]}"
    if is_exact:
        world.expect_at_most(name, measured[worst], BOUND, detail)
    else:
        world.expect_at_most(f"{name}, times torch's error", measured[worst], BOUND_RATIO, detail)


def refusal(attempt, *arguments):
    try:
        attempt(*arguments)
    except HcpError as error:
        return str(error)
    return "it ran"


if __name__ == "__main__":
    sys.exit(
        Program(
            "attention_parity", __doc__, work, world_size=world_size, needs=("torch",), add_arguments=add_arguments
        ).main()
    )
