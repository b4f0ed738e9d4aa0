"""Our plans in the installed megatron-core: its real wrapper of the data loader on gloo, and a script run with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core.datasets.data_schedule")  # here, so that the ranks need not each import it

from megatron_hcp.dcp import ASSUMED_COST  # noqa: E402
from megatron_hcp.dcp.adapter import Limits, plan_within  # noqa: E402

pytestmark = pytest.mark.torch

LENGTHS = [[24, 8], [40, 16], [8, 8, 8], [56]]
"""Of the sequences in the packed sample that each of four data-parallel ranks reads; padded to 2 x DP x CP already."""


def _rerouted(rank: int) -> Any:
    from types import SimpleNamespace

    from megatron_hcp.proofs.megatron import cpu_megatron, model_parallel

    with cpu_megatron(), model_parallel():
        from megatron.core.datasets.data_schedule import HybridCPDataLoaderWrapper

        import megatron_hcp.integrations.megatron  # noqa: F401

        lengths = LENGTHS[rank]
        starts = torch.tensor([0, *lengths]).cumsum(0)
        tokens = torch.cat([torch.arange(length) + 1000 * rank + 100 * i for i, length in enumerate(lengths)])
        config = SimpleNamespace(max_seqlen_per_dp_cp_rank=24, sequence_parallel=False, context_parallel_size=1)
        wrapper = HybridCPDataLoaderWrapper(iter([[{"tokens": tokens, "cu_seqlens": starts}]]), config)
        samples, ids = next(wrapper)
        return ids, {int(key): sample["tokens"].tolist() for key, sample in samples.items()}


def test_the_installed_wrapper_routes_samples_by_our_plan(ranks: Any) -> None:
    lengths = [length for of_rank in LENGTHS for length in of_rank]
    plan = plan_within(lengths, Limits(24, 4, groups="main"), ASSUMED_COST)
    wanted = [[list(group.samples) for group in batch.groups for _ in group.ranks] for batch in plan.micro_batches]
    whole = [
        [1000 * rank + 100 * i + place for place in range(length)]
        for rank, of_rank in enumerate(LENGTHS)
        for i, length in enumerate(of_rank)
    ]
    for rank, (ids, samples) in enumerate(ranks(_rerouted, size=4)):
        assert ids == wanted
        mine = {sample for batch in wanted for sample in batch[rank]}
        assert samples == {sample: whole[sample] for sample in mine}


def test_a_script_runs_as_by_python_with_the_scheduler_replaced(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, beside\n"
        "from megatron.core.datasets import data_schedule\n"
        "print(__name__, sys.argv[1:], beside.WORD, data_schedule.BalancedCPScheduler.__module__)\n"
    )
    command = [sys.executable, "-m", "megatron_hcp.integrations.megatron", str(script), "--lr", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.stdout == "__main__ ['--lr', '1'] found megatron_hcp.integrations.megatron\n", done.stderr


def test_a_script_that_does_not_exist_is_named_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "megatron_hcp.integrations.megatron", "--lr", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    line = "megatron_hcp.integrations.megatron: '--lr' is no file; wanted the training script"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, line)
    assert "Traceback" not in done.stderr
