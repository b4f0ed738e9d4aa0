"""The rank that says nothing while all others lost one or waited, by logs whose names number the ranks."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage

GLOO = "[rank{}]: RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] "
WAITED = GLOO + "Timed out waiting 25000ms for recv operation to complete\n"
LOST = GLOO + "Connection closed by peer [127.0.0.1]:1\n"


def _read(tmp_path, said, names="logs/task_{}.{}", last="step 30 loss 2.5"):
    paths = []
    for number, text in enumerate(said):
        for stream, lines in (
            ("out", f"step 20 loss 2.5\n{last if not text else 'step 30 loss 2.5'}\n"),
            ("err", text),
        ):
            path = tmp_path / names.format(number, stream)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(lines)
            paths.append(path)
    return triage(paths, CpPlan()).failure


@pytest.mark.parametrize("names", ["logs/task_{}.{}", "run/attempt_0/{}/std{}.log", "w{}-{}.log"])
@pytest.mark.parametrize(
    ("said", "last", "found"),
    [
        (WAITED, "refreshing the index", "rank-hung"),
        (LOST, "step 30 loss 2.5", "rank-gone"),
        (LOST, "no more data, leaving", "left-early"),
    ],
)
def test_the_only_rank_that_says_nothing_is_the_one(tmp_path, names, said, last, found):
    failure = _read(tmp_path, [said.format(0), said.format(1), "", said.format(3)], names, last)
    assert failure and (failure.signature.id, failure.rank, failure.message) == (found, 2, last)


def test_the_numbers_of_a_second_nodes_logs_begin_again(tmp_path):
    failure = _read(tmp_path, ["", *(LOST.format(rank) for rank in (5, 6, 7))])
    assert failure and failure.rank == 4


@pytest.mark.parametrize(
    "said",
    [
        [LOST.format(0), "", ""],
        [LOST.format(0), LOST.format(1), "", "ValueError: no such sample\n"],
        [LOST.format(0), LOST.format(3), "", LOST.format(1)],
    ],
    ids=["two are silent", "one says why", "the names number no ranks"],
)
def test_otherwise_no_rank_is_named_for_its_silence(tmp_path, said):
    failure = _read(tmp_path, said)
    assert failure and failure.signature.id not in ("rank-hung", "rank-gone", "left-early")


def test_an_interrupt_above_a_lost_peer_in_each_log_is_the_end(tmp_path):
    logs = {}
    for rank, below in ((0, "ConnectionResetError: [Errno 104] Connection reset by peer\n"), (1, "")):
        logs[rank] = tmp_path / f"rank{rank}.log"
        logs[rank].write_text(f"[rank{rank}]: KeyboardInterrupt\n{below}")
    failure = triage(list(logs.values()), CpPlan()).failure
    assert failure and failure.signature.id == "interrupted"
    logs[1].write_text("ConnectionResetError: [Errno 104] Connection reset by peer\n[rank1]: KeyboardInterrupt\n")
    failure = triage(list(logs.values()), CpPlan()).failure
    assert failure and failure.signature.id == "peer-gone", "that rank lost the other before"
