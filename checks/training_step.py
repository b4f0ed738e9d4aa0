"""Training with hierarchical CP gives the same losses and gradients as training without context parallelism.

megatron-core's own GPTModel, data split, DDP, schedule and Adam train on the same data twice, from the same weights:
with CP 1, and with CP over all processes, a2a+p2p with --sizes and the other --types. The mean loss and the gradient of
every parameter must agree in every step. Then the same with TP 2 and half the CP, and with --hybrid also for the hybrid
model. The reference runs on our attention. Sequence parallelism is off, because torch's LayerNorm, which replaces
Transformer Engine's and Apex's compiled ones, does not support it.

float64 (default): the model is in float64, and megatron-core takes the cross-entropy in fp32. Relative errors of the
loss, and of each gradient in the 2-norm, are at most 1e-10, as both trainings round the same logits to the same fp32.

bfloat16 (the default of --attention transformer-engine): one step, without optimizer. The error of each gradient
against a float64 model with the same weights is at most twice that of bfloat16 training without context parallelism.
"""

import contextlib
import sys
from math import prod

from megatron_hcp.proofs.arguments import REFERENCE, TE, add_attention, add_sizes
from megatron_hcp.proofs.program import Program

BOUND = 1e-10
BOUND_RATIO = 2.0


def add_arguments(parser):
    add_sizes(parser)
    add_attention(parser)
    parser.add_argument(
        "--dtype", choices=["float64", "bfloat16"], help="default: float64; with transformer-engine bfloat16"
    )
    parser.add_argument(
        "--types", nargs="*", choices=["p2p", "all_gather", "a2a"], default=[], help="more types (default: none)"
    )
    parser.add_argument(
        "--hybrid", action="store_true", help="also the model with attention and MLP as separate layers"
    )
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps (default: %(default)s)")


def world_size(options):
    return prod(options.sizes[0])


def work(world, options):
    # Imported here, so that --help and "torch is not installed" work without torch.
    from megatron_hcp.proofs.megatron import cpu_megatron

    is_exact = (options.dtype or ("bfloat16" if options.attention == TE else "float64")) == "float64"
    compare = compare_exactly if is_exact else compare_in_bfloat16
    half = world.size // 2
    half_layout = {"tp": 2, "cp": half, "hcp_sizes": (2, half // 2)} if half >= 4 else {"tp": 2, "cp": half}
    layouts = [
        *({"cp": world.size, "hcp_sizes": sizes} for sizes in options.sizes),
        *({"cp": world.size, "comm": comm} for comm in options.types),
        half_layout,
    ]
    if options.hybrid:
        layouts.append({"cp": world.size, "hcp_sizes": options.sizes[0], "model": "hybrid"})
    with cpu_megatron() if world.device.type == "cpu" else contextlib.nullcontext():
        for layout in layouts:
            compare(world, options, layout)


def compare_exactly(world, options, layout):
    import torch

    alone = trained_alone(world, options, layout.get("tp", 1), layout.get("model", "GPT"))
    found, num_active = trained(world, options, layout, torch.float64, options.steps)
    name = describe(layout)
    if "hcp_sizes" in layout:
        world.expect(f"{name}: hierarchical CP is active", num_active > 0, f"in {num_active} attention modules")
    loss = max(abs(a.loss_mean - b.loss_mean) / b.loss_mean for a, b in zip(found, alone))
    world.expect_at_most(f"{name}: loss", loss, BOUND, " -> ".join(f"{step.loss_mean:.6f}" for step in found))
    errors = {
        param: max(relative(a.grads[param], b.grads[param]) for a, b in zip(found, alone)) for param in alone[0].grads
    }
    worst = max(errors, key=lambda param: errors[param])
    world.expect_at_most(
        f"{name}: gradients", errors[worst], BOUND, f"{len(errors)} parameters, {options.steps} steps, worst {worst}"
    )
    world.expect(f"{name}: it learns", found[-1].loss_mean < found[0].loss_mean or options.steps == 1)


ALONE: dict = {}


def trained_alone(world, options, tp, model):
    """The steps without CP on our attention, once for each TP size and model."""
    import torch

    if (tp, model) not in ALONE:
        steps, _ = trained(world, options, {"tp": tp, "cp": 1, "model": model}, torch.float64, options.steps)
        ALONE[tp, model] = steps
    return ALONE[tp, model]


def compare_in_bfloat16(world, options, layout):
    import torch

    tp = layout.get("tp", 1)
    (alone,), _ = trained(world, options, {"tp": tp, "cp": 1}, torch.bfloat16, 1)
    (found,), _ = trained(world, options, layout, torch.bfloat16, 1)
    (truth,), _ = trained(world, options, {"tp": tp, "cp": 1}, torch.float64, 1, rounded=torch.bfloat16)
    name = describe(layout)
    loss = abs(found.loss_mean - truth.loss_mean) / truth.loss_mean
    baseline = abs(alone.loss_mean - truth.loss_mean) / truth.loss_mean
    ratios = {
        param: relative(found.grads[param], truth.grads[param]) / relative(alone.grads[param], truth.grads[param])
        for param in truth.grads
    }
    worst = max(ratios, key=lambda param: ratios[param])
    world.expect_at_most(
        f"{name}: gradients, times the error of CP 1",
        ratios[worst],
        BOUND_RATIO,
        f"{len(ratios)} parameters, worst {worst}; loss off by {loss:.1e}, CP 1's by {baseline:.1e}",
    )


def trained(world, options, layout, dtype, num_steps, rounded=None):
    """The steps of one training, and in how many attention modules hierarchical CP is active."""
    import torch

    from megatron_hcp.proofs.gpt import build_gpt, build_hybrid, train, transformer_config
    from megatron_hcp.proofs.gpt_data import GptShape
    from megatron_hcp.proofs.megatron import model_parallel
    from megatron_hcp.proofs.te_attention import core_attention_class
    from megatron_hcp.runtime.active import assert_hcp_active

    # As many KV heads as ranks, so that every communication type can divide them.
    shape = GptShape(
        hidden_size=16 * world.size,
        heads=2 * world.size,
        kv_heads=world.size,
        seq_length=16 * world.size,
        global_batch_size=world.size,
    )
    if world.device.type == "cuda":  # GPU kernels need longer chunks and wider heads
        shape = shape._replace(seq_length=256 * world.size, hidden_size=512)
    is_hierarchical = "hcp_sizes" in layout
    groups = {name: layout[name] for name in ("tp", "cp", "hcp_sizes") if name in layout}
    with model_parallel(**groups, timeout=world.timeout):
        config = transformer_config(
            shape,
            dtype=dtype,
            tensor_model_parallel_size=layout.get("tp", 1),
            context_parallel_size=layout["cp"],
            cp_comm_type="a2a+p2p" if is_hierarchical else layout.get("comm", "p2p"),
            hierarchical_context_parallel_sizes=list(layout["hcp_sizes"]) if is_hierarchical else None,
        )
        # The reference is our attention in one process, unless two bfloat16 trainings are compared.
        is_truth = rounded or (dtype == torch.float64 and layout["cp"] == 1)
        core_attention = core_attention_class(REFERENCE if is_truth else options.attention)
        build = build_hybrid if layout.get("model") == "hybrid" else build_gpt
        model = build(config, shape, core_attention, world.device)
        if rounded:
            model.to(rounded).to(dtype)
        num_active = assert_hcp_active(model) if is_hierarchical else 0
        return list(train(config, model, shape, world.device, num_steps)), num_active


def describe(layout):
    comm = f"a2a+p2p {list(layout['hcp_sizes'])}" if "hcp_sizes" in layout else layout.get("comm", "p2p")
    model = f"{layout['model']} " if "model" in layout else ""
    return f"{model}TP {layout.get('tp', 1)} CP {layout['cp']} {comm}"


def relative(found, wanted):
    return ((found.double() - wanted.double()).norm() / wanted.double().norm()).item()


if __name__ == "__main__":
    sys.exit(
        Program(
            "training_step",
            __doc__,
            work,
            world_size=world_size,
            needs=("torch", "megatron.core", "einops"),
            add_arguments=add_arguments,
        ).main()
    )
