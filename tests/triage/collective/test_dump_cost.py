"""What a dump of the flight recorder costs to read: a pickle of few bytes can use a value very often."""

import pickle
import sys
import tracemalloc

import pytest

from megatron_hcp.triage.collective.flight_recorder import read_dumps


@pytest.mark.sample(3)
@pytest.mark.parametrize("field", ["frames", "ranks", "entries"])
def test_a_dump_that_uses_one_value_a_million_times_is_not_read(tmp_path, field):
    """In the pickle it stands once; its reader would go through it for each group, or each entry."""
    dump = tmp_path / "nccl_trace_rank_0"
    for count, is_read in ((1_000, False), (50, True)):
        users = [{field: list(range(30_000))}] * (count * 1_000 if field == "entries" else count)
        config = dict(zip(map(str, range(count)), users)) if field == "ranks" else {}
        whole = {"entries": [] if field == "ranks" else users, "pg_config": config}
        dump.write_bytes(pickle.dumps(whole, protocol=4))
        assert ["too often" in why for _, why in read_dumps([dump])[1]] == ([] if is_read else [True])


@pytest.mark.slow
def test_a_text_that_a_list_of_ranks_holds_many_times_is_not_written_out(tmp_path):
    dump, count, text = tmp_path / "nccl_trace_rank_0", 200_000, "123456 " * 150
    group = {"name": "a", "desc": "b", "ranks": [0, 1, *[text] * count]}
    dump.write_bytes(pickle.dumps({"entries": [], "pg_config": {"1": group}}, protocol=4))
    tracemalloc.start()
    waited, unread = read_dumps([dump])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (waited, unread) == (None, []) and peak < len(text) * count


def test_frames_that_many_entries_share_are_read_once(tmp_path):
    dump, count = tmp_path / "nccl_trace_rank_0", 1_000
    frames = [{"name": "f", "filename": "torch/distributed/c10d.py", "line": 1}] * count
    frames.append({"name": "mine", "filename": "train.py", "line": 7})
    entry = {"process_group": ["1", "dp"], "collective_seq_id": 1, "profiling_name": "nccl:all_reduce"}
    entries = [{**entry, "frames": frames[1:]}] * count
    dump.write_bytes(pickle.dumps({"entries": entries, "pg_config": {"1": {"ranks": "[0, 1]"}}}, protocol=4))
    calls = 0

    def add(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(add)
    try:
        waited, unread = read_dumps([dump])
    finally:
        sys.setprofile(None)
    assert unread == [] and waited is not None and waited.arrived == (0,)
    assert calls < 100 * count
