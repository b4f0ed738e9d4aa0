"""`hcp plan` as a process: exit codes, the JSON that other programs read, 80 columns, one line for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Hcp = Callable[..., "CompletedProcess[str]"]
MODEL = ("plan", "--model", "examples/llama3_8b_config.json")
JOB = ("--gpus", "32", "--gpu", "h100", "--seq-length", "131072", "--global-batch", "128")
GIVEN = (*MODEL, *JOB)
"""Llama 3 8B, whose sizes the README plans too."""


def planned(hcp: Hcp, root: Path, *words: str) -> dict:
    return json.loads(hcp(*words, "--format", "json", cwd=root).stdout)


def test_a_plan_lists_layouts_that_fit_and_fits_in_80_columns(hcp: Hcp, root: Path) -> None:
    done = hcp(*GIVEN, cwd=root)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:1] == ["1"] for line in lines)
    data = planned(hcp, root, *GIVEN)
    assert all(item["legal"] and item["fits"] and not item["rules"] for item in data["layouts"])


def test_the_json_of_a_layout_has_what_other_programs_read(hcp: Hcp, root: Path) -> None:
    data = planned(hcp, root, *GIVEN, "--layout", "tp=2 cp=8 vpp=1 cp_comm_type=a2a+p2p hcp_sizes=4,2 mbs=1")
    assert data["schema"] == "hcp.plan/1"
    (item,) = data["layouts"]
    assert item["layout"]["hcp_sizes"] == [4, 2] and item["layout"]["vp"] == 1
    assert sum(item["memory_gib"]["terms"].values()) == pytest.approx(item["memory_gib"]["peak"])
    assert sum(item["time_s"]["terms"].values()) == pytest.approx(item["step_s"])
    tokens = 131072 * 128 / 32
    assert item["tokens_per_s_per_gpu"] == pytest.approx(tokens / item["step_s"])
    assert 0 < item["band"] < 1


def test_an_illegal_layout_is_answered_with_its_rules(hcp: Hcp, root: Path) -> None:
    done = hcp(*GIVEN, "--layout", "tp=3", cwd=root)
    assert done.returncode == 0
    assert "illegal TP001" in done.stdout or "TP001" in done.stdout
    (item,) = planned(hcp, root, *GIVEN, "--layout", "tp=3")["layouts"]
    assert (item["legal"], item["fits"], item["step_s"]) == (False, False, None) and "TP001" in item["rules"]


def test_a_layout_that_does_not_fit_is_answered_with_the_gib_over_and_one_that_does(hcp: Hcp, root: Path) -> None:
    data = planned(hcp, root, *GIVEN, "--layout", "tp=2 cp=1")
    (item,) = data["layouts"]
    held = item["memory_gib"]
    assert item["legal"] and not item["fits"] and held["over"] == pytest.approx(held["peak"] - held["usable"])
    assert data["nearest"]["fits"] and data["nearest"]["legal"]
    assert "DOES NOT FIT" in hcp(*GIVEN, "--layout", "tp=2 cp=1", cwd=root).stdout


def test_why_not_names_the_rule_the_memory_or_the_time(hcp: Hcp, root: Path) -> None:
    asked = ("cp=16 cp_comm_type=a2a", "tp=2", "tp=8 cp=4 recompute=full")
    words = [word for text in asked for word in ("--why-not", text)]
    reasons = planned(hcp, root, *GIVEN, *words)["why_not"]
    assert [reason["kind"] for reason in reasons] == ["rule", "memory", "slower"]
    assert reasons[0]["rules"] == ["CP007"] and reasons[1]["over_gib"] > 0 and reasons[2]["slower"] > 0.03
    assert reasons[2]["term"] == "recompute"


def test_an_axis_is_given_by_words_after_fix(hcp: Hcp, root: Path) -> None:
    data = planned(hcp, root, *GIVEN, "--hold", "tp=4", "cp=4", "--assume", "te=2.14", "mcore=0.16.1")
    assert {(item["layout"]["tp"], item["layout"]["cp"]) for item in data["layouts"]} == {(4, 4)}
    assert data["job"]["versions"] == {"te": "2.14", "mcore": "0.16.1"}


def test_a_launch_is_explained_with_its_own_layout(hcp: Hcp, root: Path) -> None:
    data = planned(hcp, root, "plan", "examples/mlm_hcp.sbatch", "--gpu", "h100", "--model", MODEL[2])
    (item,) = data["layouts"]
    assert item["layout"]["cp_comm_type"] == "a2a+p2p" and data["legal"] is None
    assert data["job"]["seq_length"] == 131072


@pytest.mark.parametrize("name", ["mlm_hcp.sbatch", "bridge_hcp.yaml"])
def test_a_launch_of_the_examples_fits_the_gpus_that_it_asks_for(hcp: Hcp, root: Path, name: str) -> None:
    (item,) = planned(hcp, root, "plan", f"examples/{name}", "--gpu", "h100", "--gpus", "32", *MODEL[1:])["layouts"]
    assert (item["layout"]["hcp_sizes"], item["legal"], item["fits"]) == ([4, 2], True, True)


def test_a_launch_that_names_a_public_model_needs_no_config(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    data = planned(hcp, root, "plan", "examples/verl_dcp.yaml", "--gpu", "h100")
    assert (data["model"]["name"], data["model"]["layers"]) == ("Qwen/Qwen3-8B", 36)
    recipe = planned(hcp, root, "plan", "--recipe", "qwen3_235b_a22b_pretrain_config", "--gpu", "h100", "--gpus", "512")
    assert (recipe["model"]["layers"], recipe["model"]["experts"]) == (94, 128)
    # Megatron-LM's command line has the sizes, and names the tokenizer.
    sizes = "--num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 --swiglu"
    step = "--seq-length 8192 --global-batch-size 128 --tokenizer-model meta-llama/Llama-3.1-70B"
    (tmp_path / "train.sh").write_text(f"torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py {sizes} {step}\n")
    assert planned(hcp, root, "plan", str(tmp_path / "train.sh"), "--gpu", "h100")["model"]["layers"] == 80


def test_recompute_activations_is_selective_recomputation(hcp: Hcp, root: Path, tmp_path: Path) -> None:
    text = (root / "examples" / "mlm_hcp.sbatch").read_text()
    found = []
    for more in ("", " --recompute-activations", " --recompute-activations --recompute-granularity full"):
        (tmp_path / "train.sbatch").write_text(text.replace("    --bf16\n", f"    --bf16{more}\n"))
        (item,) = planned(hcp, root, "plan", str(tmp_path / "train.sbatch"), "--gpu", "h100", *MODEL[1:])["layouts"]
        found.append(item["layout"]["recompute"])
    assert found == ["none", "selective", "selective"]


def test_the_overrides_of_a_plan_pass_the_check(hcp: Hcp, root: Path) -> None:
    release = ("--assume", "mcore=0.16.1")
    layouts = planned(hcp, root, *GIVEN, *release, "--top", "4", "--hold", "cp_comm_type=a2a+p2p")["layouts"]
    assert layouts
    for item in layouts:
        words = item["overrides"]["mlm"]
        sizes = (
            "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
        )
        stated = (*release, "--assume", "nodes=4", "--assume", "gpus_per_node=8")
        done = hcp("check", "--format", "json", *stated, "--", *words, *sizes.split(), cwd=root)
        found = [item["rule"] for item in json.loads(done.stdout)["findings"] if item["severity"] != "info"]
        assert found == [], (words, found)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", *JOB), "--model: not given"),
        (("plan", "--gpus", "8"), "give --model config.json --gpu NAME --seq-length TOKENS --global-batch N"),
        (("plan", "examples/bridge_overrides.txt"), "in the launch and no --gpus, --gpu; wanted"),
        (
            ("plan", "examples/bridge_hcp.yaml", "--gpu", "h100", "--gpus", "32"),
            "--model config.json, or --assume vocab_size=N",
        ),
        ((*MODEL, "--gpus", "8", "--seq-length", "8", "--global-batch", "8"), "--gpu: not given"),
        ((*MODEL, "--gpu", "h100", "--seq-length", "8", "--global-batch", "8"), "--gpus: not given"),
        ((*GIVEN, "--gpu", "tpu"), "gpu: found 'tpu'"),
        ((*GIVEN, "--layout", "dp=4"), "layout: found 'dp=4'"),
        ((*GIVEN, "--layout", "tp=2", "--hold", "tp=2"), "found --layout with --hold"),
        ((*GIVEN, "--hold", "tp=0"), "--hold: found tp=0"),
        ((*GIVEN, "--hold", "cp=1", "cp_comm_type=a2a"), "--hold: found cp=1 with cp_comm_type=a2a; wanted a CP group"),
        ((*GIVEN, "--layout", "cp=8 cp_comm_type=p2p hcp_sizes=4,2"), "which has no levels; wanted a2a+p2p"),
        ((*GIVEN, "--hold", "ep=2"), "--hold: found ep=2 for a model without experts; wanted ep=1"),
        ((*GIVEN, "--hold", "etp=2"), "--hold: found etp=2 for a model without experts; wanted etp=1"),
        (("plan", "--model", "missing.json", *JOB), "missing.json"),
        ((*GIVEN, "--profile", "examples/llama3_8b_config.json"), "examples/llama3_8b_config.json"),
        ((*GIVEN, "a.sh", "b.sh"), "found 2 targets"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(hcp: Hcp, root: Path, words: tuple[str, ...], said: str) -> None:
    done = hcp(*words, cwd=root)
    assert done.returncode == 2 and done.stdout == ""
    assert said in done.stderr and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--use-megatron-fsdp", "--use-torch-fsdp2"])
def test_whether_weights_that_fsdp_shares_fit_is_left_open(hcp: Hcp, root: Path, tmp_path: Path, option: str) -> None:
    sizes = "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --vocab-size 128256"
    step = "--seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 64 --bf16"
    target = tmp_path / "t.sh"
    for extra, fits in (("", False), (option, None)):
        target.write_text(f"torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py {sizes} {step} {extra}\n")
        words = ("plan", str(target), "--gpu", "h100")
        (item,) = (data := planned(hcp, root, *words))["layouts"]
        said = " ".join(hcp(*words, cwd=root).stdout.split())
        assert item["fits"] is fits and ("cannot tell whether it fits under FSDP" in said) is (fits is None)
        assert ("DOES NOT FIT" in said) is (fits is False)
        assert fits is False or data["nearest"] is None


def test_a_launch_without_the_distributed_optimizer_and_with_a_part_not_modelled_says_so(
    hcp: Hcp, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "t.sh"
    target.write_text(
        "torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --swiglu "
        "--ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096 --global-batch-size 64 --bf16 "
        "--micro-batch-size 1 --vocab-size 128256 --pipeline-model-parallel-size 2 --max-position-embeddings 4096 "
        "--decoder-first-pipeline-num-layers 20\n"
    )
    data = planned(hcp, root, "plan", str(target), "--gpu", "h100")
    (item,) = data["layouts"]
    terms = item["memory_gib"]["terms"]
    assert terms["optimizer"] == pytest.approx(6 * terms["weights"])
    assert any("own split of layers is not read" in mark for mark in item["marks"])
    assert not any("linear attention" in mark for mark in item["marks"])
    said = hcp("plan", str(target), "--gpu", "h100", cwd=root).stdout
    assert "unsure  the launch's own split" in said and "assumed the distributed optimizer is off" in said
    fixed = planned(hcp, root, "plan", str(target), "--gpu", "h100", "--hold", "tp=8")
    assert any("own split of layers" in note for note in fixed["assumed"])


@pytest.mark.parametrize(("comm_type", "is_dropped"), [("a2a", True), ("p2p", False)])
def test_what_nemo_rl_drops_of_a_layout_is_said_below_its_words(
    hcp: Hcp, root: Path, comm_type: str, is_dropped: bool
) -> None:
    said = hcp(*GIVEN, "--layout", f"tp=1 cp=8 cp_comm_type={comm_type}", cwd=root).stdout
    assert ("drops model_overrides" in said) is is_dropped and "policy.megatron_cfg" in said


def test_a_launch_of_rl_is_planned_for_its_longest_sequence(hcp: Hcp, root: Path) -> None:
    words = ("plan", "examples/verl_dcp.yaml", "--gpu", "h100", "--assume", "vocab_size=151936")
    data = planned(hcp, root, *words)
    assert data["job"]["seq_length"] == 2048 + 30720 and data["job"]["global_batch"] == 64
    assert "sequences have 32768 tokens, the longest that the launch allows" in data["assumed"]
    (mark,) = (mark for mark in data["layouts"][0]["marks"] if "dynamic CP" in mark)
    assert "at most 8192 tokens a rank: not modelled" in mark
    assert planned(hcp, root, *words, "--seq-length", "8192")["job"]["seq_length"] == 8192


GRPO = (
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B algorithm.adv_estimator=grpo data.train_batch_size=512 "
    "data.max_prompt_length=2048 data.max_response_length=8192 trainer.nnodes=1 trainer.n_gpus_per_node=8 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.gpu_memory_utilization=0.6"
).split()
"""Row 10 of verl_megatron_practice's grpo_qwen2.5_7b.csv, which ran out of memory: nothing is moved to the host."""


def test_the_phases_of_a_step_are_shown_with_the_one_that_fails_first_and_what_mends_it(hcp: Hcp, root: Path) -> None:
    words = ("plan", "--dialect", "verl", "--gpu", "h100", "--phases")
    done = hcp(*words, "--", *GRPO, cwd=root)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and max(map(len, lines)) <= 80
    assert any(line.startswith("rollout") and "*" in line for line in lines)
    data = json.loads(hcp(*words, "--format", "json", "--", *GRPO, cwd=root).stdout)
    assert [item["phase"] for item in data["phases"]] == [
        "start", "weight synchronization", "rollout", "log-probability", "reference", "actor update",
    ]  # fmt: skip
    setting = data["fails_first"]["setting"]
    assert data["fails_first"]["phase"] == "rollout" and setting
    mended = json.loads(hcp(*words, "--format", "json", "--", *GRPO, *setting.split(), cwd=root).stdout)
    assert mended["fails_first"] is None and all(item["over_gib"] == 0 for item in mended["phases"])


def test_a_step_within_the_margin_is_tight_and_told_what_it_leaves_and_what_makes_room(hcp: Hcp, root: Path) -> None:
    words = ("plan", "--dialect", "verl", "--gpu", "h100", "--phases")
    moved = [f"actor_rollout_ref.actor.megatron.{what}_offload=True" for what in ("param", "grad", "optimizer")]
    full = "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_{}"
    less = (full.format("granularity=full"), full.format("method=uniform"), full.format("num_layers=1"))
    launch = [*GRPO, *moved, *less, "actor_rollout_ref.rollout.gpu_memory_utilization=0.8"]
    lines = hcp(*words, "--", *launch, cwd=root).stdout.splitlines()
    assert any(line.startswith("tight   cannot tell whether the step fits: rollout leaves ") for line in lines)
    assert max(map(len, lines)) <= 80 and any(line.startswith("rollout") and "?" in line for line in lines)
    data = json.loads(hcp(*words, "--format", "json", "--", *launch, cwd=root).stdout)
    tight = data["tight"]
    assert data["fails_first"] is None and tight["phase"] == "rollout"
    fullest = next(item for item in data["phases"] if item["phase"] == "rollout")
    assert fullest["fits"] is None and any(item["fits"] for item in data["phases"])
    assert tight["spare_gib"] == pytest.approx(fullest["usable_gib"] - fullest["peak_gib"])
    mended = json.loads(hcp(*words, "--format", "json", "--", *launch, *tight["setting"].split(), cwd=root).stdout)
    assert mended["tight"] is None and mended["fails_first"] is None
    assert all(item["fits"] for item in mended["phases"])


def test_a_step_that_is_barely_over_the_limit_is_not_said_to_fail(hcp: Hcp, root: Path) -> None:
    """Row 9 of the same table, which finished: two of the longest sequences in a micro-batch."""
    name, said = "practice-grpo7b-9", (root / "lab/plan/rl_cases.txt").read_text()
    row = next(line for line in said.splitlines() if line.startswith(f"{name} | ")).split(" | ")
    words = ("plan", "--dialect", "verl", "--gpu", row[2], "--gpus", row[3], "--model", row[4], "--phases")
    launch = ("--global-batch", "64", "--", *row[-1].replace("@.", "actor_rollout_ref.").split())
    text = hcp(*words, *launch, cwd=root)
    assert text.returncode == 0 and "GiB over" in text.stdout and "fails" not in text.stdout
    data = json.loads(hcp(*words, "--format", "json", *launch, cwd=root).stdout)
    over = [item for item in data["phases"] if item["over_gib"] > 0]
    assert data["tight"]["spare_gib"] < 0 and data["fails_first"] is None
    assert over and all(item["fits"] is None for item in over)


def test_phases_are_those_of_a_launch_of_reinforcement_learning(hcp: Hcp, root: Path) -> None:
    for words in ((*GIVEN, "--phases", "--layout", "tp=2"), (*GIVEN, "--phases", "--hold", "tp=2")):
        done = hcp(*words, cwd=root)
        assert done.returncode == 2 and done.stderr.startswith("hcp: ") and len(done.stderr.splitlines()) == 1


def test_an_illegal_layout_has_no_phases_however_large_its_sizes_are(hcp: Hcp, root: Path) -> None:
    words = ("plan", "--dialect", "verl", "--gpu", "h100", "--phases")
    more = f"{GRPO[-1].split('.')[0]}.actor.megatron.pipeline_model_parallel_size=99999999"
    done = hcp(*words, "--", *GRPO, more, cwd=root)
    assert done.returncode == 0 and "phases  not counted" in done.stdout
    data = json.loads(hcp(*words, "--format", "json", "--", *GRPO, more, cwd=root).stdout)
    assert data["phases"] == [] and data["fails_first"] is None and not data["layouts"][0]["legal"]


def test_a_layout_of_more_stages_than_the_model_has_parts_is_one_line(hcp: Hcp, root: Path) -> None:
    """A million chunks of a stage would be gone through one by one."""
    done = hcp(*GIVEN, "--layout", "pp=2 vp=1048576", cwd=root)
    assert done.returncode == 2 and "2097152 pipeline stages" in done.stderr and done.stderr.count("\n") == 1
    assert hcp(*GIVEN, "--layout", "pp=3 vp=1048576", cwd=root).returncode == 0
