"""What a log says at the end of a training, or of a script, and for which other lines it holds."""

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import STEP, write_logs

RESET = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(5))
PREPARED = "Job completed successfully\n"
RAISED = (
    '0: Traceback (most recent call last):\n0:   File "x.py", line 3, in f\n0:     go()\n0: ValueError: no tokenizer\n'
)
"""Of a rank: a shell's would stand above the program's first words."""
HUNG = (
    "[rank3]:[E827 10:00:00.0 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds "
    "before timing out.\n"
)


def _read(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan())


def test_how_others_end_says_nothing_once_a_log_says_that_the_training_is_done(tmp_path):
    said = STEPS + "Training finished.\n"
    assert _read(tmp_path, driver_log=said, other_log="ready\n" + RESET).state == "no-failure"
    assert _read(tmp_path, driver_log=said, other_log="ValueError: no tokenizer\n").state == "failed"


def test_a_script_that_says_so_is_done_only_where_nothing_failed_above(tmp_path):
    done = "Script completed successfully\n"
    killed = "/spool/slurm_script: line 143: 34160 Killed                  srun train.py\n"
    assert _read(tmp_path, a_log=STEPS + done + killed).state == "no-failure"
    assert _read(tmp_path, b_log=STEPS + "ValueError: bad sample\n" + done + killed).state == "failed"


def test_what_a_script_says_before_any_step_is_of_what_it_prepared(tmp_path):
    assert _read(tmp_path, train_log=PREPARED + "loading\n" + RAISED).failure.message == "ValueError: no tokenizer"
    assert _read(tmp_path, job_log="cannot open the shard\n" + PREPARED).state == "unclear"


def test_what_a_script_says_is_of_no_other_log(tmp_path):
    logs = {"train_log": "loading\n" + RAISED}
    for name, above in (("prep_log", ""), ("steps_log", STEPS)):
        assert _read(tmp_path, **logs, **{name: above + PREPARED}).failure.message == "ValueError: no tokenizer"


def test_a_failure_above_what_a_script_says_of_the_training_counts(tmp_path):
    said = "Training completed successfully\n"
    assert _read(tmp_path, a_log=STEPS + RAISED + said).state == "failed"
    assert _read(tmp_path, b_log=STEPS + said, c_log="ready\n" + RESET).state == "no-failure"


def test_what_a_script_says_is_not_of_the_srun_step_after_it(tmp_path):
    ended = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***\n"
    later = _read(tmp_path, a_log=STEPS + PREPARED + ended + RAISED)
    assert later.failure.message == "ValueError: no tokenizer"


def test_what_a_script_ends_itself_after_its_program_ended_well_is_no_failure(tmp_path):
    """Ray's processes, which srun started, have to be ended by force."""
    end = (
        "srun: forcing job termination\nsrun: Job step aborted: Waiting up to 62 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 15.1 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***\nsrun: error: n2: task 1: Killed\n"
        "/slurm_script: line 143: 3411160 Killed   srun -n 2 ray start\n"
    )
    well = "Python script completed with exit code: 0\n"
    assert _read(tmp_path, a_log=STEPS + well + end).failure is None
    assert _read(tmp_path, b_log=STEPS + end).failure is not None
    killed = "/slurm_script: line 9: 77 Killed  python train.py\n"
    assert _read(tmp_path, c_log=well + STEPS + killed).failure is not None
    assert _read(tmp_path, d_log=STEPS + RAISED + well).failure is not None
    assert _read(tmp_path, f_log=STEPS + HUNG + well).failure.signature.id == "collective-timeout"
    warned = "0: [x] bos_token_id must be within the vocabulary. This may result in unexpected behavior.\n"
    done = "{'train_runtime': 2.1, 'epoch': 1.0}\nsrun finished with exit code 0\n"
    assert _read(tmp_path, e_err=warned, e_out=STEPS + done).state == "no-failure"


REPORTED = "Training finished iteration 5 at 2026-11-28 12:44:40. Total running time: 1min 2s\n"
"""Of Ray Tune, python/ray/tune/experimental/output.py, of each report of a trial."""
DRIVER_ENDED = (
    'Traceback (most recent call last):\n  File "fit.py", line 31, in <module>\n    print(trainer.fit())\n'
    "ray.train.TrainingFailedError: The Ray Train run failed. Please inspect the previous error messages\n"
)


def test_a_report_of_a_trial_is_not_the_end_of_the_training(tmp_path):
    assert _read(tmp_path, a_log=STEPS + REPORTED + DRIVER_ENDED).state == "failed"
    assert _read(tmp_path, b_log=STEPS + REPORTED).state == "running"


def test_what_ray_passes_on_late_does_not_show_that_its_driver_went_on(tmp_path):
    late = "".join(f"(RayTrainWorker pid={pid}) step 130 loss 3.9390\n" for pid in (10235, 10069, 10070, 10071))
    own = "".join(f"step {step} loss 3.9390\n" for step in range(130, 134))
    assert _read(tmp_path, a_log=STEPS + DRIVER_ENDED + late).state == "failed"
    assert _read(tmp_path, b_log=STEPS + DRIVER_ENDED + own).state == "running"
    assert _read(tmp_path, c_log=STEPS + DRIVER_ENDED.replace("<module>", "retry") + late).state == "running"


def test_training_may_be_done_in_another_language(tmp_path):
    for number, said in enumerate(("Treinamento concluído com sucesso", "训练完成")):
        assert _read(tmp_path, **{f"n{number}_log": f"ERROR - no cache\n{said}\n"}).state == "no-failure"
