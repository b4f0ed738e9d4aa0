"""What the card of training-resiliency says about upstream, read off every release's sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from megatron_hcp.judge.anchored import segment_of
from megatron_hcp.skills.card import find_skill

BRIDGE_CONFIG = "megatron/bridge/training/config.py"
BRIDGE_FT = "megatron/bridge/training/fault_tolerance.py"


def releases(upstream: Path, package: str) -> list[Path]:
    found = sorted(upstream.glob(f"{package}-*"))
    assert found
    return found


def version_of(release: Path) -> tuple[int, ...]:
    return tuple(map(int, release.name.rsplit("-", 1)[1].split(".")))


def tree_of(file: Path, qualname: str = "") -> ast.Module:
    text = segment_of(file, qualname)
    assert text is not None, (file, qualname)
    import textwrap

    return ast.parse(textwrap.dedent(text))


def assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), ast.unparse(node.value)
        elif isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), ast.unparse(node.value)


@pytest.mark.upstream
def test_exit_codes_16_and_17_are_upstreams(upstream: Path) -> None:
    for release in releases(upstream, "megatron-core"):
        values = dict(assigned(tree_of(release / "megatron/core/rerun_state_machine.py")))
        assert values["EXIT_CODE_RESUME_TO_DISAMBIGUATE"] == "16", release
        assert values["EXIT_CODE_FAILED_ON_RESULT_VALIDATION"] == "17", release


@pytest.mark.upstream
def test_bridge_installs_its_signal_handler_from_0_6_on(upstream: Path) -> None:
    """Only entering the context installs it."""
    for release in releases(upstream, "megatron-bridge"):
        setter = tree_of(release / "megatron/bridge/training/state.py", "GlobalState._set_signal_handler")
        enters = tree_of(release / "megatron/bridge/training/utils/sig_utils.py", "DistributedSignalHandler.__enter__")
        constructs = tree_of(
            release / "megatron/bridge/training/utils/sig_utils.py", "DistributedSignalHandler.__init__"
        )
        assert "signal.signal(" in ast.unparse(enters) and "signal.signal(" not in ast.unparse(constructs), release
        assert "DistributedSignalHandler(" in ast.unparse(setter), release
        assert ("__enter__" in ast.unparse(setter)) == (version_of(release) >= (0, 6)), release


@pytest.mark.upstream
def test_a_second_16_writes_no_checkpoint(upstream: Path) -> None:
    """references/details.md: the guard stops there. (checkpoint, exit, code) of every way out with code 16."""
    for release in releases(upstream, "megatron-core"):
        method = tree_of(
            release / "megatron/core/rerun_state_machine.py", "RerunStateMachine.should_checkpoint_and_exit"
        )
        ways = [ast.unparse(node.value) for node in ast.walk(method) if isinstance(node, ast.Return) and node.value]
        assert sorted(way for way in ways if "RESUME_TO_DISAMBIGUATE" in way) == [
            f"({saves}, True, EXIT_CODE_RESUME_TO_DISAMBIGUATE)" for saves in (False, True)
        ], release


@pytest.mark.upstream
def test_the_exit_handler_is_off_by_default_and_is_for_sigterm(upstream: Path) -> None:
    """Later releases inherit the settings from Megatron-LM, which no wheel has."""
    own = [
        dict(assigned(tree_of(release / BRIDGE_CONFIG, "TrainingConfig")))
        for release in releases(upstream, "megatron-bridge")
    ]
    found = [
        (values["exit_signal_handler"], values["exit_signal"]) for values in own if "exit_signal_handler" in values
    ]
    assert len(found) >= 2 and set(found) == {("False", "signal.SIGTERM")}


@pytest.mark.upstream
def test_the_section_step_begins_after_the_warm_up(upstream: Path) -> None:
    for release in releases(upstream, "megatron-bridge"):
        begin = tree_of(release / BRIDGE_FT, "on_training_step_start")
        guarded = [
            ast.unparse(node.test)
            for node in ast.walk(begin)
            if isinstance(node, ast.If) and any("start_section('step')" in ast.unparse(line) for line in node.body)
        ]
        assert any(">= _NUM_WARMUP_ITERS" in test for test in guarded), (release, guarded)
        assert "step:180,checkpointing:420" in (release / BRIDGE_FT).read_text(), release


@pytest.mark.upstream
def test_asynchronous_saving_wants_torch_dist(upstream: Path) -> None:
    for release in releases(upstream, "megatron-bridge"):
        validate = tree_of(release / BRIDGE_CONFIG, "ConfigContainer.validate")
        asserted = [
            ast.unparse(line)
            for node in ast.walk(validate)
            if isinstance(node, ast.If) and "async_save" in ast.unparse(node.test)
            for line in node.body
            if isinstance(line, ast.Assert)
        ]
        wanted = "in ['torch_dist', 'fsdp_dtensor']" if version_of(release) >= (0, 5) else "== 'torch_dist'"
        assert any(f"ckpt_format {wanted}" in line for line in asserted), release


@pytest.mark.upstream
def test_code_17_saves_a_checkpoint_before_0_18_alone(upstream: Path) -> None:
    for release in releases(upstream, "megatron-core"):
        method = tree_of(
            release / "megatron/core/rerun_state_machine.py", "RerunStateMachine.should_checkpoint_and_exit"
        )
        ways = [ast.unparse(node.value) for node in ast.walk(method) if isinstance(node, ast.Return) and node.value]
        saving = "(True, True, EXIT_CODE_FAILED_ON_RESULT_VALIDATION)" in ways
        assert saving == (version_of(release) < (0, 18)), release


ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d., ]+?)(?: s)? \|", re.MULTILINE)


def numbers_of(part: str) -> list[tuple[str, str]]:
    """Each key of a row with its number; one number may be that of all keys of its row."""
    found = []
    for keys, values in ROW.findall(part):
        names, numbers = re.findall(r"\w+", keys), values.split(", ")
        found += list(zip(names, numbers * len(names) if len(numbers) == 1 else numbers, strict=False))
    return found


@pytest.mark.upstream
def test_the_tables_of_parameters_are_upstreams(upstream: Path) -> None:
    """The numbers of straggler detection and of in-process restart."""
    folder = find_skill("training-resiliency") / "references"
    text = (folder / "stragglers.md").read_text(encoding="utf-8")
    said = {
        "NVRxStragglerDetectionConfig": text.partition("## Straggler")[2].partition("## Rerun")[0],
        "InProcessRestartConfig": (folder / "in-process.md").read_text(encoding="utf-8"),
    }
    for release in releases(upstream, "megatron-bridge"):
        for name, part in said.items():
            values = dict(assigned(tree_of(release / BRIDGE_CONFIG, name)))
            rows = numbers_of(part)
            assert len(rows) >= 3, name
            for key, value in rows:
                assert float(values[key]) == float(value), (release, name, key)
    stops = dict(assigned(tree_of(release / BRIDGE_CONFIG, "NVRxStragglerDetectionConfig")))["stop_if_detected"]
    assert stops == "False"
