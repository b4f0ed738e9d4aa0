"""Whose an exception is that neither a stand-in nor upstream's own code raises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from megatron_hcp.pretend.record import RECORD, Record, UpstreamPlace
from megatron_hcp.pretend.stand_ins.packages import NotHere, run_no_code_of_models
from megatron_hcp.pretend.verdict import OfTheLaunch, answer
from megatron_hcp.proofs.te_cpu.absent import empty_module
from support.rows import rows

pytestmark = pytest.mark.torch


def raised(module: str, kind: str, message: str) -> str:
    """What is missing for an exception of another package's."""
    error = type(kind, (Exception,), {"__module__": module})(message)
    try:
        raise error
    except Exception as caught:
        return str(answer(caught)["missing"])


def test_an_override_of_a_key_that_upstreams_configuration_has_not_is_refused() -> None:
    assert raised("hydra.errors", "ConfigCompositionException", "Could not override 'actor.model_engine'.") == ""
    assert raised("hydra.errors", "OverrideParseException", "mismatched input") != ""
    assert raised("elsewhere", "ConfigCompositionException", "Could not override 'actor.model_engine'.") != ""


def test_hydras_refusal_decides_nothing_where_a_stand_in_or_a_word_of_ours_takes_part() -> None:
    kind: Any = type("ConfigCompositionException", (Exception,), {"__module__": "hydra.errors"})
    error = kind("Could not override 'actor.model_engine'.")
    assert answer(error)["missing"] == ""
    assert "actor.model_engine" in answer(error, OfTheLaunch(("actor.model_engine",)))["missing"]
    try:
        NotHere("a resolver")()
    except NotImplementedError as cause:
        error.__cause__ = cause
    assert "a resolver" in answer(error)["missing"]


def test_what_is_said_of_a_model_that_another_stands_for_decides_nothing_but_hydras_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RECORD, "is_model_read", True)
    with pytest.raises(SystemExit) as raised:
        sys.exit("12 heads do not divide by 8")
    kind: Any = type("ConfigCompositionException", (Exception,), {"__module__": "hydra.errors"})
    assert answer(raised.value)["missing"] == ""
    assert "config.json" in answer(raised.value, OfTheLaunch(model=False))["missing"]
    assert answer(kind("no such key"), OfTheLaunch(model=False))["missing"] == ""
    monkeypatch.setattr(RECORD, "is_model_made", True)
    assert "config.json" in answer(raised.value)["missing"]
    RECORD.is_model_made = RECORD.is_model_read = False  # what is refused before has nothing of the model
    assert answer(raised.value, OfTheLaunch(model=False))["missing"] == ""


def test_a_name_that_a_package_lacks_asks_for_another_release_of_it() -> None:
    with pytest.raises(ImportError) as raised:
        exec("from json import AutoModelForVision2Seq")
    assert answer(raised.value)["missing"] == "a release of json that has AutoModelForVision2Seq"


def test_a_models_config_is_read_once_it_is_opened_and_made_where_it_is_no_link(tmp_path: Path) -> None:
    record, file = Record(), tmp_path / "hub/models--a--b/snapshots/c/config.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}", encoding="utf-8")
    record.watch_models(str(tmp_path / "hub"))
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert not record.is_model_read
    (tmp_path / "theirs").mkdir()
    (theirs := tmp_path / "theirs/config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "hub/models--a--d").symlink_to(tmp_path / "theirs")
    Path(tmp_path / "hub/models--a--d/config.json").read_text(encoding="utf-8")
    assert record.is_model_read and not record.is_model_made and theirs.exists()
    file.read_text(encoding="utf-8")
    assert record.is_model_made and list(record.stand_ins) == ["models--a--b/config.json"]


def test_groups_and_learning_rates_are_made_of_nothing_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RECORD, "is_model_read", True)
    monkeypatch.setattr(RECORD, "roots", (f"{tmp_path}/",))
    refuses = "def refuse():\n    raise RuntimeError('world_size (8) is not divisible by 16')\n"
    for name, is_decided in (("parallel_state", True), ("optimizer_param_scheduler", True), ("model", False)):
        code: dict[str, Any] = {}
        exec(compile(refuses, str(tmp_path / f"megatron/core/{name}.py"), "exec"), code)
        with pytest.raises(RuntimeError) as raised:
            code["refuse"]()
        assert (answer(raised.value, OfTheLaunch(model=False))["missing"] == "") is is_decided


def test_a_variable_that_the_launch_does_not_set_may_be_set_around_it() -> None:
    with pytest.raises(SystemExit) as raised:
        sys.exit("CP requires setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1")
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in answer(raised.value)["missing"]
    assert answer(raised.value, OfTheLaunch(variables=("CUDA_DEVICE_MAX_CONNECTIONS",)))["missing"] == ""


def test_a_module_that_transformers_cannot_import_decides_nothing() -> None:
    assert "package" in raised(
        "builtins", "RuntimeError", "Failed to import trl.trainer because of the following error"
    )


@rows("kind, message", [
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/models/qwen'"),
    ("ValueError", "path: '/models/qwen' not found"),
])  # fmt: skip
def test_a_file_or_a_models_folder_that_is_not_here_decides_nothing(kind: str, message: str) -> None:
    assert raised("builtins", kind, message) == "a file that is not here"


def test_a_package_that_is_not_here_is_named_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError) as raised:
        run_no_code_of_models()
    assert answer(raised.value)["missing"].startswith("the package transformers")


@rows("kind, message, why", [
    ("OSError", "[Errno 30] Read-only file system: '/shared'", "a folder outside"),
    ("RuntimeError", "UB manager is not initialized.", "userbuffers"),
    ("ValueError", "Transformers does not recognize this architecture", "a release of transformers"),
    ("OSError", "Can't load the configuration of '/data/models/Qwen'. If you were trying", "a model's files"),
])  # fmt: skip
def test_what_the_run_may_not_read_or_write_decides_nothing(kind: str, message: str, why: str) -> None:
    assert raised("builtins", kind, message).startswith(why)


def test_what_a_trainer_lacks_that_was_made_without_its_constructor_decides_nothing() -> None:
    class Trainer:
        without_constructor = True

    trainer: Any = Trainer()
    with pytest.raises(AttributeError) as raised:
        trainer.use_legacy_worker_impl  # noqa: B018
    assert "a stand-in" in answer(raised.value)["missing"]


def test_a_class_whose_base_an_empty_package_has_can_not_be_made() -> None:
    packages: Any = empty_module("diffusers")

    class Embedding(packages.Embedding):
        def __init__(self) -> None:
            super().__init__(1)

    with pytest.raises(TypeError) as raised:
        Embedding()
    assert "a stand-in" in answer(raised.value)["missing"]


@rows("read_in, is_decided", [("moe/token_dispatcher.py", False), ("attention.py", True)])
def test_sizes_that_follow_the_routers_choice_decide_nothing(read_in: str, is_decided: bool) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RuntimeError):
        layers = "/up/megatron/core/transformer"
        patched.setattr(RECORD, "roots", ("/up/",))
        patched.setattr(RECORD, "made_up", {UpstreamPlace(f"{layers}/{read_in}", "preprocess"): None})
        code: dict[str, Any] = {}
        exec(compile("def unpermute(): raise RuntimeError('0 rows')", f"{layers}/moe/moe_utils.py", "exec"), code)
        try:
            code["unpermute"]()
        except RuntimeError as error:
            assert (answer(error)["missing"] == "") is is_decided
            raise


def test_what_reads_a_checkpoint_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RECORD, "roots", ("/up/",))
    code: dict[str, Any] = {}
    file = "/up/megatron/core/dist_checkpointing/core.py"
    exec(compile("def load(): raise ValueError('Expecting value')", file, "exec"), code)
    with pytest.raises(ValueError, match="Expecting") as raised:
        code["load"]()
    assert answer(raised.value)["missing"] == "the launch's own checkpoint"
