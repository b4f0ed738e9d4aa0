"""`--diff`: what is written, where, and that git and patch apply it to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.patch import patch_of
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import BY_ID, RULES
from megatron_hcp.rules.rule import Problem, Rule
from megatron_hcp.rules.view import View
from support.patches import Patched
from support.rules import Example

ARGS = """MODEL_ARGS:
  --tensor-model-parallel-size: 1
  --context-parallel-size: 4
  --cp-comm-type: a2a+p2p
  --hierarchical-context-parallel-sizes: {}
  --num-attention-heads: 16
  --seq-length: 4096
"""
BRIDGE = """model:
  context_parallel_size: 4
  tensor_model_parallel_size: 1
  num_attention_heads: 16
  seq_length: 4096
  cp_comm_type: a2a+p2p
  hierarchical_context_parallel_sizes: {}
train: {{micro_batch_size: 1}}
"""
WHOLE = "_target_: megatron.bridge.training.config.ConfigContainer\n"
SIZES = (BY_ID["HCP002"],)
FLAGS = "--context-parallel-size 4 --num-attention-heads 16 --seq-length 4096"


@pytest.mark.parametrize("written", ['"[4 2]"', "4 2", "[4, 2]"])
def test_a_list_in_model_args_is_written_as_megatrons_ci_reads_it(patched: Patched, written: str) -> None:
    # tests/functional_tests/shell_test_utils/_run_training.sh takes the brackets off a text; a list of YAML arrives
    # with commas, and bare words as one.
    text, _ = patched(ARGS.format(written), "model_config.yaml", rules=SIZES)
    assert text == ARGS.format('"[2 2]"')


def test_a_flag_that_goes_takes_its_line_of_model_args_along(patched: Patched) -> None:
    text, _ = patched(ARGS.format('"[2 2]"').replace("a2a+p2p", "p2p"), "c.yaml", rules=(BY_ID["HCP006"],))
    assert "a2a+p2p" in text, "the first fix is to use the sizes"
    sink = ARGS.format('"[2 2]"') + "  --softmax-type: learnable\n"
    text, _ = patched(sink, "c.yaml", rules=(BY_ID["HCP017"],))
    assert "hierarchical" not in text and "--cp-comm-type: a2a\n" in text


@pytest.mark.sample(3)
@pytest.mark.parametrize(("written", "wanted"), [("[4, 2]", "[2, 2]"), ("[4,2]", "[2,2]"), ("[ 4, 2 ]", "[2, 2]")])
def test_a_list_in_yaml_keeps_its_style(patched: Patched, written: str, wanted: str) -> None:
    text, _ = patched(BRIDGE.format(written), "run.yaml", rules=SIZES)
    assert text == BRIDGE.format(wanted)


def test_a_block_list_becomes_a_flow_list(patched: Patched) -> None:
    text, _ = patched(BRIDGE.format("\n  - 4\n  - 2"), "run.yaml", rules=SIZES)
    assert "hierarchical_context_parallel_sizes:" in text and "[2, 2]" in text and "- 4" not in text


def test_lists_in_overrides_and_flags(patched: Patched) -> None:
    lines = "model.context_parallel_size=4\nmodel.num_attention_heads=16\nmodel.cp_comm_type=a2a+p2p\n"
    text, _ = patched(f"{lines}model.hierarchical_context_parallel_sizes=[4,2]\n", "launch.txt", rules=SIZES)
    assert text == f"{lines}model.hierarchical_context_parallel_sizes=[2,2]\n"
    command = f"torchrun --nproc_per_node 4 pretrain_gpt.py {FLAGS} --cp-comm-type a2a+p2p"
    flags = f"{command} --hierarchical-context-parallel-sizes"
    text, _ = patched(f"{flags} 4 2\n", rules=SIZES)
    assert text == f"{flags} 2 2\n"


SLURM = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node 8

srun torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py --micro-batch-size 1
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", ["crlf", "mark", "both"])
@pytest.mark.parametrize(
    ("text", "name", "rule_id"),
    [
        (BRIDGE.format("[4, 2]"), "run.yaml", "HCP002"),
        (BRIDGE.format("null"), "run.yaml", "HCP001"),
        (WHOLE + BRIDGE.replace("  hierarchical_context_parallel_sizes: {}\n", "").format(), "run.yaml", "HCP001"),
        (ARGS.format('"[4 2]"'), "model_config.yaml", "HCP002"),
        (f"#!/bin/bash\ntorchrun pretrain_gpt.py \\\n  {FLAGS} \\\n  --cp-comm-type a2a+p2p\n", "launch.sh", "HCP001"),
        (SLURM, "launch.sh", "SLURM004"),
        ("model.context_parallel_size=3\nmodel.seq_length=4096\nmodel.bf16=true\n", "launch.txt", "CP001"),
    ],
)
def test_windows_line_ends_and_a_byte_order_mark_stay(
    patched: Patched, text: str, name: str, rule_id: str, form: str
) -> None:
    if form != "mark":
        text = text.replace("\n", "\r\n")
    if form != "crlf" and not name.endswith(".sh"):
        text = "\ufeff" + text
    after, patch = patched(text, name, rules=(BY_ID[rule_id],))
    assert patch.text and not patch.left_out
    assert after.count("\r\n") == (after.count("\n") if form != "mark" else 0)
    assert after.startswith("\ufeff") == text.startswith("\ufeff")


ODD = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("text", "name", "rule_id"),
    [
        (
            f"# {ODD}\nNAME='{ODD}'\ntorchrun pretrain_gpt.py {FLAGS.replace('4096', '4097')} # {ODD}\n# {ODD}\n",
            "launch.sh",
            "CP001",
        ),
        (f"# {ODD}\nmodel.context_parallel_size=3\nmodel.seq_length=4096  # {ODD}\n# {ODD}\n", "launch.txt", "CP001"),
        ("# a\x85# b\u2028# c\r# d\n" + BRIDGE.format("[4, 2]") + "# e\x85# f\n", "run.yaml", "HCP002"),
    ],
)
def test_only_a_line_feed_ends_a_line_of_a_patch(patched: Patched, text: str, name: str, rule_id: str) -> None:
    after, patch = patched(text, name, rules=(BY_ID[rule_id],))
    assert after != text and patch.text.count("\n@@") == 1 and not patch.left_out


@pytest.mark.parametrize(
    "folder",
    [
        "x\n--- a/victim.sh\n+++ b",
        "two words",
        'quote"s',
        "back\\slash",
        "tab\tbell\x07",
        "ümlaut €",
        "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"),
    ],
)
def test_a_patch_is_for_the_file_that_was_checked_whatever_its_name(patched: Patched, folder: str) -> None:
    text = f"torchrun pretrain_gpt.py {FLAGS.replace('4096', '4097')}\n"
    after, patch = patched(text, f"{folder}/launch.sh", rules=(BY_ID["CP001"],))
    assert after == text.replace("4097", "4104")
    assert len(patch.text.split("\n")) == 6, "two names, a place, two lines and the end"


def test_a_file_outside_this_folder_is_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    launch = tmp_path / "launch.sh"
    launch.write_text(f"torchrun pretrain_gpt.py {FLAGS.replace('4096', '4097')}\n")
    monkeypatch.chdir(tmp_path / "here")
    for name in (str(launch), "../launch.sh"):
        read = load_launch(name, LoadOptions())
        patch = patch_of(read, check_launch(read, (BY_ID["CP001"],)).findings, (BY_ID["CP001"],))
        assert patch.text.startswith(f"# apply it in the folder /\n--- a{launch}\n+++ b{launch}\n")
    inside = tmp_path / "here" / "launch.sh"
    inside.write_text(launch.read_text())
    read = load_launch(str(inside), LoadOptions())
    patch = patch_of(read, check_launch(read, (BY_ID["CP001"],)).findings, (BY_ID["CP001"],))
    assert patch.text.startswith("--- a/launch.sh\n")


def test_the_findings_of_severity_info_are_left_alone(patched: Patched) -> None:
    text = f"torchrun pretrain_gpt.py {FLAGS.replace('4096', '4097')} --sequence-parallel\n"
    rules = (BY_ID["CP001"], BY_ID["PAR001"])
    after, patch = patched(text, rules=rules)
    assert after == text.replace("4097", "4104") and patch.left_out == ()


@pytest.mark.slow
def test_a_patch_makes_no_error_of_a_rule_that_was_not_selected(patched: Patched) -> None:
    """Sizes would clear HCP001, and make HCP010: verl does not pass them on."""
    key = "actor_rollout_ref.actor.megatron.override_transformer_config"
    text = (
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.strategy=megatron"
        " actor_rollout_ref.actor.use_dynamic_bsz=True"
        f" actor_rollout_ref.actor.megatron.context_parallel_size=4 '+{key}.cp_comm_type=a2a+p2p'\n"
    )
    after, _ = patched(text)
    assert after == text.replace(f"'+{key}.cp_comm_type=a2a+p2p'", f"+{key}.cp_comm_type=p2p")


def test_fixes_are_not_tried_on_a_text_that_nothing_more_is_written_into(tmp_path: Path) -> None:
    file = tmp_path / "launch.sh"
    file.write_text(f"torchrun pretrain_gpt.py {FLAGS.replace('4096', '4097')} --cp-comm-type x\n")
    asked = []

    def check(view: View) -> Problem | None:
        asked.append(view)
        return BY_ID["CP004"].check(view)

    rules = (BY_ID["CP001"], BY_ID["CP004"]._replace(check=check))
    launch = load_launch(str(file), LoadOptions())
    before = check_launch(launch, rules, verdict=False)
    assert [finding.id for finding in before.findings if finding.fixes] == ["CP001", "CP004"]
    to_try_all = len(asked)
    patch = patch_of(launch, before.findings[:1], rules)
    assert [name for name, _ in patch.made] == ["CP001"]
    assert len(asked) - to_try_all == to_try_all + 1, "the text as it is, with all fixes, and the text that was written"


def test_an_error_without_a_fix_says_why(patched: Patched) -> None:
    rule = BY_ID["TOPO007"]
    _, patch = patched(rule.bad.text.replace(" ", "\n") + "\n", "launch.txt", assume=rule.bad.assume)
    assert patch.text == "" and patch.left_out[0][0] == "TOPO007"
    assert "no single setting of this launch fixes it; wanted: tp, and every axis" in patch.left_out[0][1]


def test_what_is_stated_beside_the_file_is_not_patched_in_it(patched: Patched) -> None:
    text = SLURM.replace("--ntasks-per-node 8", "--ntasks-per-node 1")
    _, patch = patched(text, assume="ntasks_per_node=8", rules=(BY_ID["SLURM004"],))
    assert patch.left_out == (("SLURM004", "ntasks_per_node is stated with --assume or --facts: change it there"),)
    flags = f"torchrun pretrain_gpt.py {FLAGS}\n"
    _, patch = patched(flags, rules=(BY_ID["CP001"],), sets=("seq_length=4097",))
    assert patch.left_out == (("CP001", "comes from an option given next to the file: change it there"),)


def as_file(of: Example) -> tuple[str, str]:
    """(name, text) of a rule's example as a file."""
    if "\n" in of.text:
        is_yaml = of.dialect != "mlm" and "=" not in of.text.split("\n")[0]
        return ("launch.yaml" if is_yaml else "launch.txt" if of.dialect != "mlm" else "launch.sh"), of.text
    if of.dialect == "mlm":
        return "launch.sh", f"torchrun --nproc-per-node $GPUS --nnodes $NODES pretrain_gpt.py {of.text}\n"
    return "launch.txt", of.text.replace(" ", "\n") + "\n"


@pytest.mark.sample(30)
def test_the_patch_of_every_bad_example_clears_it_or_says_why_not(patched: Patched, rule: Rule) -> None:
    name, text = as_file(rule.bad)
    after, patch = patched(text, name, assume=rule.bad.assume, dialect=rule.bad.dialect)
    options = LoadOptions(assumes=(rule.bad.assume,), dialect=rule.bad.dialect)
    report = check_launch(load_launch(name, options), RULES, fixes=False, verdict=False)
    left = {item.id for item in report.findings if item.severity == "error"}
    assert left <= {finding_id for finding_id, _ in patch.left_out}
    assert (after == text) == (not patch.text)


def test_a_fault_of_some_releases_is_not_said_to_come_from_an_option(tmp_path: Path) -> None:
    """Without a stated release it is a warning that names them, and no patch can be tried."""
    file = tmp_path / "run.sh"
    model = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --tensor-model-parallel-size 2"
    file.write_text(f"export NVTE_FUSED_ATTN=0\ntorchrun --nproc_per_node 8 pretrain_gpt.py {model}\n")
    launch = load_launch(str(file), LoadOptions())
    left_out = patch_of(launch, check_launch(launch, RULES).findings, RULES).left_out
    assert ("ENV002", "some releases alone have it: state yours") in left_out
