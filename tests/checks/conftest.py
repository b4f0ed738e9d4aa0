"""Starts the programs of checks/ as a user does, or with one part of hcp or upstream broken first."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.programs import CHECKS, run_check, run_in_fork


@pytest.fixture
def started():
    return run_check


@pytest.fixture
def forked():
    return run_in_fork


@pytest.fixture
def checks_dir() -> Path:
    return CHECKS
