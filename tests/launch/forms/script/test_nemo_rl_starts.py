"""The ways in which NeMo-RL's programs are started: by name, by a file that Ray runs, without a configuration."""

from __future__ import annotations

import pytest

from launch.forms.script.test_commands import read
from megatron_hcp.ground.errors import HcpError


@pytest.mark.parametrize("script", ["run_grpo.py", "run_sft.py", "run_grpo_math.py"])
def test_nemo_rl_without_config_takes_the_programs_own_which_is_named_where_it_is_not_found(script: str) -> None:
    reading = read(f"uv run python examples/{script} cluster.num_nodes=2")
    assert reading.dialect == "nemo-rl"
    assert f"examples/configs/{'grpo_math_1B' if 'grpo' in script else 'sft'}.yaml" in str(reading.unseen)


def test_a_users_own_program_with_a_configuration_and_nemo_rls_sections_is_nemo_rls() -> None:
    assert read("uv run own/run.py --config=a.yaml loss_fn.ratio_clip_min=0.2 cluster.num_nodes=2").dialect == "nemo-rl"


@pytest.mark.parametrize(
    ("command", "is_read"), [("swift sft --model x", "megatron sft"), ("python nemo_rl/run.py", "run_grpo")]
)
def test_of_a_framework_that_is_read_in_part_it_is_said_which(command: str, is_read: str) -> None:
    with pytest.raises(HcpError) as refused:
        read(command)
    assert is_read in str(refused.value) and "Megatron-Bridge" not in str(refused.value)


@pytest.mark.parametrize("start", ["source ray.sub", "bash /a/ray_patched.sub", "JOB=$(sbatch --nodes=2 ray.sub)"])
def test_what_a_ray_sub_runs_is_read_however_it_is_started(start: str) -> None:
    launch = read(f'export COMMAND="uv run examples/run_grpo.py cluster.num_nodes=2"\n{start}\n')
    assert launch.dialect == "nemo-rl" and launch.ordinal == -1
