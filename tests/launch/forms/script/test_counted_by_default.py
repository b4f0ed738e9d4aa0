"""A number of nodes that is only a default: whoever starts the script may set another."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for

VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.megatron.tensor_model_parallel_size=8 "
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 trainer.n_gpus_per_node=8 trainer.nnodes="
)
MLM = (
    "torchrun --nproc-per-node 8 --nnodes {} pretrain_gpt.py --tensor-model-parallel-size 8 "
    "--pipeline-model-parallel-size 2"
)


@pytest.mark.parametrize(
    ("command", "is_hedged"),
    [
        (VERL + "$NNODES", True),
        (VERL + "1", False),
        (MLM.format("$NNODES"), True),
        (MLM.format("1"), False),
        (MLM.format("1") + " --seq-length ${NNODES}", False),  # no count
    ],
)
def test_an_error_about_ranks_says_which_variable_may_change_them(
    tmp_path: Path, command: str, is_hedged: bool
) -> None:
    """PET_NNODES is what a PyTorchJob sets."""
    file = tmp_path / "run.sh"
    file.write_text(f"NNODES=${{PET_NNODES:-1}}\n{command}\n")
    findings = check_launch(load_launch(str(file), LoadOptions()), rules_for, fixes=False).findings
    message = next(finding.problem.message for finding in findings if finding.rule.id == "TOPO003")
    assert message.startswith("unless PET_NNODES is set, ") is is_hedged
