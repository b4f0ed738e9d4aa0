"""The backend for several ranks on one GPU, here with tensors of the CPU: what arrives is what gloo would bring."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from te_record import by_release

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "lab/results"
PAGE = ROOT / "skills/hierarchical-context-parallel/references/transformer-engine.md"


def exchanged(rank, store):
    import torch.distributed as dist

    from megatron_hcp.proofs import shared_gpu

    shared_gpu.register()
    dist.init_process_group(shared_gpu.BACKEND, store=dist.FileStore(store, 2), rank=rank, world_size=2)
    every_other = torch.arange(8.0)[::2]
    work = dist.all_reduce(every_other, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    polled = every_other.tolist()  # nobody has waited for it
    work.wait()
    swapped = torch.empty(2)
    dist.all_to_all_single(swapped, torch.tensor([10.0, 20.0]) + rank)
    received, sent = torch.empty(1), torch.tensor([5.0 + rank])
    group = dist.new_group([0, 1])
    operations = [dist.P2POp(dist.isend, sent, 1 - rank, group), dist.P2POp(dist.irecv, received, 1 - rank, group)]
    requests = dist.batch_isend_irecv(operations)
    sent.zero_()  # what was sent is what the tensor held then
    for request in [*requests, *requests]:  # Transformer Engine's ring waits twice
        request.wait()
    gathered = [None, None]
    dist.all_gather_object(gathered, rank)
    dist.destroy_process_group()
    return polled, every_other.tolist(), swapped.tolist(), received.item(), gathered


def test_two_ranks_exchange_what_they_were_given(tmp_path):
    from megatron_hcp.proofs.procs import run_workers

    first, second = run_workers(lambda rank: exchanged(rank, str(tmp_path / "store")), 2, 60.0)
    summed = [0.0, 4.0, 8.0, 12.0]
    assert first == (summed, summed, [10.0, 11.0], 6.0, [0, 1])
    assert second == (summed, summed, [20.0, 21.0], 5.0, [0, 1])


def test_the_kernels_of_a_gpu_did_what_the_stand_ins_do_but_for_two_cells_that_the_page_names():
    measured = json.loads((RECORDS / "te_gpu.json").read_text())
    stand_ins = by_release(json.loads((RECORDS / "te_cpu.json").read_text()))[measured["release"]]
    cells, page = measured["cells"], " ".join(PAGE.read_text().split())
    found = [case.split(", ") for case, cell in cells.items() if cell["verdict"] != stand_ins[case].verdict]
    assert f"what the table says in {len(cells) - len(found)} of {len(cells)} cuDNN cells" in page
    (first, layout, _, feature), (second, *same) = found
    assert f"`{layout}` with {feature}, `{first}` and `{second}`" in page and same == [layout, "cuDNN", feature]


def test_another_gpu_did_what_the_page_says_of_it():
    measured = json.loads((RECORDS / "te_gpu_h100.json").read_text())
    stand_ins = by_release(json.loads((RECORDS / "te_cpu.json").read_text()))[measured["release"]]
    cells, page = measured["cells"], " ".join(PAGE.read_text().split())
    usual = {case: cell["verdict"] for case, cell in cells.items() if ", padding " not in case}
    others = {case for case, verdict in usual.items() if verdict != stand_ins[case].verdict}
    assert others == {"a2a, thd, cuDNN, sinks", "a2a, thd padded, cuDNN, sinks"}
    assert "one H100 did both right, and had no backend for `a2a` with packed rows and sinks" in page
    both = [case for case in cells if case.startswith(("p2p, thd padded", "all_gather, thd padded")) and "GQA" in case]
    assert len(both) == 14 and {cells[case]["verdict"] for case in both} == {"right"}
