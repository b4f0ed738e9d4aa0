"""A line that says itself that it is a warning is no failure; NCCL's count until NCCL works."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

ABI = "/opt/lib/x.so: undefined symbol: _ZN2at4_ops5emptyE"
WARNED = "n1:41:77 [0] NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\n"
UP = "n1:{pid}:78 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1000 commId 0x2 - Init COMPLETE\n"


def _failure(tmp_path, text):
    return triage(write_logs(tmp_path, a_log=text), CpPlan()).failure


@pytest.mark.parametrize("kind", ["UserWarning", "RuntimeWarning", "Warning"])
def test_what_python_warns_of_is_no_failure(tmp_path, kind):
    warned = f"/opt/my site/ops.py:12: {kind}: could not load it: {ABI}\n  warnings.warn(text)\n"
    assert _failure(tmp_path, warned) is None
    assert _failure(tmp_path, warned + f"ImportError: {ABI}\n").line == 3
    assert _failure(tmp_path, warned.replace(f"{kind}: ", "")).signature.id == "abi-mismatch"


def test_what_nccl_warned_of_before_it_worked_in_the_same_process_is_no_failure(tmp_path):
    assert _failure(tmp_path, WARNED).signature.id == "gpu-driver"
    assert _failure(tmp_path, WARNED + UP.format(pid=41)) is None
    assert _failure(tmp_path, WARNED + UP.format(pid=42)).signature.id == "gpu-driver"
    assert _failure(tmp_path, WARNED + UP.format(pid=41) + WARNED).line == 3


def test_where_one_process_of_nccl_comes_up_what_others_said_still_counts(tmp_path):
    memory = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    after = _failure(tmp_path, WARNED + memory + UP.format(pid=41))
    assert after and (after.signature.id, after.rank, after.line) == ("gpu-memory", 1, 2)
    other = WARNED.replace("n1:41:77", "n1:42:79")
    warned = _failure(tmp_path, WARNED + other + UP.format(pid=41))
    assert warned and (warned.signature.id, warned.line) == ("gpu-driver", 2)
    assert _failure(tmp_path, WARNED + other + UP.format(pid=41) + UP.format(pid=42)) is None
    assert _failure(tmp_path, WARNED + memory + UP.format(pid=41) + WARNED).line == 2


@pytest.mark.slow
def test_the_warnings_of_many_processes_leave_room_for_the_cause(tmp_path):
    memory = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    lost = "n1:{pid}:{pid} [0] NCCL WARN socketProgress: Connection closed by remote peer n2<40000>\n"
    warned = "".join(lost.format(pid=pid) for pid in range(1000, 1300))
    assert _failure(tmp_path, warned + memory).signature.id == "gpu-memory"
