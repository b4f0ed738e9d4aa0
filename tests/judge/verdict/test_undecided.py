"""The third verdict: an error rule depends on a setting that could not be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.ground.place import Location
from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.report import Report
from megatron_hcp.judge.run import run
from megatron_hcp.judge.verdict.undecided import once_for_arguments, undecided_by
from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Beside
from megatron_hcp.launch.hidden import key_to_set
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.launch.readers.target import read_text
from megatron_hcp.rules.registry import rules_for
from megatron_hcp.rules.rule import Example, Problem, rule
from megatron_hcp.rules.view import View
from support.launches import CP, HCP, KV, LEVELS, TP

WHOLE = f"--num-layers 4 --num-attention-heads 32 {KV} 8 --hidden-size 512 --seq-length 4096 {TP} 2"


def of_script(tmp_path: Path, arguments: str, before: str = "", **options: tuple[str, ...]) -> Report:
    file = tmp_path / "train.sh"
    start = "torchrun --nproc-per-node 8 pretrain_gpt.py"
    file.write_text(f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n{before}\n{start} {arguments}\n")
    launch = load_launch(str(file), LoadOptions(**options))  # type: ignore[arg-type]
    return check_launch(launch, rules_for, fixes=False)


def of_words(*words: str, **options: object) -> Report:
    launch = load_launch("", LoadOptions(words=words, **options))  # type: ignore[arg-type]
    return check_launch(launch, rules_for, fixes=False)


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (f"{WHOLE} {CP} $N", "cp"),
        (f"{WHOLE} {CP} 2 --cp-comm-type $TYPE", "cp_comm_type"),
        (f"{WHOLE} {CP} 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes $SIZES", "hcp_sizes"),
        (f"{WHOLE} {HCP} --softmax-type $(cat softmax)", "softmax_type"),
        (WHOLE.replace("4096", "$LENGTH") + f" {CP} 2", "seq_length"),
        (f"{WHOLE} {CP} 2 --window-size $WINDOW", "window_size"),
    ],
)
def test_a_hidden_setting_that_can_be_wrong_leaves_the_launch_undecided(
    tmp_path: Path, arguments: str, needs: str
) -> None:
    report = of_script(tmp_path, arguments)
    assert report.verdict == "undecided"
    assert needs in [name for item in report.undecided for name in item.needs]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "before",
    [
        'WORDS="$(python3 model_args.py qwen)" || exit 1\nread -ra MODEL_ARGS <<< "$WORDS"',
        "MODEL_ARGS=($(python3 model_args.py qwen))",
    ],
)
def test_options_that_a_command_prints_are_to_be_written_down(tmp_path: Path, before: str) -> None:
    report = of_script(tmp_path, f"{CP} 2 ${{MODEL_ARGS[@]}}", before)
    (item,) = (item for item in report.undecided if item.reason.endswith("commands are never run"))
    assert item.reason.startswith("the output of a command in line 3 ")
    assert item.location is not None and item.location.line == 3
    assert item.do.startswith("write in the script what that command prints, or state what it sets (--set ")
    (single,) = of_script(tmp_path, f"{WHOLE} {CP} $(cat cp)").undecided
    assert single.do.startswith("give its value")


def test_so_are_the_variables_of_a_sourced_output(tmp_path: Path) -> None:
    report = of_script(tmp_path, f"{WHOLE} {CP} $N", "source <(python3 settings.py)")
    (item,) = report.undecided
    assert "line 3" in item.reason and item.needs == ("cp",)


@pytest.mark.parametrize(
    "arguments",
    [
        f"{WHOLE} {CP} 2 --seed $SEED",
        f"{WHOLE} {CP} 2 --save $OUT --load $OUT --data-path $DATA",
        f"{WHOLE} {CP} 2 --lr $LR --train-iters $(cat iters)",
    ],
)
def test_a_hidden_setting_that_no_rule_depends_on_leaves_it_decided(tmp_path: Path, arguments: str) -> None:
    report = of_script(tmp_path, arguments)
    assert (report.verdict, report.undecided) == ("ok", ())


def test_a_setting_that_is_right_at_every_value_is_decided(tmp_path: Path) -> None:
    # Without CP every communication type is as good as another; with it one of them lacks its sizes.
    assert of_script(tmp_path, f"{WHOLE} --window-size $WINDOW").verdict == "ok"
    assert of_script(tmp_path, f"{WHOLE} {CP} 2 --window-size $WINDOW").verdict == "undecided"


def test_an_error_outranks_what_is_undecided(tmp_path: Path) -> None:
    report = of_script(tmp_path, f"{WHOLE} {CP} 4 --cp-comm-type a2a+p2p --window-size $WINDOW")
    assert report.verdict == "failed"
    assert report.undecided


def test_the_reason_names_the_line_and_the_one_thing_to_do(tmp_path: Path) -> None:
    report = of_script(tmp_path, f"{WHOLE} {CP} 2 ${{MODEL_ARGS[@]}}", before="source models/x.sh")
    first = report.undecided[0]
    assert first.reason == "line 3 sources models/x.sh, which is not read"
    assert first.location is not None
    assert first.location.line == 3
    assert first.do.startswith("give that file with --source")


def test_what_the_reason_asks_for_settles_it(tmp_path: Path) -> None:
    arguments = f"{WHOLE} {CP} 2 --cp-comm-type $TYPE"
    assert "--set cp_comm_type=VALUE" in of_script(tmp_path, arguments).undecided[0].do
    assert of_script(tmp_path, arguments, sets=("cp_comm_type=p2p",)).verdict == "ok"


def test_missing_versions_and_cluster_facts_are_a_note() -> None:
    report = of_words(*f"{WHOLE} {HCP}".split())
    assert report.not_checked
    assert report.verdict == "ok"


def test_an_override_list_without_its_recipe_is_undecided() -> None:
    report = of_words("model.context_parallel_size=2")
    assert report.verdict == "undecided"
    assert report.undecided[0].reason == "the recipe is unknown, and it sets what this launch omits"


def test_a_release_that_is_not_stated_leaves_no_recipe_undecided_but_its_rule_unchecked() -> None:
    """glm45_355b_pretrain_config: its first and last stage have sizes of their own in some releases."""
    name = "glm45_355b_pretrain_config"
    report = of_words("model.cp_comm_type=p2p", recipe=name)
    assert report.verdict == "ok"
    open_ = {item.rule.id: item.needs for item in report.not_checked}
    assert open_["PIPE001"] == ("first_stage_layers",)
    assert key_to_set(report.launch, "first_stage_layers") == "--assume bridge=VERSION"
    stated = of_words("model.cp_comm_type=p2p", recipe=name, assumes=("bridge=0.6.2 world_size=256",))
    assert "PIPE001" not in [item.rule.id for item in stated.not_checked]


def test_a_misspelled_override_of_a_recipe_is_found_though_no_word_tells_the_framework() -> None:
    report = of_words("model.cp_comm_typ=p2p", recipe="llama3_8b_128k_pretrain_config")
    assert [item.problem.wanted for item in report.findings if item.rule.id == "KEY001"] == ["model.cp_comm_type"]


def test_families_that_a_hidden_setting_could_concern_are_asked(tmp_path: Path) -> None:
    switch = "if [ -f here ]; then DYNAMIC=--hybrid-context-parallel; fi"
    report = of_script(tmp_path, f"{WHOLE} {CP} 4 $DYNAMIC", before=switch)
    needs = [name for item in report.undecided for name in item.needs]
    assert "hybrid_context_parallel" in needs


VERL = (
    "model_engine=megatron",
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
)
A2A = "+actor_rollout_ref.actor.megatron.override_transformer_config.cp_comm_type=a2a"


def test_a_hidden_models_sizes_count_where_a_layout_divides_them_and_all_of_it_for_context_parallelism() -> None:
    with_tp = of_words(*VERL)
    assert with_tp.verdict == "undecided"
    assert with_tp.undecided[0].reason == "the launch doesn't show the model's sizes and layers"
    assert set(with_tp.undecided[0].needs) <= {"heads", "kv_heads"}
    single = [word for word in VERL if "tensor" not in word]
    assert of_words(*single).verdict == "ok"
    cp = "actor_rollout_ref.actor.megatron.context_parallel_size=2"
    assert of_words(*single, cp, A2A).verdict == "undecided"
    assert of_words(*VERL, "actor_rollout_ref.model.path=Qwen/Qwen3-8B").verdict == "ok"


@pytest.mark.parametrize(("sizes", "verdict"), [(("2", "4"), "ok"), (("2", "3"), "undecided")])
def test_what_a_branch_leaves_possible_is_all_that_is_tried(
    tmp_path: Path, sizes: tuple[str, str], verdict: str
) -> None:
    before = f"T={sizes[0]}\nif foo; then T={sizes[1]}; fi\n"
    assert of_script(tmp_path, f"{WHOLE} --pipeline-model-parallel-size $T", before).verdict == verdict


def test_every_reason_stands_once(tmp_path: Path) -> None:
    report = of_script(tmp_path, f"{CP} $A {LEVELS} $B {TP} $A --seq-length $A")
    reasons = [item.reason for item in report.undecided]
    assert len(reasons) == len(set(reasons))


@pytest.mark.parametrize(("severity", "is_open"), [("error", True), ("warning", False), ("info", False)])
def test_only_errors_leave_a_launch_undecided(tmp_path: Path, severity: str, is_open: bool) -> None:
    @rule(
        "X001",
        f"{severity} crash init",
        source=(),
        applies=lambda v: True,
        good=Example("mlm", ""),
        bad=Example("mlm", ""),
    )
    def window_is_off(v: View) -> Problem | None:
        """No window."""
        return Problem("bad", "a window", "none", ("window_size",)) if v.window_size else None

    launch = of_script(tmp_path, f"{WHOLE} --window-size $WINDOW").launch
    assert bool(undecided_by(launch, run(View(launch), (window_is_off,)).rulings)) == is_open


def test_an_error_that_a_hidden_setting_could_clear_is_no_error_yet(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    experts = "--num-experts 4 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall"
    arguments = f"{WHOLE} {CP} 2 --bf16 --sequence-parallel --disable-bias-linear {experts}"
    start = "torchrun --nproc-per-node 8 pretrain_gpt.py"
    switch = "if [ -f here ]; then OVERLAP=--overlap-moe-expert-parallel-comm; fi"
    words = {"certain": arguments, "open": f"{arguments} $OVERLAP"}
    said = {}
    for name, line in words.items():
        file.write_text(f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=8\n{switch}\n{start} {line}\n")
        launch = load_launch(str(file), LoadOptions(assumes=("arch=sm90",)))
        report = check_launch(launch, rules_for, fixes=False)
        said[name] = (report.verdict, "ENV001" in [finding.rule.id for finding in report.findings])
    assert said == {"certain": ("failed", True), "open": ("undecided", False)}


def test_a_hidden_pipeline_size_alone_leaves_the_pipeline_rules_undecided() -> None:
    text = "srun python pretrain_gpt.py --pipeline-model-parallel-size $PP --num-layers 6 --micro-batch-size 1\n"
    report = check_launch(build_launch(read_text(text, "x.sh")), rules_for)
    assert report.verdict == "undecided" and "pp" in report.undecided[0].needs


def of_text(tmp_path: Path, text: str, *assumes: str, arguments: tuple[str, ...] | None = None) -> Report:
    file = tmp_path / "train.sh"
    file.write_text(f"#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\n{text}\n")
    options = LoadOptions(assumes=assumes, beside=Beside(str(tmp_path), arguments=arguments))
    return check_launch(load_launch(str(file), options), rules_for, fixes=False)


START = f"torchrun --nproc-per-node 8 pretrain_gpt.py {WHOLE}"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        (f"{START} $MORE", "MORE"),
        (f"case $KIND in a) CP=2;; b) CP=4; X=1;; esac\n{START} {CP} $CP", "KIND"),
        (f'if [ "${{KIND}}" == a ]; then CP=3; else CP=$(nproc); fi\n{START} {CP} $CP', "KIND"),
        (f"KIND=$(lspci)\nif [[ $KIND = a ]]; then CP=3; else CP=$(nproc); fi\n{START} {CP} $CP", "KIND"),
        (f"A=(--swiglu)\n{START} ${{A[@]}} $(more) ${{MORE[@]}}", None),
    ],
)
def test_where_one_variable_decides_it_is_asked_for_and_settles_all(
    tmp_path: Path, text: str, asked: str | None
) -> None:
    (first, *others) = of_text(tmp_path, text).undecided
    assert first.do.startswith(f"state {asked} with --assume env.{asked}=VALUE") is (asked is not None)
    assert not others
    if asked:
        told = {"MORE": "--swiglu"}.get(asked, "a")
        assert of_text(tmp_path, text, f"env.{asked}={told}").verdict != "undecided"


def test_a_variable_that_is_assumed_is_used_where_the_script_leaves_it_open_and_nowhere_else(tmp_path: Path) -> None:
    assert of_text(tmp_path, f"{START} {CP} $CP", "env.CP=2").launch.facts["cp"].value == 2
    assert of_text(tmp_path, f"CP=4\n{START} {CP} $CP", "env.CP=2").launch.facts["cp"].value == 4
    assert of_text(tmp_path, f"{START} {CP} ${{CP:-4}}", "env.CP=2").launch.facts["cp"].value == 2
    more = of_text(tmp_path, f"{START} ${{MORE[@]}}", f"env.MORE={CP}=2").launch
    assert more.facts["cp"].value == 2 and more.reading.unseen is None
    assert "cp" not in of_text(tmp_path, f"{START} {CP} $CP", "te=2.14").launch.facts


@pytest.mark.parametrize(("words", "arguments"), [(f"{CP} $1", ("2",)), ("$@ --swiglu", (CP, "2"))])
def test_where_the_scripts_arguments_decide_they_are_asked_for(
    tmp_path: Path, words: str, arguments: tuple[str, ...]
) -> None:
    text = f"{START.replace(f'{TP} 2', '')} {words}"
    (item,) = of_text(tmp_path, text).undecided
    assert item.do == "give the script's arguments with --args WORDS"
    assert of_text(tmp_path, text, arguments=arguments).undecided == ()


def test_what_several_arguments_decide_is_asked_for_once_and_first(tmp_path: Path) -> None:
    text = f"KIND=$1\nif [[ $KIND = a ]]; then CP=3; else CP=$(nproc); fi\n{START} {CP} $CP --micro-batch-size $MBS"
    text += " --global-batch-size $2 --expert-model-parallel-size ${10} --num-experts 8"
    first, *others = of_text(tmp_path, text).undecided
    assert first.do == "give the script's arguments with --args WORDS"
    assert first.reason == "the launch depends on the script's arguments ($1, $2, $10)"
    place = Location("x.sh", 2, 1, 2, 3)
    (one,) = once_for_arguments([first._replace(location=None), first._replace(location=place)])
    assert one.location == place
    assert {"cp", "ep", "global_batch_size"} <= set(first.needs)
    assert [one.do for one in others] == ["give its value with --set micro_batch_size=VALUE"]
    settled = of_text(tmp_path, text, arguments=("a", "8", *"3456789", "2")).undecided
    assert [one.do for one in settled] == [one.do for one in others]
