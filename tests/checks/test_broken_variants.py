"""A stand-in, or a step of attention or training, is broken: a proof on Transformer Engine's code sees it.

Each variant is wrong in one place, runs to its end, and would be right in all others. The proofs run as they are.
"""

from __future__ import annotations

import pytest

from support.programs import run_broken

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow, pytest.mark.xdist_group("te_forks")]

ON_TE = ("--attention", "transformer-engine-cpu")
SBHD = ("attention_parity", *ON_TE, "--layouts", "sbhd")
THD = ("attention_parity", *ON_TE, "--layouts", "thd")
TRAIN = ("training_step", *ON_TE, "--steps", "1")
P2P, GATHER, A2A, HCP = "p2p float64", "all_gather float64", "a2a float64", "a2a+p2p [2, 2] float64"
RINGS, ALL = [P2P, HCP], [P2P, GATHER, A2A, HCP]

KERNELS = "from megatron_hcp.proofs.te_cpu import cudnn, kernels, thd\nimport torch\n"
CP = (
    "import sys, torch, transformer_engine_torch as tex\n"
    "cp = sys.modules['transformer_engine.pytorch.attention.dot_product_attention.context_parallel']\n"
)
BROKEN: dict[str, tuple[tuple[str, ...], str, list[str]]] = {
    "the kernel sees later keys": (
        SBHD,
        KERNELS + "seen = cudnn._seen\ncudnn._seen = lambda *args: torch.ones_like(seen(*args))",
        ALL,
    ),
    "the kernel's log-sum-exp is off": (
        SBHD,
        KERNELS + "attend = cudnn.attend\n"
        "def off(*args):\n    out, lse = attend(*args)\n    return out, lse + 0.1\n"
        "cudnn.attend = off",
        ALL,
    ),
    "the kernel's backward forgets the row sums": (
        SBHD,
        KERNELS + "kernels._row_sums = lambda dout, out: torch.zeros(out.shape[:-1], dtype=torch.float64)",
        ALL,
    ),
    "grouped heads' gradients are averaged": (
        SBHD,
        KERNELS + "kernels._for_each_kv_head = lambda g, x: g.unflatten(1, (x.shape[1], -1)).mean(2).to(x.dtype)",
        ALL,
    ),
    "the kernel's scale is another": (
        SBHD,
        KERNELS + "cudnn._scale = lambda q, rest: 0.5",
        ALL,
    ),
    "the kernel does not know where sequences end": (
        THD,
        KERNELS + "from megatron_hcp.proofs.te_cpu import visible\n"
        "cudnn.Bounds = lambda starts, real: visible.Bounds(starts[[0, -1]], starts[[0, -1]])",
        ALL,
    ),
    "packed: the other half is read": (
        THD,
        CP + "read = tex.thd_read_half_tensor\ntex.thd_read_half_tensor = lambda x, cu, half: read(x, cu, 1 - half)",
        RINGS,
    ),
    "packed: outputs are added without weights": (
        THD,
        KERNELS + "thd._weighed = lambda rows, log_weight: rows",
        RINGS,
    ),
    "packed: the second half's log-sum-exp is not merged": (
        THD,
        CP + "tex.thd_second_half_lse_correction = lambda *args: None",
        RINGS,
    ),
    "packed: gradients replace what they should add to": (
        THD,
        CP + "correct = tex.thd_grad_correction\n"
        "tex.thd_grad_correction = lambda g, step, cu, first, second: correct(\n"
        "    g, step, cu, first.replace('add', 'copy'), second.replace('add', 'copy'))",
        RINGS,
    ),
    "packed: gathered rows stay in the order of the ranks": (
        THD,
        CP + "tex.thd_cp_rank_order_to_sequence_order = lambda x, *args: x",
        [GATHER, A2A, HCP],
    ),
    "the ring sends nothing": (
        SBHD,
        CP + "def keep(rank, send, dst, recv, src, *args):\n    recv.copy_(send)\n    return []\n"
        "cp.flash_attn_p2p_communicate = keep",
        RINGS,
    ),
    "the all-to-all mixes up the heads": (
        SBHD,
        CP + "exchange = torch.distributed.all_to_all_single\n"
        "def reversed_parts(out, given, *args, **kwargs):\n"
        "    return exchange(out, given.flip(0).contiguous(), *args, **kwargs)\n"
        "torch.distributed.all_to_all_single = reversed_parts",
        [A2A, HCP],
    ),
    "the batch is not cut in a zigzag": (
        TRAIN,
        "import megatron.core.utils as utils, torch\n"
        "from megatron.core import parallel_state as state\n"
        "def in_runs(batch, cp_group=None):\n"
        "    size, rank = state.get_context_parallel_world_size(), state.get_context_parallel_rank()\n"
        "    return {name: x.chunk(size, dim=1)[rank] for name, x in batch.items()}\n"
        "utils.get_batch_on_this_cp_rank = in_runs",
        ["TP 1 CP 4 a2a+p2p [2, 2]: loss"],
    ),
    "gradients are not summed over CP": (
        TRAIN,
        "import torch.distributed as dist\n"
        "from megatron.core.distributed import param_and_grad_buffer as buffers\n"
        "buffers._ParamAndGradBucketGroup.finish_grad_sync = lambda self, *args, **kwargs: None\n"
        "buffers._ParamAndGradBucketGroup.start_grad_sync = lambda self, *args, **kwargs: None",
        ["TP 1 CP 4 a2a+p2p [2, 2]: gradients"],
    ),
    "the rotary positions are those of the first rank": (
        TRAIN,
        "from megatron.core.models.common.embeddings import rotary_pos_embedding as rotary\n"
        "import torch\n"
        "def first(emb, dim, group=None):\n"
        "    return emb.narrow(dim, 0, emb.shape[dim] // torch.distributed.get_world_size(group))\n"
        "rotary.get_pos_emb_on_this_cp_rank = first",
        ["TP 1 CP 4 a2a+p2p [2, 2]: loss"],
    ),
}


@pytest.fixture(scope="module")
def broken():
    return run_broken({name: (list(words), patch) for name, (words, patch, _) in BROKEN.items()})


@pytest.mark.parametrize("name", BROKEN)
def test_a_proof_sees_what_is_broken(broken, name: str) -> None:
    ran = broken[name]
    assert ran.code == 1, ran.stderr
    failed = set(ran.failed())
    assert failed >= set(BROKEN[name][2]), ran.stderr[-2000:] or failed
    if BROKEN[name][0][0] == "attention_parity":
        assert failed == set(BROKEN[name][2]), "the others do not depend on it"
