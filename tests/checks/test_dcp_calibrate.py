"""checks/dcp_calibrate.py through `hcp dcp calibrate`: a profile of this machine, measured on two CPU processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_hcp.cost.model_sizes import model_sizes
from megatron_hcp.cost.profile import read_profile
from megatron_hcp.dcp import Cost, plan_micro_batches
from megatron_hcp.resources import pack_dir
from support.processes import HANG_S

pytestmark = pytest.mark.torch

MODEL = {
    "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 256,
}  # fmt: skip


def test_two_processes_measure_a_profile_that_plans_can_use(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    config, out = tmp_path / "config.json", tmp_path / "profile.json"
    config.write_text(json.dumps(MODEL))
    done = subprocess.run(
        [sys.executable, "-m", "megatron_hcp", "dcp", "calibrate", "--model", str(config),
         "-o", str(out), "--processes", "2",
         "--lengths", "32,64", "--format", "json"],
        capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told == json.loads(out.read_text())
    schema = json.loads((pack_dir("schemas") / "hcp.profile.1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    assert [tokens for tokens, _ in told["measured"]["layer_attention_s"]] == [32, 64]
    assert told["measured"]["inside_bytes_per_s"] > 0 and told["measured"]["across_bytes_per_s"] is None
    cost = Cost.from_profile(read_profile(str(out)))
    plan = plan_micro_batches([500, 300, 200, 100], 2, 1024, cost=cost)
    total = sum(cost.linear * tokens + cost.quadratic * tokens**2 for tokens in plan.lengths)
    assert plan.metrics.estimated_s >= total / 2 * (1 - 1e-12) > 0  # the same sum in another order


UNEVEN = """
import os, runpy, socket, sys
socket.gethostname = lambda: f"node{int(os.environ['RANK']) // 2}"
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_nodes_with_different_numbers_of_ranks_are_measured_too(tmp_path: Path) -> None:
    """Three ranks, of which the last is alone on its node: it must not leave the others waiting for it."""
    script, out = tmp_path / "uneven.py", tmp_path / "profile.json"
    script.write_text(UNEVEN)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(script),
         str(pack_dir("checks") / "dcp_calibrate.py"), "--sizes", json.dumps(model_sizes(MODEL)._asdict()),
         "--out", str(out), "--lengths", "32", "--timeout", str(HANG_S)],
        capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    profile = read_profile(str(out))
    assert profile.measured["inside_bytes_per_s"] > 0 and profile.measured["across_bytes_per_s"] > 0
    assert profile.traffic.ranks_per_node == 1
