"""The programs on resharding, FSDP2, offloading and Mamba notice what is broken."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_resharding_notices_optimizer_states_that_do_not_arrive(forked):
    ran = forked(
        "resharding",
        patch="from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer as D\n"
        "load = D.load_state_dict\n"
        "def lose(self, state):\n"
        "    load(self, state)\n"
        "    for moments in self.optimizer.state.values():\n"
        "        moments['exp_avg'].zero_()\n"
        "D.load_state_dict = lose\n",
    )
    assert ran.code == 1
    assert {name.partition(":")[0] for name in ran.failed()} == {"fully_reshardable", "dp_reshardable"}


def test_fsdp2_over_the_data_parallel_ranks_alone_is_noticed(forked):
    ran = forked(
        "fsdp_context_parallel",
        patch="from megatron.core import parallel_state\n"
        "whole = parallel_state.get_data_parallel_group\n"
        "import megatron.core.distributed.torch_fully_sharded_data_parallel as f\n"
        "import types\n"
        "f.parallel_state = types.SimpleNamespace(\n"
        "    get_data_parallel_group=lambda with_context_parallel: whole(with_context_parallel=False))\n",
    )
    assert ran.code != 0


def test_offloading_notices_a_refusal_that_is_gone(forked):
    ran = forked(
        "offloading_refusals",
        patch="from megatron.core.transformer.transformer_config import TransformerConfig as T\n"
        "check = T.__post_init__\n"
        "def silent(self):\n"
        "    try:\n        check(self)\n"
        "    except ValueError as error:\n"
        "        if 'Pipeline' not in str(error):\n            raise\n"
        "T.__post_init__ = silent\n",
    )
    assert (ran.code, ran.failed()) == (1, ["layers, pipeline: refused"])


@pytest.mark.parametrize(
    ("patch", "failed"),
    [
        (
            "import megatron.core.ssm.mamba_context_parallel as m\n"
            "m._undo_attention_load_balancing = lambda rows, *rest: rows\n",
            ["2 groups: whole rows in order", "2 groups: recurrence of one process"],
        ),
        (
            "import megatron.core.ssm.mamba_context_parallel as m\n"
            "m._redo_attention_load_balancing = lambda rows, *rest: rows\n",
            ["2 groups: recurrence of one process"],
        ),
    ],
    ids=["zigzag stays", "order stays"],
)
def test_mamba_rows_in_another_order_are_noticed(forked, patch, failed):
    ran = forked("mamba_exchange", patch=patch)
    assert (ran.code, ran.failed()) == (1, [*failed, *(name.replace("2", "8", 1) for name in failed)])
