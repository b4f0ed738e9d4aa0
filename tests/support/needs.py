"""What a test needs beyond the base install: torch, upstream, slurm, launchers, shells are markers, by this plugin.

A test whose need is absent is skipped; with HCP_REQUIRE=torch,upstream,slurm,launchers,shells (CI) it fails instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

NEEDS = frozenset(("torch", "upstream", "slurm", "launchers", "shells"))
REQUIRED = frozenset(filter(None, os.environ.get("HCP_REQUIRE", "").split(",")))
LAUNCHERS = Path(os.environ.get("HCP_LAUNCHERS", Path.home() / ".cache" / "hcp-launchers"))
"""Ray and ft_launcher, in a folder of their own: what megatron-core does depends on whether it finds the latter."""
UPSTREAM = Path(os.environ.get("HCP_UPSTREAM", Path.home() / ".cache" / "hcp-upstream"))


def _missing(need: str) -> str | None:
    if need == "torch":
        absent = [name for name in ("torch", "megatron", "einops") if importlib.util.find_spec(name) is None]
        return f"{', '.join(absent)} not installed" if absent else None
    if need == "upstream":
        return None if UPSTREAM.is_dir() else f"no upstream sources in {UPSTREAM}: run tests/fetch_upstream.py"
    if need == "launchers":
        absent = [name for name in ("ray", "ft_launcher") if not (LAUNCHERS / "bin" / name).is_file()]
        how = f"pip install --no-deps --target {LAUNCHERS} -r tests/launchers.txt"
        return f"{', '.join(absent)} not in {LAUNCHERS}: {how}" if absent else None
    if need == "shells":
        absent = [name for name in ("zsh", "fish") if shutil.which(name) is None]
        return f"{', '.join(absent)} not installed" if absent else None
    absent = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed" if absent else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for need in sorted(NEEDS):
        if item.get_closest_marker(need) is None:
            continue
        reason = _missing(need)
        if reason and need in REQUIRED:
            pytest.fail(f"HCP_REQUIRE names {need}, but: {reason}", pytrace=False)
        if reason:
            pytest.skip(reason)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Where everything is required, no skip hides a test: neither a marker's nor an `importorskip` of the test extra.

    One is let through: the published SARIF schema lies beside some checkouts only, and the test says so.
    """
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and REQUIRED >= NEEDS and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if "SARIF schema" not in reason:
            report.outcome = "failed"
            report.longrepr = f"HCP_REQUIRE is set, and this test was skipped: {reason}"


@pytest.fixture
def upstream() -> Path:
    """The folder that holds one folder per unpacked upstream wheel: `<dist>-<version>`."""
    return UPSTREAM
