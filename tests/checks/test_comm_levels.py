"""checks/comm_levels.py: passes where the groups talk, and notices where they do not."""

import json
import subprocess
import sys

import pytest

from support.processes import HANG_S

pytestmark = pytest.mark.torch


def _run(program, *words, ranks=4):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(program),
            "--timeout",
            str(HANG_S),
            "--megabytes",
            "0.01",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    events = [json.loads(line.partition(": ")[2]) for line in done.stdout.splitlines() if line.startswith("hcp-job: ")]
    return done, events


def test_both_levels_are_tested_the_inner_first(root):
    done, events = _run(root / "checks" / "comm_levels.py", "--hcp", "2,2")
    assert done.returncode == 0, done.stderr[-2000:]
    assert [(event["level"], event["kind"], event["size"], event["ok"]) for event in events] == [
        (0, "a2a", 2, True),
        (1, "p2p", 2, True),
    ]


@pytest.mark.parametrize(
    ("old", "new", "ok"),
    [
        ("mine = messages([(me, other) for other in ranks])", "{old}\n    mine[-1, -1] += me == 3", [False, False]),
        ('"a2a": _all_to_all', '"a2a": lambda mine, group: mine', [False, True]),
        ('"p2p": _ring', '"p2p": lambda mine, group: mine', [True, False]),
        ("theirs[(place - step) % size] = passing[place]", "pass", [True, False]),
    ],
    ids=["a wrong number of one rank", "no all-to-all", "no ring", "a ring that keeps nothing"],
)
def test_what_does_not_arrive_is_noticed(root, tmp_path, old, new, ok):
    text = (root / "checks" / "comm_levels.py").read_text()
    assert text.count(old) == 1
    broken = tmp_path / "comm_levels.py"
    broken.write_text(text.replace(old, new.replace("{old}", old)))
    done, events = _run(broken, "--hcp", "2,2")
    assert done.returncode == 1 and [event["ok"] for event in events] == ok


def test_sizes_that_do_not_fit_the_ranks_are_refused(root):
    done, events = _run(root / "checks" / "comm_levels.py", "--hcp", "3,2")
    assert done.returncode != 0 and not events
    assert "hierarchical sizes [3,2] multiply to 6: wanted the cp size, 4" in done.stderr
