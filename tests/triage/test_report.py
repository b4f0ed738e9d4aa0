"""What triage says of texts from outside: nothing that a shell or a terminal would take for more than a text."""

import json
import shlex

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_document, diagnosis_json
from megatron_hcp.triage.screen_text import diagnosis_text
from megatron_hcp.triage.signatures.table import SIGNATURES
from support.examples import EXAMPLES
from support.logs import context_of, said
from support.rows import rows

CANCELLED = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-08-22T10:00:00 ***\n"


def _start(**fields):
    record = {"event": "start", "job": "12", "attempt": 0, "start": "srun", "nodes": ["n1"], "gpus_per_node": 8}
    return "hcp-job: " + json.dumps({**record, **fields}) + "\n"


def _diagnosis(tmp_path, text, launch=None):
    (tmp_path / "x.log").write_text(text)
    return triage([tmp_path / "x.log"], CpPlan())


def _next(tmp_path, text, launch=None):
    diagnosis = _diagnosis(tmp_path, text)
    return diagnosis_json(diagnosis, launch)["first_failure"]["next"], diagnosis_text(diagnosis, launch)


def test_a_job_id_reaches_the_commands(tmp_path):
    for job in ("12", "12_3", "12+1"):
        steps, _ = _next(tmp_path, _start(job=job) + CANCELLED)
        assert steps == [f"sacct -j {job} --format=JobID,State,ExitCode,NodeList,MaxRSS"]


@pytest.mark.parametrize("job", ["1; curl x|sh #", "$(reboot)", "1\n2", "-rf", "1 2", "١٢", "9" * 50, 12, ["1"], True])
def test_a_job_id_that_slurm_would_not_give_is_left_out_and_said_so(tmp_path, job):
    steps, text = _next(tmp_path, _start(job=job) + CANCELLED)
    assert steps == ["sacct -j JOBID --format=JobID,State,ExitCode,NodeList,MaxRSS"]
    assert "left out: job of a line 'start': the log gives no usable value" in text and "curl" not in text


@pytest.mark.parametrize("node", ["n1;reboot", "$(x)", "-rf", "n1&", "a'b", "n" * 300])
def test_a_node_that_no_node_is_called_is_left_out_and_said_so(tmp_path, node):
    steps, text = _next(tmp_path, f"slurmstepd: error: Node failure on {node}\n")
    assert "--exclude=NODE" in steps[0] and f" on {node}" not in text.partition("\n")[0]
    assert "left out: the node of the failing rank" in text
    steps, text = _next(tmp_path, _start(nodes=[node]) + "0: RuntimeError: CUDA error: uncorrectable ECC error\n")
    assert "--exclude=NODE" in steps[0] and "left out: nodes of a line 'start'" in text


def test_a_rule_that_a_log_names_is_explained_only_if_there_is_one(tmp_path):
    line = "x.sh:1:1: error {} it stops\n"
    steps, text = _next(tmp_path, line.format("HCP002"))
    assert steps[0] == "hcp explain HCP002" and "[HCP002]" in text
    steps, text = _next(tmp_path, line.format("ZZZ999"))
    assert not any("explain" in step for step in steps) and "[ZZZ999]" not in text


@pytest.mark.parametrize("launch", ["my train.sh", "a;b.sh", "-x.sh", "$(touch PWNED).sh", "it's.sh", "&"])
def test_the_launch_is_one_word_of_the_commands_and_no_option(tmp_path, launch):
    steps, _ = _next(tmp_path, "AssertionError: Unsupported communication type: x\n", launch)
    word = shlex.split(steps[0])[2]
    assert word in (launch, f"./{launch}") and not word.startswith("-")
    assert len(shlex.split(steps[0])) == 5


def test_a_launch_that_no_line_can_show_is_left_out_and_said_so(tmp_path):
    steps, text = _next(tmp_path, "AssertionError: Unsupported communication type: x\n", "a\nb.sh")
    assert steps[0] == "hcp check LAUNCH --select CP004" and "left out: the launch's name" in text


def test_what_a_log_says_is_never_a_place_to_fill(tmp_path):
    text = "x.sh:1:1: error HCP002 {rule} {launch} {text}\n"
    failure = _diagnosis(tmp_path, text).failure
    assert failure.cause == "hcp check stopped the job in phase 0: {rule} {launch} {text}"


HOSTILE = "\x1b]52;c;eA==\x07 \u202egnp \x9b31m \x08\x7f ::error::x"


def test_control_characters_of_a_log_are_shown_and_not_sent(tmp_path):
    diagnosis = _diagnosis(tmp_path, f"ValueError: {HOSTILE}\n" + _start(job="1\x1b[2J"))
    text, document = diagnosis_text(diagnosis, "a\x1b.sh"), diagnosis_document(diagnosis, "a\x1b.sh")
    assert all(line.isprintable() for line in text.splitlines()) and r"\u202egnp" in text
    assert document.replace("\n", "").isprintable() and document.isascii()
    said = json.loads(document)["first_failure"]["message"]
    assert said == f"ValueError: {HOSTILE}"


def test_a_file_name_of_control_characters_is_shown_and_not_sent(tmp_path):
    path = tmp_path / "a\x1b[2J\n::error::x\udcff.log"
    path.write_text("ValueError: no\n")
    diagnosis = triage([path], CpPlan())
    assert r"a\x1b[2J\n::error::x\udcff.log:1: ValueError: no" in diagnosis_text(diagnosis, None)
    assert json.loads(diagnosis_document(diagnosis, None))["files"] == [str(path)]


def test_a_long_text_of_a_log_is_cut(tmp_path):
    diagnosis = _diagnosis(tmp_path, "ValueError: " + "x" * 100_000 + " y\n" + "ValueError: " + "x " * 3000)
    assert len(diagnosis_text(diagnosis, None)) < 1500


def test_a_time_that_a_line_above_states_is_not_the_failures(tmp_path):
    diagnosis = _diagnosis(tmp_path, "[2026-08-22 10:00:03] loading\nValueError: no\n")
    assert "10:00:03" not in diagnosis_text(diagnosis, None)
    failure = diagnosis_json(diagnosis, None)["first_failure"]
    assert (failure["time"], failure["time_is_stated"]) == (None, False)
    diagnosis = _diagnosis(tmp_path, "[2026-08-22 10:00:03] ValueError: no\n")
    assert ", at 08-22 10:00:03" in diagnosis_text(diagnosis, None)


def test_a_healthy_log_is_not_said_to_hold_failures(tmp_path):
    step = "iteration 8/ 9 | elapsed time per iteration (ms): 5.0 |\n"
    text = diagnosis_text(_diagnosis(tmp_path, "ValueError: no\n" + step * 3), None)
    assert text.startswith("no failure in 1 file, 3 training steps\ntraining went on after 1 known error line")


def test_a_dead_jobs_context_parallelism_is_a_matter_only_where_its_logs_show_something(tmp_path):
    """That the job started with some sizes says nothing about its attention: there is no process left to ask."""
    sizes = "using world size: 8, data-parallel size: 1, context-parallel size: 8 hierarchical context-parallel sizes: "
    oom = "torch.OutOfMemoryError: CUDA out of memory.\n"
    dead = _diagnosis(tmp_path, f"{sizes}[4, 2]\n{oom}")
    assert "context parallelism" not in diagnosis_text(dead, None)
    assert diagnosis_json(dead, None)["context_parallel"]["next"] == []
    alive = _diagnosis(tmp_path, f"{sizes}[4, 2]\niteration 8/ 9 | elapsed time per iteration (ms): 5.0 |\n")
    assert "context parallelism: unknown" in diagnosis_text(alive, None)
    assert diagnosis_json(alive, None)["context_parallel"]["next"]
    (tmp_path / "x.log").write_text(f"{sizes}[4, 2]\n{oom}")
    off = triage([tmp_path / "x.log"], CpPlan(cp=2))
    assert "context parallelism: on, but in other groups" in diagnosis_text(off, None)


def test_an_exceptions_name_that_is_not_said_leaves_no_empty_parentheses(tmp_path):
    named = _diagnosis(tmp_path, "terminate called after throwing an instance of 'c10::DistBackendError'\n").failure
    assert named.cause == "an uncaught C++ exception (c10::DistBackendError) ended a process"
    unnamed = _diagnosis(tmp_path, "terminate called without an active exception\n").failure
    assert unnamed.cause == "an uncaught C++ exception ended a process"


@pytest.mark.slow
@rows("row", SIGNATURES)
def test_every_step_of_the_table_can_be_filled(row, tmp_path):
    steps, _ = _next(tmp_path, _start() + context_of(row) + said(row, EXAMPLES[row.id].example) + "\n", "train.sh")
    assert not any("{" in step or "}" in step for step in steps)
