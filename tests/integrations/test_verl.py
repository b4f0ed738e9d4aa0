"""The real adapter of verl 0.9 with our plans, put in place by importing one module; in processes of its own.

verl's package is entered without its own start-up, which wants ray and vllm: only the folder is made known.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

from megatron_hcp.dcp import Setup  # noqa: E402
from megatron_hcp.dcp.rows import padded_lengths  # noqa: E402
from megatron_hcp.ground.errors import HcpError  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.upstream]

LENGTHS = [130, 20, 33, 7, 64, 91, 12, 12, 250, 3, 48, 77] + [13] * 60
"""Seven of 13 tokens fit into 100, but not seven of the 16 that TP 4 pads them to."""
VERSIONS = pytest.mark.parametrize("version", ["0.9.1"])  # 0.9.0 has the same file


class Place:
    """Stands for a process group of which only size and rank are asked."""

    def __init__(self, size: int, rank: int) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank


def entered(upstream: Path, version: str) -> Any:
    """verl.utils.dynamic_cp_scheduler, with `megatron_hcp.integrations.verl` imported as verl does."""
    package = types.ModuleType("verl")
    package.__path__ = [str(upstream / f"verl-{version}" / "verl")]
    sys.modules["verl"] = package
    importlib.import_module("megatron_hcp.integrations.verl")
    return sys.modules["verl.utils.dynamic_cp_scheduler"]


def batch_of(lengths: list[int]) -> Any:
    rows = [torch.arange(length) + 1000 * number for number, length in enumerate(lengths)]
    ids = torch.nested.nested_tensor(rows, layout=torch.jagged)
    return tensordict.TensorDict({"input_ids": ids}, batch_size=[len(lengths)])


ROWS = [Setup(), Setup(tp=4), Setup(tp=2, layout="contiguous"), Setup(tp=2, layout="contiguous", min_local_rows=40)]


@VERSIONS
def test_no_rank_of_verl_holds_more_padded_rows_than_m(ranks: Any, upstream: Path, version: str) -> None:
    """Without the tensor-parallel size a rank would have 112 rows of 100."""

    def shares_of(adapter: Any, setup: Setup) -> list[Any]:
        shares = []
        for rank in range(8):
            scheduler = adapter.DynamicCPScheduler(max_seqlen_per_dp_cp_rank=100, dp_size=4, cp_size=2)
            rows = {"tp_size": setup.tp, "cp_layout": setup.layout, "min_local_rows": setup.min_local_rows}
            for number, share in enumerate(scheduler.schedule(batch_of(LENGTHS), Place(8, rank), **rows)):
                mask, ids = share[adapter.DCP_PADDING_MASK], list(share[adapter.DCP_SAMPLE_IDS])
                starts = [int(row[0]) for row in share["input_ids"].unbind()]
                shares.append((number, ids, starts, share["local_cp_size"], len(mask), int((~mask).sum())))
        return shares

    def work(_: int) -> list[Any]:
        adapter = entered(upstream, version)
        return [shares_of(adapter, setup) for setup in ROWS]

    for setup, shares in zip(ROWS, ranks(work, size=1)[0], strict=True):
        tokens, placed = 0, set()
        for number, ids, starts, size, held, valid in shares:
            assert starts == [1000 * sample for sample in ids]
            assert held == sum(padded_lengths([LENGTHS[sample] for sample in ids], size, setup)) // size
            assert setup.min_local_rows <= held <= 100
            tokens += valid
            placed |= {(number, sample) for sample in ids}
        assert tokens == sum(LENGTHS)
        assert sorted(sample for _, sample in placed) == list(range(len(LENGTHS)))


@VERSIONS
def test_a_step_of_verl_is_collected_in_order_and_logs_its_time(ranks: Any, upstream: Path, version: str) -> None:
    def work(rank: int) -> Any:
        import torch.distributed as dist

        adapter = entered(upstream, version)
        lines: list[str] = []
        logger = logging.getLogger("megatron_hcp.integrations")
        logger.addHandler(_Lines(lines))
        for is_training in (True, False):
            with torch.set_grad_enabled(is_training):
                shares = adapter.DynamicCPScheduler(max_seqlen_per_dp_cp_rank=100, dp_size=4, cp_size=1).schedule(
                    batch_of(LENGTHS), dist.group.WORLD, tp_size=1
                )
            outputs = [
                {
                    "model_output": {"twice": share["input_ids"] * 2},
                    adapter.DCP_GROUP_LEADER: share[adapter.DCP_GROUP_LEADER],
                    adapter.DCP_SAMPLE_IDS: share[adapter.DCP_SAMPLE_IDS],
                }
                for share in shares
            ]
            collected = adapter.postprocess_dynamic_cp_batch(outputs, len(LENGTHS), dist.group.WORLD)
        return [row.tolist() for row in collected["model_output"]["twice"].unbind()], lines

    found = ranks(work, size=4)
    wanted = [(row * 2).tolist() for row in batch_of(LENGTHS)["input_ids"].unbind()]
    assert all(rows == wanted for rows, _ in found)
    assert [len(lines) for _, lines in found] == [2, 0, 0, 0]
    training, inference = found[0][1]
    assert training.startswith(f"dynamic CP, step 1: {len(LENGTHS)} sequences in ")
    # A forward pass alone is predicted to take a third of a training step.
    first, second = (float(line.split("predicted ")[1].split()[0]) for line in (training, inference))
    assert second == pytest.approx(first / 3, rel=0.01, abs=1e-3)


@VERSIONS
def test_one_rank_of_all_logs_a_step(ranks: Any, upstream: Path, version: str) -> None:
    """Every tensor-parallel slice runs the same plan, and verl collects the outputs in each."""

    def work(rank: int) -> list[str]:
        from megatron.core import parallel_state

        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        adapter = entered(upstream, version)
        lines: list[str] = []
        logging.getLogger("megatron_hcp.integrations").addHandler(_Lines(lines))
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        scheduler = adapter.DynamicCPScheduler(max_seqlen_per_dp_cp_rank=100, dp_size=2, cp_size=1)
        shares = scheduler.schedule(batch_of([90, 150, 20]), group, tp_size=2)
        names = (adapter.DCP_GROUP_LEADER, adapter.DCP_SAMPLE_IDS)
        outputs = [{"model_output": {}, **{name: share[name] for name in names}} for share in shares]
        adapter.postprocess_dynamic_cp_batch(outputs, 3, group)
        return lines

    found = ranks(work, size=4)
    assert [len(lines) for lines in found] == [1, 0, 0, 0]


@VERSIONS
def test_a_module_that_comes_after_verls_engine_is_refused(ranks: Any, upstream: Path, version: str) -> None:
    def work(_: int) -> str:
        sys.modules["verl.workers.engine.megatron.transformer_impl"] = types.ModuleType("engine")
        with pytest.raises(HcpError) as refused:
            entered(upstream, version)
        return str(refused.value)

    assert "name it in VERL_USE_EXTERNAL_MODULES before verl starts" in ranks(work, size=1)[0]


def test_a_verl_without_dynamic_cp_is_refused(ranks: Any, upstream: Path) -> None:
    def work(_: int) -> str:
        with pytest.raises(HcpError) as refused:
            entered(upstream, "0.8.0")
        return str(refused.value)

    assert "wanted verl 0.9 or newer" in ranks(work, size=1)[0]


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
