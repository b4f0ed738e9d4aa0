"""PERF rules, as tables."""

from __future__ import annotations

from support.launches import CP
from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

BUDGET = (
    "actor_rollout_ref.actor.megatron.context_parallel_size=2 actor_rollout_ref.actor.use_dynamic_bsz=True "
    "data.max_prompt_length=2048 data.max_response_length=14336"
)
OLD = "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu"
WINDOW = f"{CP} 2 --cp-comm-type all_gather --window-size 1023,0"  # 1024 tokens

VERDICTS: list[Row] = [
    # rule, dialect, launch, assumed, verdict
    ("PERF001", "mlm", "--context-parallel-size 4 --seq-length 4096", "", "fine"),
    ("PERF001", "verl", "", "cp=4 seq_length=1024", "not concerned"),
    ("PERF001", "bridge", "", "cp=4 seq_length=1024", "info slow training"),
    ("PERF001", "bridge", "", "seq_length=null", "needs cp"),
    ("PERF001", "bridge", "", "cp=4 seq_length=null", "fine"),
    ("PERF001", "mlm", "--seq-length 512", "", "not concerned"),
    ("PERF001", "mlm", "MODEL_ARGS:\n  --context-parallel-size: 4\n  --seq-length: 1024\n", "", "not concerned"),
    ("PERF001", "mlm", f"{CP} 2 --seq-length 1024", "", "info slow training"),
    ("PERF001", "bridge", "model.context_parallel_size=4", "", "not concerned"),
    ("PERF002", "verl", BUDGET, "ppo_max_token_len_per_gpu=16383", "fine"),
    ("PERF002", "verl", BUDGET, "ppo_max_token_len_per_gpu=16384", "info note never"),
    ("PERF002", "verl", BUDGET, "ppo_max_token_len_per_gpu=16384 verl=0.8.0", "info note never"),
    ("PERF002", "verl", BUDGET, "ppo_max_token_len_per_gpu=16384 verl=0.7.1", "info note never"),
    ("PERF002", "verl", BUDGET, "ppo_max_token_len_per_gpu=null", "fine"),
    ("PERF002", "verl", BUDGET, "max_prompt_length=null ppo_max_token_len_per_gpu=16384", "fine"),
    ("PERF002", "verl", BUDGET, "max_response_length=null ppo_max_token_len_per_gpu=16384", "fine"),
    ("PERF002", "verl", BUDGET, "cp=1", "not concerned"),
    ("PERF002", "verl", BUDGET, "use_dynamic_bsz=false", "not concerned"),  # sequences are counted, not tokens
    ("PERF002", "verl", BUDGET, "dynamic_context_parallel=true", "not concerned"),  # DCP023 speaks of it
    ("PERF002", "verl", f"{BUDGET} {OLD}=16384", "ppo_max_token_len_per_gpu=8192", "info note never"),
    ("PERF002", "verl", f"{BUDGET} {OLD}=16383", "ppo_max_token_len_per_gpu=8192", "fine"),
    ("PERF002", "mlm", f"{CP} 2", "use_dynamic_bsz=true", "not concerned"),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 8192", "", "info slow training"),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 8191", "", "fine"),  # fewer than eight windows
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536", "cp=1", "not concerned"),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536", "cp_comm_type=a2a", "not concerned"),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536 --window-attn-skip-freq 1", "", "fine"),  # no layer has it
    ("PERF003", "mlm", f"{CP} 2 --cp-comm-type all_gather --seq-length 65536", "", "not concerned"),
    ("PERF003", "mlm", f"{CP} 2 --cp-comm-type all_gather --window-size -1,128 --seq-length 65536", "", "fine"),
    ("PERF003", "mlm", f"{CP} 2 --cp-comm-type all_gather --window-size 0,0 --seq-length 8", "", "info"),
    ("PERF003", "mlm", WINDOW, "seq_length=null", "fine"),
    ("PERF003", "mlm", WINDOW, "", "needs seq_length"),
]

TEXTS: list[Row] = [
    # rule, dialect, launch, assumed, what the finding says
    (
        "PERF002",
        "verl",
        f"{BUDGET} {OLD}=65536",
        "ppo_max_token_len_per_gpu=8192",
        "found: rollout.log_prob_max_token_len_per_gpu 65536 can hold",
    ),
    ("PERF002", "verl", BUDGET, "cp=3 ppo_max_token_len_per_gpu=16384", "wanted: about 5462 tokens per GPU"),
    ("PERF002", "verl", BUDGET, "cp=3 ppo_max_token_len_per_gpu=16384", "message: 3 times as many tokens"),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536", "", "found: a window of 1024 tokens at seq_length 65536"),
]

FIXES: list[FixRow] = [
    ("PERF002", "verl", f"{BUDGET} {OLD}=65536", "ppo_max_token_len_per_gpu=8192", (f"{OLD}=8192",)),
    # rule, dialect, launch, assumed, what each fix writes
    ("PERF001", "mlm", f"{CP} 4 --seq-length 2048", "", ("context_parallel_size=2",)),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536 --num-attention-heads 8", "", ("cp_comm_type=a2a",)),
    ("PERF003", "mlm", f"{WINDOW} --seq-length 65536 --num-attention-heads 7", "", ()),
]
