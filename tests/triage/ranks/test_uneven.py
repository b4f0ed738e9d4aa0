"""Logs of one job that count to different numbers of steps."""

import pytest

from megatron_hcp.triage.course.kinds import counted_of
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage

LOST = (
    "[rank{}]: RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 25000ms for recv operation\n"
)
STEP = "iteration {:8d}/{:8d} | lm loss: 2.5\n"


def _read(tmp_path, courses):
    paths = []
    for node, (last, total) in enumerate(courses):
        paths.append(tmp_path / f"node-{'ab'[node]}.log")
        steps = "".join(STEP.format(step, total) for step in range(1, last + 1))
        paths[-1].write_text(steps + LOST.format(node))
    return triage(paths, CpPlan())


def test_a_node_that_was_done_left_the_one_that_counts_further(tmp_path):
    failure = _read(tmp_path, [(12, 24), (12, 12)]).failure
    assert failure and failure.signature.id == "steps-differ"
    assert "node-a.log: 12 of 24" in failure.cause
    assert "node-b.log: 12 of 12" in failure.cause


@pytest.mark.parametrize("courses", [[(12, 24), (12, 24)], [(24, 24), (24, 24)], [(12, 24), (9, 30)]])
def test_where_none_was_done_before_the_others_the_wait_is_reported(tmp_path, courses):
    failure = _read(tmp_path, courses).failure
    assert failure and failure.signature.id == "gloo-timeout"


def test_dates_and_sizes_are_no_counts():
    assert counted_of(b"10/12/2026 step 3/30 | 1.5/2.0 GiB | data/7/x") == ((3, 30),)


def test_a_peer_that_is_gone_after_the_last_step_is_no_error(tmp_path):
    gone = (
        "[rank1]:[E509 10:36:07.688895560 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=1): got 0 bytes\n"
    )
    log = tmp_path / "run.log"
    states = []
    for total in (4, 5):
        log.write_text("".join(STEP.format(step, total) for step in range(1, 5)) + gone)
        states.append(triage([log], CpPlan()).state)
    assert states[0] == "no-failure"
    assert states[1] == "unclear"
