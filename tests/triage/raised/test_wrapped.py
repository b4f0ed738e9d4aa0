"""Messages that a terminal or a pipe broke into several lines."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs

DIED = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: f8ab Node "
    "ID: 09d0 Worker PID: 1508038 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. Worker "
    "exits with an exit code None. The worker may have exceeded K8s pod memory limits."
)
MEMORY = (
    "(raylet) [2026-11-21 10:00:00,000 E 1 1] (raylet) node_manager.cc:3096: 1 Workers (tasks / actors) killed due to "
    "memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: ab, IP: 10.0.0.2)"
)
NODE = (
    "(raylet) The node with node id: 510c08bfbe1181a04dfcf3cc7c256a189ea984a70293efbe2257c20a and address: 10.0.0.7 "
    "and node name: 10.0.0.7 has been marked dead because the detector has missed too many heartbeats from it."
)


def _broken(text, width):
    """The text in lines of at most so many characters, broken between words."""
    lines = [""]
    for word in text.split():
        lines.append(word) if len(lines[-1]) + len(word) >= width else lines.append(f"{lines.pop()} {word}".strip())
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("width", [1000, 140, 120, 110, 100, 90])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [(DIED, {"ray-worker-exit", "ray-worker-died"}), (MEMORY, {"ray-memory"}), (NODE, {"ray-node-died"})],
    ids=["died", "memory", "node"],
)
def test_what_the_raylet_says_is_read_however_it_was_wrapped(tmp_path, text, wanted, width):
    failure = triage(write_logs(tmp_path, a_log="step\n" + _broken(text, width) + "bye\n"), CpPlan()).failure
    assert failure is not None and failure.signature.id in wanted


def test_lines_of_others_or_short_ones_are_not_put_together(tmp_path):
    first, rest = "1 Workers (tasks / actors)", "killed due to memory pressure (OOM)\n"
    long = f"(raylet, ip=10.0.0.1) {'x' * 60} {first}\n"
    assert triage(write_logs(tmp_path, a_log=long + f"(raylet, ip=10.0.0.1) {rest}"), CpPlan()).failure is not None
    assert triage(write_logs(tmp_path, a_log=f"{first}\n{rest}"), CpPlan()).failure is None
    other = long.replace("(raylet, ip=10.0.0.1)", "(Worker pid=3)") + f"(Worker pid=4) {rest}"
    assert triage(write_logs(tmp_path, a_log=other), CpPlan()).failure is None
