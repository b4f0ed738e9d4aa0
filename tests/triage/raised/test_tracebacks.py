"""How an exception is found: by a whole traceback or a part of one, under Ray, behind any logger, and in pieces."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs


def _read(tmp_path, log):
    return triage(write_logs(tmp_path, job_log=log), CpPlan())


def _failure(tmp_path, log):
    return _read(tmp_path, log).failure


FRAME = '  File "/a/train.py", line 9, in main\n    data.read()\n'
CALLED = "ray.exceptions.RayTaskError(ArrowInvalid): ray::Runner.run() (pid=7, ip=10.0.0.2)\n"
INVALID = "pyarrow.lib.ArrowInvalid: no magic bytes\n"


@pytest.mark.parametrize(
    "above",
    [
        f"Traceback (most recent call last):\n{FRAME}",
        f"    get()\n{FRAME}",
        f"{CALLED}{FRAME}",
        f"ray.exceptions.ActorDiedError: because of an error raised in its creation task, ray::A.__init__()\n{FRAME}",
        f"Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::A.f() (pid=7)\n{FRAME}",
        'Traceback (most recent call last):\nFile "/a/train.py", line 9, in main\ndata.read()\n',
    ],
    ids=["whole", "without its head", "under Ray", "of an actor's creation", "unhandled", "without its indents"],
)
def test_an_exception_of_any_name_ends_a_traceback(tmp_path, above):
    """Its line holds none of the words that are searched for."""
    failure = _failure(tmp_path, above + INVALID.replace("pyarrow.lib.ArrowInvalid", "filelock.Timeout"))
    assert failure.signature.id == "exception-other"
    assert failure.cause.startswith("the program raised filelock.Timeout: no magic bytes (train.py:9, in main")


def test_words_below_rays_report_are_no_exception_without_frames_between(tmp_path):
    assert _failure(tmp_path, CALLED + "Done\n").signature.id == "ray-wrapper"


def test_lines_of_another_process_of_ray_do_not_end_a_traceback(tmp_path):
    own, other = "(A pid=7, ip=10.0.0.2) ", "(A pid=8, ip=10.0.0.2) "
    raised = f'  File "x.py", line 1, in f\n{own}filelock.Timeout: x\n'
    log = f"{own}Traceback (most recent call last):\n{other}Timeout\n{own}{raised}"
    failure = _failure(tmp_path, log)
    assert (failure.line, failure.pid) == (4, 7)


def test_a_logger_of_unknown_form_may_stand_before_a_traceback(tmp_path):
    """It counts, so its text differs from line to line."""
    lines = ["hello"] + [
        f"<svc#{n}> {line}"
        for n, line in enumerate(f"Traceback (most recent call last):\n{FRAME}{INVALID}".splitlines())
    ]
    failure = _failure(tmp_path, "\n".join([*lines, "bye", ""]))
    assert failure.signature.id == "data-corrupt" and "no magic bytes" in failure.cause


def test_a_failed_look_up_that_the_program_caught_is_not_the_cause(tmp_path):
    head = f"Traceback (most recent call last):\n{FRAME}"
    during = "During handling of the above exception, another exception occurred:"
    chained = f"{head}KeyError: 'cache'\n\n{during}\n\n{head}RuntimeError: no kernel\n"
    assert _failure(tmp_path, chained).cause.startswith("the program raised RuntimeError: no kernel")
    direct = chained.replace(during, "The above exception was the direct cause of the following exception:")
    assert _failure(tmp_path, direct).cause.startswith("the program raised KeyError")


def test_the_text_of_an_exception_may_stand_below_its_name(tmp_path):
    """Ranks that share a log write into each other: the name of one ends the line of another."""
    torn = "    raise ValueError(text)ValueError\n: no such set.ValueError\n: no such set.\n"
    assert "ValueError: no such set." in _failure(tmp_path, torn).cause
    listed = "RuntimeError: 1 error in the settings:\n  cp_size must be positive\n"
    assert "in the settings: cp_size must be positive" in _failure(tmp_path, listed).cause


def test_a_stack_below_an_exception_does_not_show_that_its_process_went_on(tmp_path):
    rays = "(Worker pid=7, ip=10.0.0.2) "
    raised = f"{rays}Traceback (most recent call last):\n{rays}{FRAME.splitlines()[0]}\n{rays}ValueError: no\n"
    stack = "".join(f"{rays}frame #{n}: c10::Error::Error() + 0x9{n}\n" for n in range(9))
    assert _failure(tmp_path, raised + stack).signature.id == "exception"


def test_what_pythons_tracker_of_resources_raises_is_no_failure(tmp_path):
    frame = '  File "/usr/lib/python3.10/multiprocessing/resource_tracker.py", line 209, in main\n    remove(name)\n'
    assert _failure(tmp_path, f"Traceback (most recent call last):\n{frame}KeyError: '/psm_790b75f7'\n") is None


def test_a_traceback_that_breaks_off_says_where_when_nothing_else_is_known(tmp_path):
    diagnosis = _read(tmp_path, f"Traceback (most recent call last):\n{FRAME}")
    assert diagnosis.unclear == "error-line"
    assert "breaks off here: data.read() (train.py:9, in main: data.read())" in diagnosis.unnamed[2]


def test_a_warning_that_repeats_before_the_first_step_is_quoted_with_what_it_means(tmp_path):
    waits = (
        "(autoscaler +1m5s) Warning: The following resource request cannot be scheduled right now: {'CPU': 0.2}. This\n"
    )
    diagnosis = _read(tmp_path, waits * 3)
    assert diagnosis.failure is None and diagnosis.unnamed[2].startswith("the job waits for resources")
    assert _read(tmp_path, waits * 2).unnamed is None


def test_of_the_last_words_the_one_that_names_an_error_is_quoted(tmp_path):
    words = "xformers was not found\nthe engine failed with an error: no memory\n"
    assert _read(tmp_path, "loading the tokenizer\n" + words).unnamed[1] == 3


TASK = "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=77, ip=10.0.0.1, actor_id=ab)"


def test_what_ray_passes_on_of_a_worker_is_read_as_far_as_it_goes(tmp_path):
    def cause(text):
        failure = _read(tmp_path, text).failure
        return failure and failure.cause

    frames = '  File "/verl/w.py", line 115, in init\n    check(self.world)\n'
    assert cause(f"{TASK} ValueError: no tokens\n") == "a Ray worker raised ValueError: no tokens"
    assert "no tokens (w.py:115, in init: check(self.world))" in cause(f"{TASK}\n{frames}ValueError: no tokens\n")
    assert cause(f"{TASK}\n{frames}").endswith("do not say more (w.py:115, in init: check(self.world))")
    assert cause(f"{TASK}\n") == "Ray reports the failure of a worker (ValueError); these lines do not say more"


def test_a_line_that_announces_a_traceback_is_not_the_cause(tmp_path):
    """ray-project/ray#42201"""
    told = "2026-01-09 17:49:32,362\tERROR x.py:911 -- Trial task failed for trial f_00005\n"
    raised = (
        'Traceback (most recent call last):\n  File "w.py", line 2, in get\n    go()\nray.exceptions.RayActorError: x\n'
    )
    failure = _read(tmp_path, told + raised).failure
    assert failure and failure.signature.id == "ray-wrapper"
    assert _read(tmp_path, told + "bye\n").unclear == "error-line"


def test_a_source_line_of_a_traceback_is_never_what_was_raised(tmp_path):
    source = 'if late: raise TimeoutError("Connection reset by peer")'
    text = f'Traceback (most recent call last):\n  File "a.py", line 3, in read\n    {source}\nKeyError: "x"\n'
    log = tmp_path / "a.log"
    log.write_text(text)
    failure = triage([log], CpPlan()).failure
    assert failure is not None and failure.message.startswith("KeyError")
