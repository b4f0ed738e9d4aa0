"""Logs of jobs, as files."""

STEP = (
    "[2026-08-22 10:00:{s:02}] iteration {s}/ 100 | elapsed time per iteration (ms): 5.0 | "
    "throughput per GPU (TFLOP/s/GPU): {speed} |\n"
)

CONTEXT_OF = {
    "bridge-packed-mask": '  File "gpt_step.py", line 82, in _partition_packed_batch_for_cp\n',
    "slime-max-tokens": '  File "slime/utils/seqlen_balancing.py", line 188, in _get_capped_partitions\n',
    "checkpoint-key": '  File "megatron/training/checkpointing.py", line 1818, in load_checkpoint\n',
    "pack-short-slice": '  File "verl/models/mcore/util.py", line 90, in preprocess_packed_seqs\n',
    "moe-mask-sp": '  File "moe/moe_utils.py", line 676, in compute_routing_scores_for_aux_loss\n',
    "slice-mismatch": '  File "rope_utils.py", line 147, in _apply_rotary_pos_emb_bshd\n',
    "arguments-refused": '  File "arguments.py", line 714, in validate_args\n    assert sequence_parallel\n',
    "exception-other": 'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    lock.acquire()\n',
    "nccl-said": "ncclInternalError: Internal check failed.\nLast error:\n",
    "rendezvous-refused": '  File "torch/distributed/rendezvous.py", line 189, in _create_c10d_store\n',
    "gloo-start": '  File "megatron/training/initialize.py", line 96, in initialize_megatron\n',
    "rendezvous-name": "The IPv6 network addresses of (n1.pool, 29500) cannot be retrieved (gai error: -2 - x)\n",
    "hub-name": "'[Errno -2] x' thrown while requesting HEAD https://huggingface.co/a/b/resolve/main/config.json\n",
    "hang-at-exit": "[after training is done] datetime: 2026-02-05 18:02:41\n",
}
"""Signature -> what stands above the line, where the signature asks for that; all others ask for dynamic CP's."""
DYNAMIC_CP = '  File "megatron/core/datasets/data_schedule.py", line 9, in get_groups_and_subsamples\n'


def context_of(row):
    """What stands above a row's example in a log."""
    return CONTEXT_OF.get(row.id, DYNAMIC_CP) if row.context else ""


def said(row, line):
    """A line as often as it takes to mean what a row says it does."""
    if row.role != "stall":
        return line
    return f"{line}\n" * 20 + "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***"


def write_logs(tmp_path, **files):
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", "-").replace("_log", ".log")
        path.write_text(text)
        paths.append(path)
    return paths
