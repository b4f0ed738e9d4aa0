"""Compressed logs: what they hold is read as if it were not compressed, in bounded pieces; what cannot be is named."""

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable

import pytest

from megatron_hcp.triage.inputs.compressed import Unreadable, unpacked
from megatron_hcp.triage.inputs.sources import find_logs
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import left_out
from support.logs import STEP

WAITING = b"".join(b"0: INFO: waiting %d\n" % n for n in range(30_000))
FAILED = WAITING + b"3: [rank3]: RuntimeError: CUDA out of memory.\n"
HEALTHY = "".join(STEP.format(s=s, speed=400.0) for s in range(5)).encode()
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def _triage(path):
    found = find_logs([str(path)])
    return found, triage(found.paths, CpPlan())


@pytest.mark.sample(2)
@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_log_is_read_to_its_end(tmp_path, ending):
    path = tmp_path / f"job.log.{ending}"
    path.write_bytes(PACKERS[ending](FAILED))
    assert _triage(path)[1].failure.rank == 3
    path.write_bytes(PACKERS[ending](FAILED[:300_000]) + PACKERS[ending](FAILED[300_000:]))
    failure = _triage(path)[1].failure
    assert (failure.rank, failure.line) == (3, 30_001), "streams that were appended are one text"


@pytest.mark.sample(2)
@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_log_that_is_cut_off_ends_there(tmp_path, ending):
    """One that is still written, or a copy that broke off."""
    noise = b"".join(b"0: step of batch %d\n" % (n * 7919 % 100_003) for n in range(60_000))
    path = tmp_path / f"job.log.{ending}"
    path.write_bytes(PACKERS[ending](FAILED[-60:] + noise)[:-200])
    assert _triage(path)[1].failure.rank == 3


def test_a_broken_compressed_log_is_named_and_what_was_readable_is_read(tmp_path):
    noise = b"".join(b"0: step of batch %d\n" % (n * 7919 % 100_003) for n in range(60_000))
    packed = bytearray(gzip.compress(FAILED[-60:] + noise))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    (tmp_path / "a.log.gz").write_bytes(bytes(packed))
    diagnosis = _triage(tmp_path)[1]
    assert diagnosis.failure.rank == 3
    assert any("not read to its end: its gzip data is broken" in item for item in left_out(diagnosis, None))


def test_a_compressed_log_beside_a_healthy_one_is_not_passed_over(tmp_path):
    (tmp_path / "a.log").write_bytes(HEALTHY)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(FAILED))
    assert _triage(tmp_path)[1].failure.rank == 3


def test_a_log_compressed_with_zstd_is_read_where_its_package_is_installed(tmp_path, monkeypatch):
    zstd = pytest.importorskip("backports.zstd")
    (tmp_path / "a.log").write_bytes(HEALTHY)
    (tmp_path / "b.log.zst").write_bytes(zstd.compress(FAILED))
    assert _triage(tmp_path)[1].failure.rank == 3
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    found, diagnosis = _triage(tmp_path)
    assert diagnosis.failure is None
    assert [(path.name, "megatron-hcp[logs]" in why) for path, why in found.unread] == [("b.log.zst", True)]


@pytest.mark.slow
def test_a_few_bytes_that_stand_for_gigabytes_are_read_in_pieces():
    packed = lzma.compress(b"\n" * (64 << 20))
    assert len(packed) < 20_000
    file, start = unpacked(io.BytesIO(packed[100:]), packed[:100], 4096)
    assert len(start) <= 4096 and len(file.read(4 << 20) or b"") <= 1 << 20


@pytest.mark.slow
def test_a_header_that_asks_for_more_memory_than_any_log_needs_is_refused():
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    packer = lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=filters) if sys.maxsize > 1 << 40 else None
    packed = (packer.compress(b"x") + packer.flush()) if packer else b""
    with pytest.raises(Unreadable, match="broken"):
        unpacked(io.BytesIO(b""), packed, 4096)


def test_the_parts_of_a_rotated_log_are_read_in_the_order_of_time(tmp_path):
    for name in ("job.log", "job.log.1", "job.log.10.gz", "job.log.2.gz", "a.log"):
        (tmp_path / name).write_bytes(gzip.compress(b"x\n") if name.endswith(".gz") else b"x\n")
    found = find_logs([str(tmp_path)])
    assert [path.name for path in found.paths] == ["a.log", "job.log.10.gz", "job.log.2.gz", "job.log.1", "job.log"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_told_without_its_mark(tmp_path, encoding):
    (tmp_path / "job.log").write_bytes("loading\n[rank3]: ValueError: no such dataset\n".encode(encoding))
    assert _triage(tmp_path / "job.log")[1].failure.rank == 3
    (tmp_path / "weights").write_bytes(b"a\0\0\0" * 100)
    assert _triage(tmp_path)[1].failure.rank == 3
