"""A launch's file as its patch leaves it: what tests of `--diff` share."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_hcp.judge.engine import check_launch
from megatron_hcp.judge.repair.patch import Patch, patch_of
from megatron_hcp.launch.load import LoadOptions, load_launch
from megatron_hcp.rules.registry import RULES
from megatron_hcp.rules.rule import Rule

Patched = Callable[..., tuple[str, Patch]]


@pytest.fixture
def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patched:
    """What a launch's file says after its patch, applied by git and by patch alike; and the patch."""

    def apply(
        text: str | bytes, name: str = "launch.sh", assume: str = "", rules: tuple[Rule, ...] = RULES, **options: object
    ) -> tuple[str, Patch]:
        data = text.encode() if isinstance(text, str) else text
        given = LoadOptions(assumes=(assume,) if assume else (), **options)  # type: ignore[arg-type]
        results = []
        patch: Patch | None = None
        for tool in (["git", "apply", "-"], ["patch", "-p1", "--quiet"]):
            folder = tmp_path / tool[0]
            shutil.rmtree(folder, ignore_errors=True)
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_bytes(data)
            monkeypatch.chdir(folder)
            if patch is None:
                launch = load_launch(name, given)
                patch = patch_of(launch, check_launch(launch, rules, verdict=False).findings, rules)
            if patch.text:
                done = subprocess.run(tool, input=patch.text.encode(), cwd=folder, capture_output=True)
                assert done.returncode == 0, f"{tool[0]}: {done.stderr.decode()}{done.stdout.decode()}\n{patch.text}"
            assert [path.name for path in folder.rglob("*") if path.is_file()] == [Path(name).name]
            results.append((folder / name).read_bytes().decode())
        assert patch is not None and results[0] == results[1]
        return results[0], patch

    return apply
