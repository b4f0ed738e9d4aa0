"""What programs say of errors that they go on after, and the words of a good end."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import STEP, write_logs

STEPS = "".join(STEP.format(s=s, speed=400.0) for s in range(4))
RAISED = 'Traceback (most recent call last):\n  File "run.py", line 7, in main\n    go()\n'
ABSENT = RAISED + "ModuleNotFoundError: No module named 'faster_kernels'\n"
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused\n"
CHAIN = (
    f"{RAISED}{REFUSED}\nDuring handling of the above exception, another exception occurred:\n\n{RAISED}"
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>\n"
)


def _read(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan())


def test_an_exception_is_survived_where_its_announcement_says_so(tmp_path):
    announced = "[WARNING|my.trainer] optional module faster_kernels is not used:\n"
    assert _read(tmp_path, a_log=STEPS + announced + ABSENT).failure is None
    assert _read(tmp_path, d_log=announced + ABSENT).unclear == "error-line", "nothing shows that it went on"
    assert _read(tmp_path, b_log=STEPS + "[WARNING|my.trainer] module faster_kernels:\n" + ABSENT).state == "failed"
    assert _read(tmp_path, c_log=STEPS + announced.replace(":\n", "\n") + ABSENT).state == "failed"


def test_a_task_that_ray_starts_again_is_no_failure_of_the_job(tmp_path):
    said = "(raylet) Task load failed. There are {} retries remaining, so the task will be {}. Error: User exception:\n"
    raised = 'ray::load() (pid=7, ip=10.0.0.2)\n  File "rl.py", line 5, in load\n    get()\nOSError: 503 Slow Down\n'
    assert _read(tmp_path, driver_log=STEPS + said.format(1, "retried") + raised).failure is None
    assert _read(tmp_path, driver_log=STEPS + said.format(0, "given up") + raised).unclear == "error-line"


def test_an_exception_is_survived_where_the_line_below_its_chain_says_so(tmp_path):
    assert _read(tmp_path, a_log=STEPS + CHAIN + "[metrics] upload failed, tries again\n").failure is None
    assert _read(tmp_path, c_log=STEPS + CHAIN + "[metrics] upload failed, tries again\n").unclear is None
    last = _read(tmp_path, b_log=STEPS + CHAIN + "[metrics] upload failed\n").failure
    assert last.signature.id == "exception-service" and "URLError" in last.message


def test_whom_a_client_of_a_url_lost_is_no_rank(tmp_path):
    lost = "RuntimeError: download failed: {}: Connection reset by peer\n"
    assert _read(tmp_path, a_log=lost.format("https://hub.example/part-3")).failure.kind == "cause"
    assert _read(tmp_path, b_log=lost.format("tcp://10.0.0.2:29500")).failure.signature.id == "peer-gone"


def test_what_another_rank_trained_on_after_is_no_failure_where_no_process_ended(tmp_path):
    good, same = tmp_path / "attempt_0" / "0", tmp_path / "attempt_0" / "1"
    for folder, text in ((good, ABSENT + STEPS), (same, ABSENT)):
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)
    logs = [folder / "stderr.log" for folder in (good, same)]
    assert triage(logs, CpPlan()).failure is None
    ended = write_logs(tmp_path, agent_log="failed (exitcode: 1) local_rank: 1 (pid: 9) of binary: /usr/bin/python\n")
    assert triage([*logs, *ended], CpPlan()).state == "failed"


def test_the_level_of_a_line_may_be_one_letter(tmp_path):
    line = "2026-08-22 10:00:00,005 {} r1 mytrain: no fused attention (ImportError: No module named 'fused')\n"
    assert _read(tmp_path, a_log=line.format("W") + STEPS.splitlines(True)[0]).unclear is None
    assert _read(tmp_path, b_log=line.format("E") + STEPS.splitlines(True)[0]).unclear == "error-line"


@pytest.mark.parametrize("said", ["training finished after 4 steps", "training is done at step 4", "Exiting normally."])
def test_a_logger_says_in_plain_words_that_the_training_is_done(tmp_path, said):
    logged = f"2026-08-22 10:00:09 INFO {said}\n"
    assert _read(tmp_path, a_log=STEPS + logged).state == "no-failure"
    assert _read(tmp_path, b_log=STEPS + logged.replace(said, f"evaluates when {said}")).state == "running"


def test_what_a_script_prints_below_a_failure_does_not_undo_it(tmp_path):
    raised = STEPS + RAISED + "ValueError: no tokens\n"
    assert _read(tmp_path, a_log=raised + "Training finished\n").state == "failed"
    assert _read(tmp_path, b_log=raised + "2026-08-22 10:00:09 INFO Training finished\n").state == "no-failure"


def test_rays_record_of_its_events_is_no_log_of_the_job(tmp_path):
    folder = tmp_path / "logs" / "events"
    folder.mkdir(parents=True)
    event = folder / "event_RAYLET.log"
    event.write_text(
        '{"message": "A worker died or was killed while executing a task by an unexpected system error."}\n'
    )
    (driver,) = write_logs(tmp_path, driver_log=STEPS)
    assert triage([driver, event], CpPlan()).failure is None
