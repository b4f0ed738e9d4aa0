"""The backend for several ranks on one GPU, here with tensors of the CPU: what arrives is what gloo would bring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RECORDS = Path(__file__).resolve().parents[2] / "lab/results"


def exchanged(rank, store):
    import torch.distributed as dist

    from megatron_hcp.proofs import shared_gpu

    shared_gpu.register()
    dist.init_process_group(shared_gpu.BACKEND, store=dist.FileStore(store, 2), rank=rank, world_size=2)
    every_other = torch.arange(8.0)[::2]
    dist.all_reduce(every_other)
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
    return every_other.tolist(), swapped.tolist(), received.item(), gathered


def test_two_ranks_exchange_what_they_were_given(tmp_path):
    from megatron_hcp.proofs.procs import run_workers

    first, second = run_workers(lambda rank: exchanged(rank, str(tmp_path / "store")), 2, 60.0)
    assert first == ([0.0, 4.0, 8.0, 12.0], [10.0, 11.0], 6.0, [0, 1])
    assert second == ([0.0, 4.0, 8.0, 12.0], [20.0, 21.0], 5.0, [0, 1])


def test_the_kernels_of_a_gpu_did_what_the_stand_ins_do_but_for_two_cells_that_the_page_names():
    measured = json.loads((RECORDS / "te_gpu.json").read_text())
    table = json.loads((RECORDS / "te_cpu.json").read_text())
    assert table["releases"][-1] == measured["release"]
    stand_ins = {case: entries[-1]["verdict"] for case, entries in table["cases"].items()}
    assert {case for case, cell in measured["cells"].items() if cell["verdict"] != stand_ins[case]} == {
        "p2p, thd padded, cuDNN, GQA",
        "all_gather, thd padded, cuDNN, GQA",
    }
    assert len(measured["cells"]) == 87
