"""How a training goes: lines that are steps, what else shows that it runs, and numbers that are none."""

import pytest

from megatron_hcp.triage.course.kinds import counted, kind_of, place_of
from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.screen_text import diagnosis_text


def _read(tmp_path, *lines):
    (tmp_path / "job.log").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return triage([tmp_path / "job.log"], CpPlan())


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (" iteration      193/     500 | elapsed time per iteration (ms): 18897.6 | lm loss: 6.97E+00 |", 193),
        ("[INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199, RunningAvgSamplesPerSec=58.7", 0),
        ("[    INFO] - loss: 3.258, learning_rate: 2.9e-05, global_step: 10, interval_runtime: 2.2591", 10),
        ("{'loss': '1.394', 'grad_norm': '7.823', 'epoch': '0.06801'}", 0),
        ("Epoch: 1, Batch: 3900/8164, Loss span=0.77, LR=0.00001868. Throughput=52.94 samples/s", 1),
        ("[batch=366/48000]:", 366),
        ("Epoch 0:  12%|#2        | 12/100 [00:10<01:14,  1.19it/s, v_num=0, train_loss=2.31]", 12),
    ],
)
def test_a_counter_with_a_figure_of_a_training_is_a_step(line, number):
    kind = kind_of(line.encode())
    assert kind is not None and kind.is_step and not kind.counter
    assert counted(line.encode()) == number


@pytest.mark.parametrize(
    "line",
    [
        "Loading checkpoint shards:  50%|#####     | 1/2 [00:06<00:06,  6.16s/it]",
        "Tokenizing train dataset:  50%|#####     | 1/2 [00:06<00:06,  6.16s/it]",
        "Processed prompts:  50%|#####     | 1/2 [00:06<00:06,  6.16s/it, est. speed input: 3 toks/s]",
        "RuntimeError: step 5 of 9: loss: 2.5",
        "    loss = loss_func(output_tensor[2])",
        "Namespace(epochs='all', batch_size=8)",
        "/repo/pretrain_gpt.py --global-batch-size 256 --train-iters 25533 --lr 2e-4 --lr-warmup-iters 200",
    ],
)
def test_what_comes_before_or_beside_a_training_is_no_step(line):
    kind = kind_of(line.encode())
    assert kind is None or not kind.is_step


def test_a_counter_without_a_figure_of_a_training_counts_where_it_has_grown(tmp_path):
    line = "[Rank 0] step={}, skipped=0, lr=[5e-05], mom=[(0.9, 0.999)]"
    assert _read(tmp_path, *(line.format(n) for n in (10, 20, 30))).steps == 3
    assert _read(tmp_path, *(line.format(10) for _ in range(3))).unclear == "no-step"
    bar = "(TaskRunner pid=7) Training Progress:   1%|1         | {}/11160 [{}]"
    assert _read(tmp_path, bar.format(0, "00:00<?, ?it/s")).unclear == "no-step"
    assert _read(tmp_path, *(bar.format(n, "07:24<59:40:15, 19.35s/it") for n in (59, 60))).steps == 2


def test_further_counters_do_not_make_an_error_good_unless_they_grow(tmp_path):
    error = "[rank3]: RuntimeError: could not send metrics"
    assert _read(tmp_path, error, *["[epoch 3/4] lr: 1e-4"] * 9).failure is not None
    assert _read(tmp_path, error, *[f"[epoch {n}/9] lr: 1e-4" for n in range(5)]).failure is None


@pytest.mark.parametrize(
    "line",
    [
        "{'eval_runtime': 12.31, 'eval_samples_per_second': 40.6}",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 33554432, reducing to 16777216",
        "[Rank 0] time (ms) | fwd: 31.87 | bwd: 66.31 | bwd_allreduce: 0.51 | step: 5.71",
        "Saved checkpoint at update 400: out/ckpt_400.pt",
        "[INFO] [launch.py:367:main] Process 1741949 exits successfully.",
        "***** train metrics *****",
        "2026-02-14 10:39:21 - INFO - Training completed successfully!",
    ],
)
def test_what_a_training_writes_beside_its_steps_shows_that_it_ran_but_makes_no_error_good(tmp_path, line):
    assert _read(tmp_path, line).state in ("running", "no-failure")
    if "Training completed" not in line:
        assert _read(tmp_path, "[rank3]: ValueError: no such thing", *[line] * 9).failure is not None


MEGATRON = (
    " iteration {n:8d}/  250000 | elapsed time per iteration (ms): 4247.9 | learning rate: 2.999E-04 |{loss} "
    "loss scale: {scale} | grad norm: {norm} | number of skipped iterations:   {skipped} |"
)
"""As bigscience-workshop/Megatron-DeepSpeed#396 shows it: without a loss, and with no step skipped."""
TRAINER = "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 9.77e-06, 'epoch': {epoch}}}"
"""AnswerDotAI/ModernBERT#233"""


def _steps(first, last, norm="0.7", loss=" lm loss: 2.1E+00 |", scale="1.0", skipped=0):
    return [MEGATRON.format(n=n, norm=norm, loss=loss, scale=scale, skipped=skipped) for n in range(first, last)]


def test_a_gradient_norm_that_stays_nan_is_a_failure_without_a_loss_that_is(tmp_path):
    diagnosis = _read(tmp_path, *_steps(1, 6), *_steps(6, 16, "nan", ""))
    failure = diagnosis.failure
    assert (failure.signature.id, failure.line) == ("grad-norm-nan", 6)
    assert "gradient norm is not a number (nan) from iteration 6 on, 10 times" in failure.cause
    assert "go back to a checkpoint from before that step" in diagnosis_text(diagnosis, None)


def test_one_gradient_norm_that_is_nan_is_said_and_no_failure(tmp_path):
    diagnosis = _read(tmp_path, *_steps(1, 6), *_steps(6, 7, "nan"), *_steps(7, 12))
    assert diagnosis.failure is None and diagnosis.state == "running"
    assert "job.log:6: the gradient norm is not a number (nan) from iteration 6 on, once" in diagnosis_text(
        diagnosis, None
    )


def test_the_trainers_loss_of_zero_beside_a_norm_that_is_nan_is_a_failure_that_its_end_does_not_make_good(tmp_path):
    lines = [TRAINER.format(loss=1.9, norm=0.5, epoch=0.1)] * 4 + [TRAINER.format(loss=0.0, norm="nan", epoch=0.53)] * 2
    bars = [" 10%|#         | 9/90 [00:10<01:00,  1.1it/s]"] * 9
    end = "{'train_runtime': 812.2, 'train_samples_per_second': 12.1, 'epoch': 1.0}"
    failure = _read(tmp_path, *lines, *bars, end).failure
    assert failure.signature.id == "grad-norm-nan" and "from epoch 0.53 on, 2 times" in failure.cause


def test_steps_that_a_loss_scaler_skips_are_a_failure_only_where_they_go_on(tmp_path):
    """From 2**32 a scale is halved 32 times until it is 1."""
    falling = [step for n in range(20) for step in _steps(n, n + 1, "inf", "", str(2.0 ** (32 - n)), 1)]
    assert _read(tmp_path, *falling).failure is None
    assert _read(tmp_path, *falling, *_steps(20, 25)).not_finite == ()
    assert _read(tmp_path, *falling, *_steps(20, 33, "inf", "", "8192.0", 1)).failure.signature.id == "grad-norm-nan"


@pytest.mark.parametrize(
    "line",
    [
        "Epoch: [115]  [1298/1299]  loss: 6.5993 (6.5971)  grad_norm: 0.3922 (nan)  time: 0.4944",
        "Epoch 0:  10%|#         | 10/100 [00:10<01:30, 1.0it/s, v_num=0, train_loss=1.10, val_loss=nan.0]",
        "epoch 3 step 9: loss=2.3 best_loss=inf min_loss: inf",
        "step 3 | loss: 2.5 | nan check: off | number of nan iterations:   0 |",
    ],
)
def test_means_validations_and_minima_that_are_no_numbers_are_none_of_a_step(tmp_path, line):
    diagnosis = _read(tmp_path, *[line] * 40)
    assert (diagnosis.failure, diagnosis.not_finite, diagnosis.state) == (None, (), "running")


def test_a_loss_that_becomes_nan_after_the_gradient_norm_names_both(tmp_path):
    lines = [TRAINER.format(loss=9.8, norm="inf", epoch=0.26), TRAINER.format(loss="nan", norm="nan", epoch=0.27)]
    failure = _read(tmp_path, *lines).failure
    assert (failure.signature.id, failure.line) == ("loss-nan", 1)
    assert "the gradient norm, and then the loss, is not a number (inf) from epoch 0.26 on" in failure.cause


@pytest.mark.parametrize("name", ["L", "loss"])
def test_a_loss_that_was_nan_once_and_is_so_again_to_the_end_is_a_failure(tmp_path, name):
    """lzc452/SSL-VIT-VIDEO-ANALYTICS: logs/train_ssl.log, which calls its loss L."""
    values = ["0.9"] * 5 + ["nan"] * 4 + ["0.8"] * 5 + ["nan"] + ["0.8"] * 5 + ["nan"] * 9
    lines = [f"[INFO] ep=15 step={step}/193 LR=4.97e-04 {name}={value} w=1.00" for step, value in enumerate(values)]
    diagnosis = _read(tmp_path, *lines)
    assert diagnosis.failure and (diagnosis.failure.signature.id, diagnosis.failure.line) == ("loss-nan", 21)
    assert _read(tmp_path, *lines[:20]).failure is None


def test_where_a_line_was_printed_is_the_step_before_the_epoch():
    assert place_of("Training epoch 0, iteration 120/149 | lr: 3e-05") == "iteration 120"
    assert place_of("{'loss': 0.1, 'epoch': 0.53}") == "epoch 0.53"
    assert place_of("loss: nan") == ""


def test_a_configuration_that_megatron_core_prints_at_the_start_is_no_step():
    """megatron/core/optimizer/__init__.py prints it; a job that hangs below it has not trained."""
    line = (
        b"INFO:megatron.core.optimizer:Setting up optimizer with config AdamOptimizerConfig(lr=0.1, "
        b"loss_scale_window=1000, muon_num_ns_steps=5)"
    )
    assert kind_of(line) is None
    kind = kind_of(b"step 5 | loss: 2.5")
    assert kind and kind.is_step


def test_steps_are_counted_whether_one_or_many_kinds_of_lines_report_them(tmp_path):
    one = [f"{n % 8}: iteration {n}/ 500 | lm loss: 2.{n} | bucket {n}" for n in range(40)]
    other = [f"epoch {n} {'abcd'[n % 4] * 6} loss: 1.{n}" for n in range(40)]
    plain = [f"{n}: INFO bucket {n}" for n in range(40)]
    assert _read(tmp_path, *one, *plain).steps == 40
    assert _read(tmp_path, *(line for lines in zip(one, plain, other, strict=True) for line in lines)).steps == 80


def test_losses_that_change_show_that_the_program_ran_though_no_step_is_counted(tmp_path):
    line = "LR: 0.000001, Acc: 100.0000, Loss: {}"
    assert _read(tmp_path, *(line.format(loss) for loss in (0.31, 0.22, 0.13, 0.12))).state == "no-failure"
    assert _read(tmp_path, *(line.format(0.31) for _ in range(5))).unclear == "no-step"


def test_a_bar_of_ultralytics_is_a_step_where_it_trains():
    bar = "\x1b[K       1/50      10.9G      1.744      3.741        720       1280: 1% {} 3/508 1.6it/s 11.4s<5:13"
    kind = kind_of(bar.format("╸───────────").encode())
    assert kind and kind.is_step and not kind.counter
    assert counted(bar.format("━━━━━━━━━━━━").encode()) == 3
    scan = "train: Scanning /d/labels/train.cache... 8114 images: 100% ━━━━ 8122/8122 53.1it/s 0.0s"
    assert kind_of(scan.encode()) is None
    checked = "      Class     Images  Instances      Box(P          R      mAP50): 13% ━─── 3/24 1.1it/s 2.2s<19.1s"
    assert not (kind := kind_of(checked.encode())) or not kind.is_step
