"""Guards of upstream's start-up that a hidden setting may violate leave a launch undecided."""

from __future__ import annotations

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Finding, Report
from megatron_hcp.judge.start.undecided import refused_without, undecided_by_guards
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import BY_ID, rules_for

CORE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --bf16 "
    "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8"
)


def launch_of(words: str) -> Launch:
    return build_launch(read_text(f"{CORE} {words}\n", "x.sh"))


def undecided(launch: Launch) -> set[str]:
    (judged,) = check_launch(launch, rules_for, fixes=False).judged_by
    return {need for one in undecided_by_guards(launch, judged) for need in one.needs}


def test_a_hidden_setting_that_a_guard_may_refuse_is_undecided() -> None:
    assert undecided(launch_of("--micro-batch-size $MBS")) == {"micro_batch_size"}
    assert undecided(launch_of("--log-interval $SECONDS")) == set()


def test_what_the_bound_on_trials_leaves_untried_is_undecided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = launch_of("--micro-batch-size $MBS --num-experts $EXPERTS")
    assert undecided(launch) == {"micro_batch_size"}
    for bound in ("_MOST_TRIALS", "_MOST_STEPS"):
        with monkeypatch.context() as bounded:
            bounded.setattr(f"megatron_hcp.judge.start.undecided.{bound}", 0)
            assert undecided(launch) == {"micro_batch_size", "num_experts"}, bound


def test_a_setting_that_decides_no_guard_alone_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream reads the number of layers below conditions about the granularity, which stays unknown meanwhile."""
    monkeypatch.setattr("megatron_hcp.judge.start.undecided._MOST_TRIALS", 0)
    assert undecided(launch_of("--recompute-granularity $R --recompute-num-layers $N")) == {"recompute_granularity"}


def test_a_value_that_takes_too_many_steps_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("megatron_hcp.judge.start.undecided._MOST_STEPS_OF_ONE", 1)
    assert undecided(launch_of("--recompute-granularity $R")) == set()


def test_a_check_without_a_verdict_tries_no_guard() -> None:
    launch = launch_of("--micro-batch-size $MBS")
    assert check_launch(launch, rules_for).undecided
    assert check_launch(launch, rules_for, verdict=False).undecided == ()
    assert check_launch(launch, [BY_ID["CP001"]], verdict=False).undecided == ()


VARIABLE = "env.NVTE_CPU_OFFLOAD_V1"
OFFLOADING = "--fine-grained-activation-offloading --offload-modules attn_norm --transformer-impl transformer_engine"


@pytest.mark.parametrize(
    ("before", "words", "stated", "severities", "needs"),
    [
        ("", OFFLOADING, (), ["error"], []),
        ("", OFFLOADING, ("env.NVTE_CPU_OFFLOAD_V1=1",), [], []),
        ("export NVTE_CPU_OFFLOAD_V1=1\n", OFFLOADING, (), [], []),
        ("docker run --env-file job.env nvcr.io/nvidia/pytorch:25.09-py3 ", OFFLOADING, (), [], [VARIABLE]),
        ("uv run --env-file=job.env ", OFFLOADING, (), [], [VARIABLE]),
        ("uv run ", OFFLOADING, (), ["error"], []),
        ("export NVTE_CPU_OFFLOAD_V1=$V1\n", OFFLOADING, (), [], [VARIABLE]),
        ("", "", (), [], []),
    ],
)
def test_a_variable_that_a_script_leaves_unset_is_unset_unless_the_launch_hides_it(
    before: str, words: str, stated: tuple[str, ...], severities: list[str], needs: list[str]
) -> None:
    assumed = parse_assumptions(["mcore=0.19.0", "te=2.20.0", "arch=sm90", *stated])
    launch = build_launch(read_text(f"{before}{CORE} {words}\n", "x.sh"), assumed=assumed)
    report = check_launch(launch, rules_for)
    found = [one for one in report.findings if "NVTE_CPU_OFFLOAD_V1" in one.problem.message]
    assert [one.severity for one in found] == severities
    assert [need for one in report.undecided for need in one.needs if need == VARIABLE] == needs


NEMO_RL = """\
policy:
  train_micro_batch_size: 1
  logprob_batch_size: 4
  megatron_cfg: {enabled: true, pipeline_dtype: bfloat16, tensor_model_parallel_size: 4}
cluster: {num_nodes: 1, gpus_per_node: 8}
"""


@pytest.mark.parametrize(("stated", "severities"), [((), ["warning"]), (("env.NRL_IGNORE_TP_ACCURACY_CHECK=1",), [])])
def test_a_configuration_is_warned_of_a_variable_that_its_job_has_to_set(
    stated: tuple[str, ...], severities: list[str]
) -> None:
    """Policy.__init__ of nemo_rl/models/policy/lm_policy.py: batch sizes that differ at a TP size of 4 or more."""
    text = f"{NEMO_RL}loss_fn: {{force_on_policy_ratio: false}}\n"
    launch = build_launch(read_text(text, "x.yaml"), assumed=parse_assumptions(stated))
    report = check_launch(launch, rules_for)
    said = [one for one in report.findings if "unless the job sets NRL_IGNORE_TP_ACCURACY_CHECK" in one.problem.message]
    assert [one.severity for one in said] == severities
    assert all("env" not in need for one in report.undecided for need in one.needs)


@pytest.mark.parametrize(("forced", "is_said"), [("true", False), ("false", True)])
def test_a_variable_that_nemo_rls_own_code_sets_is_not_asked_for(forced: str, is_said: bool) -> None:
    """setup in nemo_rl/algorithms/grpo.py sets it where the ratio is forced."""
    text = f"{NEMO_RL}loss_fn: {{force_on_policy_ratio: {forced}}}\n"
    report = check_launch(build_launch(read_text(text, "x.yaml")), rules_for)
    assert is_said == any("unless the job sets NRL_IGNORE" in one.problem.message for one in report.findings)


def test_a_variable_that_nemo_rls_own_container_sets_is_not_asked_for() -> None:
    launch = build_launch(read_text("policy:\n  megatron_cfg: {enabled: true, pipeline_dtype: bfloat16}\n", "x.yaml"))
    (judged,) = check_launch(launch, rules_for, fixes=False).judged_by
    assert any("env.TORCH_CUDA_ARCH_LIST" in item.unknown for item in judged.open)
    assert not refused_without(launch, judged, rules_for(launch), (), ())


def test_a_variable_that_a_rule_asks_for_is_left_to_it() -> None:
    assumed = parse_assumptions(["mcore=0.19.0", "te=2.20.0", "arch=sm90"])
    launch = build_launch(read_text(f"{CORE} --tensor-model-parallel-size 2\n", "x.sh"), assumed=assumed)
    (judged,) = check_launch(launch, rules_for, fixes=False).judged_by
    (said,) = refused_without(launch, judged, rules_for(launch), (), ())
    assert isinstance(said, Finding) and "CUDA_DEVICE_MAX_CONNECTIONS" in said.problem.message
    assert not check_launch(launch, rules_for).undecided


def test_the_variables_of_deterministic_mode_are_judged_once_and_those_left_out_are_not_asked_for() -> None:
    assumed = parse_assumptions(["mcore=0.19.0", "te=2.18.0", "arch=sm90"])

    def report(exports: str) -> Report:
        text = f"{exports}\n{CORE} --deterministic-mode --train-iters 9 --eval-interval 5\n"
        return check_launch(build_launch(read_text(text, "x.sh"), assumed=assumed), rules_for)

    for exports in ("export NCCL_ALGO=Tree", "export NVTE_ALLOW_NONDETERMINISTIC_ALGO=1"):
        assert [(one.id, one.severity) for one in report(exports).findings] == [("CP017", "error")], exports
        assert report(exports).undecided == ()
    (own,) = report("export CUBLAS_WORKSPACE_CONFIG=0").findings
    assert own.id.startswith("START001/apply_determinism_env/")


def test_guards_behind_what_could_not_be_read_do_not_count_as_passed() -> None:
    # slime sets every key of such a file, whatever it names, on Megatron-LM's arguments.
    words = "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --num-layers 8 --rollout-batch-size 8"
    read, hidden = (
        check_launch(build_launch(read_text(f"{words} {more}\n", "x.sh")), rules_for, fixes=False).judged_by[-1]
        for more in ("", "--custom-config-path x.yaml")
    )
    assert hidden.unreadable > read.unreadable + 100
    assert hidden.evaluated + hidden.unreadable == read.evaluated + read.unreadable
