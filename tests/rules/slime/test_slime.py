"""SLIME rules: what slime's and miles' own arguments are asked for, as tables."""

from __future__ import annotations

from support.rules import FixRow, Row, test_fixes, test_text, test_verdict

__all__ = ["test_fixes", "test_text", "test_verdict"]

JOB = "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-batch-size 32 --n-samples-per-prompt 8 "
BY_TOKENS = f"{JOB}--use-dynamic-batch-size --rollout-max-response-len 8192 "

GATHERED = f"{JOB}--context-parallel-size 2 --allgather-cp --hf-checkpoint "

VERDICTS: list[Row] = [
    # 32 prompts with 8 answers are 256 samples a rollout.
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 257", "", "error crash init"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 512", "slime=0.2.2", "all: SLIME006"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 512", "slime=0.2.1", "fine"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 256", "", "fine"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 2 --global-batch-size 512", "", "fine"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 2 --global-batch-size 513", "", "error crash init"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 512 --lr-decay-iters 9", "", "fine"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 512 --debug-rollout-only", "", "fine"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 0 --global-batch-size 512", "", "not concerned"),
    ("SLIME006", "slime", f"{JOB}--global-batch-size 512", "", "not concerned"),
    ("SLIME006", "slime", f"{JOB}--num-rollout 1", "", "not concerned"),
    (
        "SLIME006",
        "slime",
        "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --num-rollout 1 --global-batch-size 512",
        "",
        "fine",
    ),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "", "error crash config"),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "slime=0.3", "error crash config"),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "slime=0.2.4", "error silent never"),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "miles=0.1", "not concerned"),
    ("SLIME005", "slime", f"{GATHERED}/models/DeepSeek-V3", "", "error crash config"),
    ("SLIME005", "slime", f"{GATHERED}/models/DeepSeek-V3.2", "", "fine"),
    ("SLIME005", "slime", f"{GATHERED}/models/GLM-5", "", "fine"),
    ("SLIME005", "slime", f"{JOB}--context-parallel-size 2 --allgather-cp", "", "fine"),
    ("SLIME005", "slime", f"{JOB}--allgather-cp --hf-checkpoint /models/Qwen3-8B", "", "not concerned"),
    ("SLIME005", "slime", f"{JOB}--context-parallel-size 2 --hf-checkpoint /models/Qwen3-8B", "", "not concerned"),
    ("SLIME005", "mlm", "--context-parallel-size 2", "allgather_cp=true", "not concerned"),
    # rule, dialect, launch, assumed, verdict
    ("SLIME001", "slime", BY_TOKENS, "", "all: SLIME001"),
    ("SLIME001", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 9216", "", "all:"),
    ("SLIME001", "slime", JOB, "", "not concerned"),
    ("SLIME001", "mlm", "--seq-length 64", "", "not concerned"),
    ("SLIME002", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 4096", "", "info note training"),
    ("SLIME002", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 4096 --context-parallel-size 2", "", "fine"),
    ("SLIME002", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 4095 --context-parallel-size 2", "", "info note training"),
    ("SLIME002", "slime", f"{JOB}--max-tokens-per-gpu 4096 --rollout-max-response-len 8192", "", "not concerned"),
    ("SLIME002", "slime", f"{JOB}--use-dynamic-batch-size --max-tokens-per-gpu 4096", "", "not concerned"),
    ("SLIME002", "slime", BY_TOKENS, "", "not concerned"),
    (
        "SLIME002",
        "mlm",
        "--seq-length 64",
        "cp=1 batches_by_tokens=true max_tokens_per_gpu=1 rollout_max_response_len=2",
        "not concerned",
    ),
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 4 --global-batch-size 64", "", "all:"),
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 4 --global-batch-size 128", "", "all: SLIME003"),
    ("SLIME003", "slime", f"{JOB}--global-batch-size 128", "", "not concerned"),
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 4", "", "fine"),  # computed
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 1 --global-batch-size 128", "", "error"),  # 256 samples
    ("SLIME003", "slime", "--actor-num-nodes 1 --num-steps-per-rollout 4 --global-batch-size 128", "", "fine"),
    ("SLIME003", "mlm", "--global-batch-size 128", "steps_per_rollout=4", "not concerned"),
    ("SLIME004", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 9216 --qkv-format bshd", "", "all: SLIME004"),
    ("SLIME004", "slime", f"{JOB}--qkv-format bshd --micro-batch-size 1", "", "all:"),
    ("SLIME004", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 9216 --qkv-format thd", "", "not concerned"),
    ("SLIME004", "mlm", "--seq-length 64", "qkv_format=bshd batches_by_tokens=true", "not concerned"),
]

TEXTS: list[Row] = [
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "", "found: context_parallel_size 2 with /models/Qwen3-8B"),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "", "message: start-up fails"),
    ("SLIME005", "slime", f"{GATHERED}/models/Qwen3-8B", "slime=0.2.3", "message: silently"),
    # rule, dialect, launch, assumed, what the finding says
    ("SLIME001", "slime", BY_TOKENS, "", "found: use_dynamic_batch_size and no max_tokens_per_gpu"),
    (
        "SLIME002",
        "slime",
        f"{BY_TOKENS}--max-tokens-per-gpu 2048 --context-parallel-size 2",
        "",
        "found: max_tokens_per_gpu 2048 x CP 2 = 4096 tokens, answers of up to 8192",
    ),
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 4 --global-batch-size 9", "", "wanted: 64, or no"),
    ("SLIME004", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 9216 --qkv-format bshd", "", "found: qkv_format bshd and"),
]

FIXES: list[FixRow] = [
    # rule, dialect, launch, assumed, what each fix writes
    ("SLIME006", "slime", f"{JOB}--num-rollout 1 --global-batch-size 600", "", ("num_rollout=3",)),
    (
        "SLIME006",
        "slime",
        "--actor-num-nodes 2 --actor-num-gpus-per-node 8 --rollout-batch-size 1 --n-samples-per-prompt 1 "
        "--num-rollout 1 --global-batch-size 3",
        "",
        ("num_rollout=3",),
    ),
    ("SLIME001", "slime", f"{BY_TOKENS}--context-parallel-size 2", "", ("max_tokens_per_gpu=4096",)),
    # An answer of unknown length counts as one of 8192 tokens.
    ("SLIME001", "slime", f"{JOB}--use-dynamic-batch-size", "", ("max_tokens_per_gpu=8192",)),
    (
        "SLIME001",
        "slime",
        f"{JOB}--use-dynamic-batch-size --rollout-max-response-len 4096",
        "",
        ("max_tokens_per_gpu=4096",),
    ),
    ("SLIME002", "slime", f"{BY_TOKENS}--max-tokens-per-gpu 4096", "", ("max_tokens_per_gpu=8192",)),
    ("SLIME003", "slime", f"{JOB}--num-steps-per-rollout 4 --global-batch-size 9", "", ("global_batch_size=64",)),
]
