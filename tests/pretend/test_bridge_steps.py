"""How a recipe of Megatron-Bridge is run: by its own program, with its own step, on its own data where that is here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_hcp.pretend.record import RECORD
from megatron_hcp.pretend.stand_ins.frameworks.bridge import _of_the_model, _or_text
from support.rows import rows

pytestmark = pytest.mark.torch


class Rerun:
    """Bridge's wrapper of an iterator."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __next__(self) -> Any:
        return next(self.inner)


def ones() -> Iterator[int]:
    yield 1
    raise OSError("no processor")


CONFIG = SimpleNamespace(
    train=SimpleNamespace(micro_batch_size=2), model=SimpleNamespace(seq_length=8), dataset=SimpleNamespace()
)
AT_ONCE = SimpleNamespace(**vars(CONFIG) | {"dataset": SimpleNamespace(dataloader_type="batch")})


def raises(error: Exception) -> Any:
    def made(*_: Any) -> Any:
        raise error

    return made


def with_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"core.rerun_state_machine": SimpleNamespace(RerunDataIterator=Rerun),
               "bridge.training.train": SimpleNamespace(get_num_microbatches=lambda: 3)}  # fmt: skip
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"megatron.{name}", module)
    monkeypatch.setattr(RECORD, "stand_ins", {})


@rows(
    "real, config, first, rows_of, ended",
    [
        (lambda *_: (ones(), None, None), CONFIG, [1], 2, "OSError: no processor"),
        (
            raises(ValueError("the tokenizer has no template")),
            CONFIG,
            [],
            2,
            "ValueError: the tokenizer has no template",
        ),
        (raises(OSError("no file")), AT_ONCE, [], 6, "OSError: no file"),
    ],
)
def test_batches_are_upstreams_until_it_cannot_make_one(
    monkeypatch: pytest.MonkeyPatch, real: Any, config: Any, first: list[int], rows_of: int, ended: str
) -> None:
    with_replacements(monkeypatch)
    monkeypatch.setattr(RECORD, "roots", (__file__,))
    train, valid, test = _or_text(real)(config, SimpleNamespace())
    given = [next(train) for _ in range(len(first) + 1)]
    assert given[:-1] == first and valid is None and test is None
    assert given[-1]["tokens"].shape == (rows_of, 8) and given[-1]["loss_mask"].sum() == rows_of * 8
    assert f"bridge.batches (its own data: {ended})" in RECORD.stand_ins


@rows("roots, is_upstreams", [((__file__,), True), ((), False)])
def test_what_bridges_own_code_says_of_a_launch_is_no_lack_of_data(
    monkeypatch: pytest.MonkeyPatch, roots: tuple[str, ...], is_upstreams: bool
) -> None:
    with_replacements(monkeypatch)
    monkeypatch.setattr(RECORD, "roots", roots)
    asked = _or_text(raises(ValueError("packing asks for a micro-batch of one sequence")))
    with pytest.raises(ValueError) if is_upstreams else nullcontext():
        asked(CONFIG, SimpleNamespace())


@rows("model, tokenizer, wanted", [(100, 131072, 100), (None, 131072, 131072), (200, 150, 150)])
def test_the_tokenizer_that_stands_for_the_launchs_has_no_more_words_than_the_model(
    model: int | None, tokenizer: int, wanted: int
) -> None:
    assert _of_the_model(lambda _, size, **more: (size, more))(
        model_vocab_size=model, tokenizer_vocab_size=tokenizer, x=1
    ) == (wanted, {"x": 1})


def test_a_stage_without_data_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "megatron.core.rerun_state_machine", SimpleNamespace(RerunDataIterator=Rerun))
    assert _or_text(lambda *_: (None, None, None))(CONFIG, SimpleNamespace()) == (None, None, None)


PACKAGES = {
    "src/megatron/bridge/__init__.py": "",
    "src/megatron/bridge/recipes.py": "",
    "src/megatron/bridge/training/__init__.py": "",
    "src/megatron/bridge/training/pretrain.py": "def pretrain(config, step): print('ours', vars(config.model))",
    "src/megatron/bridge/training/gpt_step.py": "forward_step = 1",
    "src/megatron/bridge/training/utils/__init__.py": "",
    "src/megatron/bridge/training/utils/omegaconf_utils.py": "def process_config_with_overrides(*_, **__): pass",
}
THEIRS = {
    "scripts/training/recipe_runner.py": "RECIPE_ENV_BOOTSTRAP_MARKER = 'M'; TRAIN_FUNCTIONS = {}",
    "scripts/training/run_recipe.py": "import os\ndef main(words): print('theirs', list(words), os.environ['M'] > '')",
}
RECIPE = """
from types import SimpleNamespace
def a_pretrain_config():
    return SimpleNamespace(model=SimpleNamespace(seq_length=131072), dataset=SimpleNamespace(seq_length=4096))
a_sft_config = a_pretrain_config
"""


@rows("files, name, wanted", [
    ({}, "a_pretrain_config", "ours {'seq_length': 4096}"),
    ({}, "a_vl_pretrain_config", ""),
    (THEIRS, "a_pretrain_config", "theirs ['--recipe', 'a_pretrain_config', 'x=1'] True"),
    (THEIRS, "a_sft_config", "theirs ['--recipe', 'a_sft_config', 'x=1', 'checkpoint.pretrained_checkpoint=/"),
    ({"ROOT": "wheel/"} | THEIRS, "a_pretrain_config", "ours {'seq_length': 4096}"),
])  # fmt: skip
def test_bridges_own_program_makes_a_recipe_ready_where_the_tree_has_it(
    tmp_path: Path, files: dict[str, str], name: str, wanted: str
) -> None:
    root = files.get("ROOT", "src/")
    for name_of, text in (PACKAGES | {"src/megatron/bridge/recipes.py": RECIPE} | files).items():
        path = name_of.replace("src/", root)
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    command = [sys.executable, "-B", "-m", "megatron_hcp.pretend.bridge_program", name, "x=1"]
    path = os.pathsep.join((str(tmp_path / root), *sys.path))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.stdout.startswith(wanted), done.stdout + done.stderr
    assert wanted or "NotImplementedError: the step of this model" in done.stderr
