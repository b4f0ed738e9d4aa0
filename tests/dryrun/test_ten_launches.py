"""Ten launches over three wheels of megatron-core: what trains comes to the end, what upstream refuses stops there."""

from __future__ import annotations

import pytest

from megatron_hcp.dryrun.ask import DryRun
from support.dry_runs import run
from support.rows import rows

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]

MLA = "--multi-latent-attention --qk-layernorm --kv-lora-rank 128 --q-lora-rank 256 --no-rope-fusion"
EXPERTS = "--num-experts 8 --expert-model-parallel-size 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall"
PIPELINE = "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"
LEVELS = "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"

DONE = [
    ("0.17.1", "--group-query-attention --num-query-groups 8"),
    ("0.17.1", MLA),
    ("0.17.1", PIPELINE),
    ("0.18.2", LEVELS),
    ("0.18.2", EXPERTS),
    ("0.19.2", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
]
REFUSED = [
    ("0.17.1", "--seq-length 8190", "arguments", "arguments.py", "multiple of 2 * context-parallel-size"),
    ("0.18.2", "--num-query-groups 3 --group-query-attention", "model", "transformer_config.py", "num_query_groups"),
    ("0.19.2", "--eval-interval", "data", "training.py", "NoneType"),
    ("0.18.2", f"{MLA} --cp-comm-type all_gather", "forward", "context_parallel.py", "does not support MLA"),
]
"""The wheel, words, the stage, the file of upstream that raises, and what it says."""


def outcome(done: DryRun) -> tuple[str, str, str]:
    (one,) = done.outcomes
    error = one.error or {"missing": "", "message": ""}
    return done.verdict, one.stage, str(error["missing"] or error["message"])


@rows("mcore, words", DONE)
def test_a_launch_that_trains_comes_to_the_end_of_the_first_backward_pass(mcore: str, words: str) -> None:
    assert outcome(run(words, mcore=mcore)) == ("done", "backward", "")


@rows("mcore, words, stage, file, says", REFUSED)
def test_what_upstream_refuses_is_refused_by_its_own_line(
    mcore: str, words: str, stage: str, file: str, says: str
) -> None:
    without = "--eval-interval" if words == "--eval-interval" else ""
    done = run("" if without else words, mcore=mcore, without=without)
    (one,) = done.outcomes
    assert (done.verdict, one.stage) == ("refused", stage), outcome(done)
    assert one.error and one.error["file"].endswith(file) and says in one.error["message"]
