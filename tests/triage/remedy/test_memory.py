"""Where GPU memory ran out: who holds it, how much was asked for, and what it was for."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text
from support.logs import STEP, write_logs

STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))


def _next(diagnosis):
    return diagnosis_json(diagnosis, None)["first_failure"]["next"]


def test_where_memory_ran_out_decides_what_would_help(tmp_path):
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    head = 'Traceback (most recent call last):\n  File "weights.py", line 9, in load_weights\n    tensor.to("cuda")\n'
    loading = diagnosis_text(triage(write_logs(tmp_path, a_log=head + oom), CpPlan()), None)
    assert "before the first training step" in loading and "CP does not" in loading and "hcp plan" in loading
    training = diagnosis_text(triage(write_logs(tmp_path, b_log=STEPS + oom), CpPlan()), None)
    assert "after 4 logged steps" in training and "raise context_parallel_size" in training
    states = head.replace("weights.py", "fused_adam.py").replace("load_weights", "step") + oom
    stepping = diagnosis_text(triage(write_logs(tmp_path, c_log=states), CpPlan()), None)
    assert "optimizer states" in stepping and "context_parallel_size" not in stepping


@pytest.mark.parametrize(
    ("frames", "step"),
    [
        (["train.py:main", "trainer.py:train", "functional.py:cross_entropy"], "more tensor parallelism"),
        (["run.py:main", "checkpoint.py:restore", "optimizer.py:load_state_dict", "copy.py:deepcopy"], "optimizer"),
        (["train.py:main", "peft/utils/other.py:prepare_model_for_kbit_training"], "loading or converting weights"),
        (["train.py:main", "vllm/v1/worker/gpu_worker.py:initialize_from_config"], "gpu_memory_utilization"),
        (["train.py:main", "c10d.py:x", "distributed_c10d.py:_new_process_group_helper"], "free it first"),
        (["train.py:main", "torch/distributed/fsdp/_flat_param.py:flatten_tensors"], "loading or converting weights"),
        (["stage_1_and_2.py:backward", "graph.py:_engine_run_backward"], "raise context_parallel_size"),
        (["fused_adam.py:step", "attention.py:forward"], "raise context_parallel_size"),
    ],
    ids=["logits", "optimizer", "weights", "engine", "group", "fsdp", "activations", "innermost"],
)
def test_the_frame_nearest_to_where_memory_ran_out_that_tells_decides(tmp_path, frames, step):
    shown = (frame.split(":") for frame in frames)
    raised = "".join(f'  File "/x/{file}", line 9, in {name}\n    call()\n' for file, name in shown)
    log = (
        "Traceback (most recent call last):\n"
        + raised
        + "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    steps = _next(triage(write_logs(tmp_path, a_log=log), CpPlan()))
    assert any(step in said for said in steps) and ("raise context" in step or "raise context" not in steps[-1][:20])


def test_more_memory_than_the_whole_gpu_has_is_a_matter_of_sizes(tmp_path):
    said = (
        "CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.0 GiB is"
    )
    for asked, is_told in ((130212.62, True), (12.5, False)):
        steps = _next(
            triage(write_logs(tmp_path, a_log="RuntimeError: " + said.format(asked=asked) + " free.\n"), CpPlan())
        )
        assert any("more than the whole GPU" in step for step in steps) == is_told


def test_a_gpu_that_was_full_before_anything_was_asked_is_to_be_freed(tmp_path):
    said = "n1:9:9 [1] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
    first = triage(write_logs(tmp_path, a_log=said), CpPlan())
    assert first.advice and "free the GPU first" in first.advice.reason and "raise context" not in str(_next(first))
    later = triage(write_logs(tmp_path, b_log=STEPS + said), CpPlan())
    assert later.advice and "free the GPU" not in later.advice.reason and "raise context" in str(_next(later))


def test_what_other_processes_hold_of_a_gpu_is_told_where_memory_ran_out(tmp_path):
    said = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of "
        "79.18 GiB of which {free} MiB is free. Including non-PyTorch memory, this process has {own} GiB memory in "
        "use.\n"
    )
    told = diagnosis_text(triage(write_logs(tmp_path, a_log=said.format(free=16.88, own=47.5)), CpPlan()), None)
    assert "other processes hold 32 GiB" in told
    alone = diagnosis_text(triage(write_logs(tmp_path, b_log=said.format(free=16.88, own=78.9)), CpPlan()), None)
    assert "other processes" not in alone
    before_2 = (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.20 GiB total capacity; 7.20 GiB "
        "already allocated; 1.00 GiB free; 8.20 GiB reserved in total by PyTorch)\n"
    )
    assert "hold 70 GiB" in diagnosis_text(triage(write_logs(tmp_path, c_log=before_2), CpPlan()), None)
    each = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of "
        "44.74 GiB of which 1.25 GiB is free. Process 7 has 30.00 GiB memory in use. Process 9 has 13.49 GiB memory in "
        "use. Of the allocated memory 12.27 GiB is allocated by PyTorch\n"
    )
    assert "hold 30 GiB" in diagnosis_text(triage(write_logs(tmp_path, d_log=each), CpPlan()), None)


def test_an_earlier_traceback_does_not_say_what_the_memory_was_for(tmp_path):
    engine = (
        'Traceback (most recent call last):\n  File "/x/vllm/engine.py", line 9, in step\n    call()\nKeyError: 1\n'
    )
    head = 'Traceback (most recent call last):\n  File "/x/train.py", line 9, in main\n    call()\n'
    oom = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    steps = _next(triage(write_logs(tmp_path, a_log=STEPS + engine + head + oom), CpPlan()))
    assert not any("rollout engine" in step for step in steps) and any("raise context" in step for step in steps)


@pytest.mark.parametrize(("asked", "is_told"), [("1.70", True), ("2.40", False)])
def test_memory_that_lies_reserved_in_small_pieces_is_put_together(tmp_path, asked, is_told):
    log = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of "
        "6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is "
        "reserved by PyTorch but unallocated.\n"
    )
    steps = _next(triage(write_logs(tmp_path, a_log=log), CpPlan()))
    assert any("expandable_segments" in step and "2.3 GiB" in step for step in steps) == is_told
