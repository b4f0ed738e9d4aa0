"""Which releases judge a launch that states none."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.judge.run import run, start_of
from megatron_hcp.launch.facts.known_options import revisions_with
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.rules.view import View
from megatron_hcp.validators.upstreams import MEGATRON_LM

CORE = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
    "--micro-batch-size 1"
)


def checked(words: str, *assumes: str) -> Report:
    launch = load_launch("", LoadOptions(words=(*CORE.split(), *words.split()), assumes=assumes))
    return check_launch(launch, rules_for, fixes=False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rotary-interleaved --position-embedding-type rope", "(up to 0.13.1)"),
        ("--deterministic-mode --use-flash-attn", "(up to 0.18.2)"),
    ],
)
def test_what_only_older_releases_refuse_is_a_warning_that_names_the_last_of_them(words: str, says: str) -> None:
    found = [item for item in checked(words).findings if item.id.startswith("START")]
    assert [item.severity for item in found] == ["warning"]
    assert says in found[0].problem.message
    assert not [item for item in checked(words, "mcore=0.19.0").findings if item.id.startswith("START")]


@pytest.mark.parametrize(
    ("words", "release"),
    [
        ("--num-experts 8 --moe-flex-dispatcher-backend ncclep", "(0.19.0)"),
        ("--experimental-attention-variant gdn", "(main)"),  # a choice that no release has yet
    ],
)
def test_releases_whose_parser_refuses_a_value_do_not_judge_what_the_others_refuse(words: str, release: str) -> None:
    found = checked(f"--bf16 {words}").findings
    assert [item.severity for item in found if item.rule.id == "KEY008"] == ["warning"]
    (error,) = (item for item in found if item.severity == "error")
    assert error.id.startswith("START003/") and release in error.problem.message


def test_what_all_releases_of_nemo_rl_refuse_and_its_main_branch_takes_is_a_warning(tmp_path: Path) -> None:
    """TensorRT-LLM as a backend came after 0.7.0 (7ea279ab's own recipes use it)."""
    file = tmp_path / "grpo.yaml"
    file.write_text(
        "policy:\n  model_name: Qwen/Qwen3-8B\n  train_global_batch_size: 8\n  train_micro_batch_size: 1\n"
        "  dtensor_cfg: {enabled: false}\n  megatron_cfg: {enabled: true, context_parallel_size: 1}\n"
        "  generation: {backend: trtllm}\ngrpo: {num_prompts_per_step: 8}\ncluster: {gpus_per_node: 8, num_nodes: 1}\n"
    )
    for assumes, severity in (((), "warning"), (("nemo_rl=0.7.0",), "error")):
        report = check_launch(load_launch(str(file), LoadOptions(assumes=assumes)), rules_for, fixes=False)
        refused = [item for item in report.findings if "is not assigned" in item.problem.message]
        assert [item.severity for item in refused] == [severity]


def test_a_launch_that_no_release_refuses_is_judged_by_the_newest_that_has_its_options() -> None:
    assert [one.release for one in checked("--deterministic-mode").judged_by] == [MEGATRON_LM.releases[-1]]


def test_what_a_few_words_do_not_state_asks_no_older_release() -> None:
    launch = load_launch("", LoadOptions(words=("--context-parallel-size", "2")))
    (judged,) = check_launch(launch, rules_for, fixes=False).judged_by
    assert judged.refusals and judged.release == MEGATRON_LM.releases[-1]


@pytest.mark.parametrize(
    "words",
    [
        "--bf16 --fp16",
        "--bf16",
        "--rotary-interleaved --position-embedding-type rope",
        "--deterministic-mode --use-flash-attn",
        "--use-fused-mhc",
        "--context-parallel-size 4 --cp-comm-type a2a+p2p",
        "--bf16 --optimizer-cpu-offload --overlap-param-gather",
    ],
)
@pytest.mark.parametrize("assumes", [(), ("mcore=0.16.1",)])
def test_a_trial_finds_the_errors_that_a_check_finds(words: str, assumes: tuple[str, ...]) -> None:
    launch = load_launch("", LoadOptions(words=(*CORE.split(), *words.split()), assumes=assumes))
    rules = [rule for rule in rules_for(launch) if not rule.last]
    found = run(View(launch), rules).findings
    whole = [item.id for item in start_of(launch, rules, found).findings if item.severity == "error"]
    assert [item.id for item in start_of(launch, rules, found, errors_only=True).findings] == whole


def test_options_that_no_release_has_yet_are_judged_by_the_branch_that_has_them() -> None:
    assert revisions_with("use_fused_mhc") == ("dev",)
    (found,) = [item for item in checked("--use-fused-mhc").findings if item.id.startswith("START")]
    assert found.severity == "error" and "use_fused_mhc requires enable_hyper_connections" in found.problem.message
