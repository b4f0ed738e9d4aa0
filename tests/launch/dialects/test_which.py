"""A dialect is told by keys that only it has; section names that many frameworks share tell nothing."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.frameworks import COMMAND_LINES
from megatron_hcp.launch.dialects.which import can_be, dialect_of_keys, has_known_key
from megatron_hcp.launch.fact import DIALECTS, Dialect
from megatron_hcp.launch.readers.target import read_target, read_text


@pytest.mark.parametrize(
    "text",
    [
        # Megatron-Bridge #2667, in the report's own three lines.
        "model:\n  context_parallel_size: 4\n  cp_comm_type: a2a+p2p\n",
        "model: {num_layers: 4, seq_length: 64}\n",
        "model: {context_parallel_size: 2, my_own_field: 3}\n",
        "model: {context_parallel_size: 2}\nnotes: {author: me}\n",
        "train: {train_iters: 3}\n",
        "checkpoint: {save: /x, save_interval: 3}\nrun: {env: {a: 1, b: 2, c: 3}}\n",
        "recipe: {_target_: megatron.bridge.recipes.llama.f, per_split: x}\ncheckpoint: {save: /x, load: /y}\n",
        "mixed_precision: bf16_mixed\nmodel: {seq_length: 64}\n",
    ],
)
def test_a_key_that_only_bridge_has_makes_a_bridge_launch(text: str) -> None:
    assert read_text(text, "x.yaml").dialect == "bridge"


@pytest.mark.parametrize(
    "text",
    [
        "model: {d_model: 512, layers: 4}\ntrain: {steps: 3}\n",
        "model: {num_layers: 12, hidden_size: 768, dim: 3}\noptimizer: {lr: 0.1, kind: adam, b: 1, c: 2}\n",
        "dataset: {path: x, split: train, shards: 3, shuffle: true, columns: 5}\n",
        "train: {micro_batch_size: 4, epochs: 3}\ndata: {path: x}\n",
        "model: {path: x}\ntrain: {epochs: 3}\n",
        "generator_type: causal\nmixed_precision: true\nsteps: 3\nheight: 480\n",
        "data: {seed: 1, path: x, source: y}\n",
    ],
)
def test_names_that_many_frameworks_share_tell_no_dialect(text: str) -> None:
    with pytest.raises(HcpError, match="no key of a known dialect"):
        read_text(text, "x.yaml")


@pytest.mark.parametrize(
    ("keys", "dialect"),
    [
        (["actor_rollout_ref.model.path"], "verl"),
        (["data.train_files", "model.path"], "verl"),
        (["engine", "engine.cp", "model.path"], "verl"),
        (["critic.megatron.context_parallel_size"], "verl"),
        (["data.max_prompt_length", "data.train_batch_size"], "verl"),
        (["data.max_prompt_length", "runner.seq_length", "actor.model.path"], None),
        (["critic.path", "critic.lr"], None),
        (["optim.lr"], None),
        (["data.seed", "data.shuffle", "data.cutoff_len", "data.template", "data.packing"], None),
        (["train.train_iters", "optimizer.lr"], "bridge"),
        (["model.tensor_model_parallel_size", "system.precision"], None),
        ([], None),
    ],
)
def test_keys_tell_the_dialect(keys: list[str], dialect: Dialect | None) -> None:
    assert dialect_of_keys(keys) == dialect


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d not in COMMAND_LINES])
def test_a_forced_dialect_needs_a_section_of_its_own(dialect: Dialect) -> None:
    text = "foo: {bar: 1}\nlayers: 3\n"
    with pytest.raises(HcpError, match=rf"no key of the dialect {dialect} \(it has foo, layers\).*omit --dialect"):
        read_text(text, "x.yaml", dialect=dialect)
    with pytest.raises(HcpError, match=f"no key of the dialect {dialect}"):
        read_target("", words=["foo.bar=1"], dialect=dialect)
    with pytest.raises(HcpError, match=f"no key of the dialect {dialect}"):
        read_text("foo.bar=1\n", "x.txt", dialect=dialect)


def test_a_forced_dialect_reads_what_alone_tells_nothing() -> None:
    assert read_text("optimizer.lr=1 model.my_own=2\n", "x.txt", dialect="bridge").dialect == "bridge"
    with pytest.raises(HcpError, match="no key of the dialect bridge"):
        read_text("model: {my_own: 2}\n", "x.yaml", dialect="bridge")
    with pytest.raises(HcpError, match="no key of the dialect bridge"):
        read_text("optimizer: {lr: 1}\nfoo: {a: 1, b: 2}\n", "x.yaml", dialect="bridge")
    assert read_text("model: {contxt_parallel_size: 2}\n", "x.yaml", dialect="bridge").dialect == "bridge"
    assert not has_known_key("bridge", ["foo.a"]) and not can_be("mlm", ["model.a"])
    assert has_known_key("bridge-provider", ["model.context_parallel_size"])


SLIME = (
    "python train.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --num-query-groups 2 "
    "--attention-backend flash --swiglu --context-parallel-size 2\n"
)


@pytest.mark.parametrize("dialect", ["bridge", "bridge-provider", "verl"])
def test_a_command_line_of_megatron_lm_is_not_read_as_another_dialect(dialect: Dialect) -> None:
    with pytest.raises(HcpError, match=f"a launch of the dialect mlm, in line 1; wanted one of {dialect}"):
        read_text(SLIME + "\n", "x.sh", dialect=dialect)
    assert read_text(SLIME, "x.sh", dialect="mlm").dialect == "mlm"


def test_a_program_of_ones_own_may_take_a_few_options_of_megatron_lm_and_be_bridges() -> None:
    text = "torchrun train.py --context-parallel-size 2 --seq-length 64\n"
    assert read_text(text, "x.sh").dialect == "mlm"
    assert read_text(text, "x.sh", dialect="bridge").dialect == "bridge"


def test_a_forced_dialect_needs_a_word_that_can_be_its_own() -> None:
    for dialect in DIALECTS:
        with pytest.raises(HcpError, match=f"wanted a launch of the dialect {dialect}"):
            read_text("python prepare.py --input a --output b\n", "x.sh", dialect=dialect)
        assert read_text("python train.py $ARGS\n", "x.sh", dialect=dialect).unseen
    assert read_text("python start.py my.own=1 model.seq_length=3\n", "x.sh", dialect="bridge").dialect == "bridge"


@pytest.mark.parametrize(
    ("command", "dialect"),
    [
        ("torchrun /opt/Megatron-Bridge/scripts/training/run_recipe.py --recipe x", "bridge"),
        ("python /opt/Megatron-Bridge/examples/conversion/convert_checkpoints.py import --hf-model x", None),
        ("torchrun /opt/Megatron-Bridge/3rdparty/Megatron-LM/pretrain_gpt.py --num-layers 4", "mlm"),
        ("torchrun pretrain_gpt.py $ARGS", "mlm"),
        ("torchrun examples/diffusion/finetune.py $CONFIG", None),
    ],
)
def test_a_program_tells_the_dialect_where_it_trains(command: str, dialect: Dialect | None) -> None:
    if dialect is None:
        with pytest.raises(HcpError, match="no training command"):
            read_text(command + "\n", "x.sh")
    else:
        assert read_text(command + "\n", "x.sh").dialect == dialect


@pytest.mark.parametrize(
    ("program", "is_read"), [("pretrain_gpt.py", True), ("train.py", False), ("train.py --seq-length 8 --bf16", True)]
)
def test_a_program_with_mostly_options_of_its_own_has_no_command_line_of_megatron_lm(program: str, is_read) -> None:
    text = f"torchrun {program} --num-gpus 8 --num-steps 5 --precision x --num-layers 2\n"
    if is_read:
        assert read_text(text, "x.sh").dialect == "mlm"
    else:
        with pytest.raises(HcpError, match="1 other Python command"):
            read_text(text, "x.sh")
