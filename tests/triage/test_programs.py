"""A program that was not found: the training's, which ended the job, or one that its script goes without."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from support.logs import write_logs


def _failure(tmp_path, **files):
    return triage(write_logs(tmp_path, **files), CpPlan()).failure


def test_a_command_that_starts_another_names_the_program_that_it_did_not_find(tmp_path):
    ended = "srun: error: n1: task 0: Exited with exit code 127\n"
    for said in ("nice: ‘/opt/x/python’", "/usr/bin/env: 'python9'", "numactl: execution of `python9'"):
        text = f"{said}: No such file or directory\n{ended}"
        assert _failure(tmp_path, a_log=text).line == 1, said
        assert _failure(tmp_path, a_log=text.replace("code 127", "code 1")).line == 2, "the job did without it"


def test_a_container_whose_program_is_not_found_ends_by_an_exit_code_of_its_runtime(tmp_path):
    """Singularity's is 255."""
    said = 'FATAL:   "train": executable file not found in $PATH\nsrun: error: n1: task 0: Exited with exit code 255\n'
    assert _failure(tmp_path, a_log=said).signature.id == "program-unknown"


@pytest.mark.parametrize(
    "said",
    [
        "env: ‘nvcc’: No such file or directory\n",
        'time="x" level=error msg="exec: \\"nvidia-smi\\": executable file not found in $PATH"\n',
    ],
    ids=["env", "container"],
)
def test_a_program_that_a_script_does_without_is_not_what_ended_the_job(tmp_path, said):
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert _failure(tmp_path, a_log=said + memory).signature.id == "gpu-memory"
    assert _failure(tmp_path, a_log=said, b_log=memory).signature.id == "gpu-memory"
    assert _failure(tmp_path, a_log=said + "RuntimeError: no queue\n").signature.id == "exception"
    assert _failure(tmp_path, a_log=said).signature.id == "program-unknown"
    ended = "srun: error: n1: task 0: Exited with exit code 127\n"
    assert _failure(tmp_path, a_log=said + ended + "RuntimeError: no queue\n").signature.id == "program-unknown"
