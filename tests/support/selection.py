"""What runs, and on how many processes: `pytest` runs the quick set, `pytest --all` everything.

An expression after `-m` decides alone, and a test that is named by its node id always runs. Hypothesis draws the same
examples in every run of a tree; `--hypothesis-seed N` draws others. conftest.py makes this module a plugin.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

LEFT_OUT = ("slurm", "torch", "slow", "upstream")
"""The markers that the quick set leaves out, those of the longest tests first: with `--all` they start first."""
NUM_CLUSTERS = 2
"""Tests on a Slurm mostly wait: they are dealt out to this many clusters, each in a process of its own."""
MAX_WORKERS = 8
SLOW = Path("tests", "slow.txt")
"""The tests that `lab quick` found to take long, below the root; its first lines say how they were chosen."""
_WHOLE_FILE = re.compile(rb"^pytestmark = .*\bpytest\.mark\.(%s)\b" % "|".join(LEFT_OUT).encode(), re.MULTILINE)

# A loaded machine is no failure: no deadline per example, and none for drawing them.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_PROFILES = {"quick": settings(_UNTIMED, max_examples=10), "full": _UNTIMED}

_num_left_out = pytest.StashKey[dict[str, int]]()
_files_left_out = pytest.StashKey[set[Path]]()
_list = pytest.StashKey[dict[str, tuple[float, str]]]()


def examples(*, quick: int, full: int) -> int:
    """How many examples a test tries: `quick` of them in the quick set, `full` with `--all`."""
    return full if settings.get_current_profile_name() == "full" else quick


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    parser.addoption("--all", action="store_true", help="run every test with all its examples, not only the quick set")
    if not pluginmanager.hasplugin("xdist"):
        # pyproject.toml states them; without pytest-xdist (`-p no:xdist`) they mean nothing.
        parser.addoption("--numprocesses", help="ignored: there is no pytest-xdist")
        parser.addoption("--dist", help="ignored: there is no pytest-xdist")


def pytest_configure(config: pytest.Config) -> None:
    name = "full" if config.getoption("--all") else "quick"
    # Ten thousand items are made to stay: looking for garbage among them takes longer than making them.
    gc.disable()
    # The same examples in every run of a tree: what fails in CI fails here, and a draw turns nobody's change red.
    settings.register_profile(name, _PROFILES[name], derandomize=config.getoption("--hypothesis-seed", None) is None)
    settings.load_profile(name)
    # It also draws constants out of the local modules that this process has imported, and those depend on which tests
    # xdist gave it before: one seed, other examples. It keeps to its own constants.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process for each core; none beside this one where a test is named, or a person watches (`-s`, `--pdb`)."""
    if _named(config) or config.getoption("usepdb") or config.getoption("capture") == "no":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting = NUM_CLUSTERS if config.getoption("--all") or "slurm" in config.getoption("markexpr") else 0
    return min(cores, MAX_WORKERS) + waiting


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The quick set goes to the processes in bundles; of the tests that `--all` adds, each is worth a question."""
    if config.getoption("--all") or config.getoption("markexpr") or config.getoption("dist") != "loadgroup":
        return None
    from support.bundles import Bundles

    return Bundles(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick set does not import a file whose every test it leaves out: torch and megatron-core take seconds."""
    if collection_path.suffix != ".py" or config.getoption("--all") or config.getoption("markexpr"):
        return None
    folder = config.invocation_params.dir
    if any((folder / arg.partition("::")[0]).resolve() == collection_path for arg in config.args):
        return None
    own = collection_path.relative_to(config.rootpath).as_posix()
    is_slow = _listed(config).get(own, (0.0, ""))[1] == "slow"
    if not is_slow and not _WHOLE_FILE.search(collection_path.read_bytes()):
        return None
    config.stash.setdefault(_files_left_out, set()).add(collection_path)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _deal_out(items)
    _sample(items)
    _mark_slow(config, items)
    if config.getoption("--all"):
        items.sort(key=lambda item: _marker_of(item)[0])
    elif not config.getoption("markexpr"):
        named = _named(config)
        left_out = {item: _marker_of(item)[1] for item in items if not _is_named(item, named) and _marker_of(item)[1]}
        config.stash[_num_left_out] = dict(Counter(left_out.values()))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """From here on garbage is looked for among what the tests make; not among items and modules, at exit neither."""
    gc.freeze()
    gc.enable()


def _marker_of(item: pytest.Item) -> tuple[int, str]:
    """The first of LEFT_OUT's markers that an item has, after its place there; an empty one where it has none."""
    for place, name in enumerate(LEFT_OUT):
        if item.get_closest_marker(name):
            return place, name
    return len(LEFT_OUT), ""


def _sample(items: list[pytest.Item]) -> None:
    """Of a test with the marker `sample(n)`, all cases but each n-th are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample:
            test = item.nodeid.partition("[")[0]
            if seen[test] % sample.args[0]:
                item.add_marker("slow")
            seen[test] += 1


def _mark_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests that SLOW has as slow are; a line of a test that isn't there ends a run of all."""
    rows = _listed(config)
    gone = set(rows)
    for item in items:
        names = names_of(item.nodeid)
        gone.difference_update(names)
        if any(rows.get(name, (0.0, ""))[1] == "slow" for name in names):
            item.add_marker("slow")
    if gone and config.getoption("--all") and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"{SLOW} has {min(gone)}, which is no test any more: rename its line, or take it out")


def names_of(nodeid: str) -> tuple[str, str, str]:
    """Under which a test may be listed: the case's, the test's, the file's."""
    return nodeid, nodeid.partition("[")[0], nodeid.partition("::")[0]


def listed(text: str) -> dict[str, tuple[float, str]]:
    """What SLOW says under a name: seconds, and `slow` or `kept`."""
    lines = (line.split(" ", 2) for line in text.splitlines() if not line.startswith("#"))
    return {name: (float(seconds), choice) for seconds, choice, name in lines}


def _listed(config: pytest.Config) -> dict[str, tuple[float, str]]:
    if _list not in config.stash:
        file = config.rootpath / SLOW
        config.stash[_list] = listed(file.read_text("utf-8")) if file.is_file() else {}
    return config.stash[_list]


def _deal_out(items: list[pytest.Item]) -> None:
    """Gives each test on a Slurm its cluster; all tests of a cluster run in one process."""
    for number, item in enumerate(item for item in items if item.get_closest_marker("slurm")):
        callspec = getattr(item, "callspec", None)
        cluster = callspec.params.get("cluster", number) if callspec else number
        item.add_marker(pytest.mark.xdist_group(f"slurm-{cluster % NUM_CLUSTERS}"))


def _named(config: pytest.Config) -> list[tuple[Path, str]]:
    """The arguments that name tests: their file and what follows it."""
    folder = config.invocation_params.dir
    return [((folder / file).resolve(), name) for file, _, name in (arg.partition("::") for arg in config.args) if name]


def _is_named(item: pytest.Item, named: list[tuple[Path, str]]) -> bool:
    own = item.nodeid.partition("::")[2]
    return any(item.path == file and (own == name or own.startswith((f"{name}[", f"{name}::"))) for file, name in named)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the numbers over from a worker; all workers collect the same."""
    if hasattr(node, "workeroutput"):
        node.config.stash[_num_left_out] = node.workeroutput["left_out"]
        node.config.stash[_files_left_out] = set(map(Path, node.workeroutput["files_left_out"]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_num_left_out, {})
        files = session.config.stash.get(_files_left_out, set())
        session.config.workeroutput["files_left_out"] = sorted(map(str, files))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(_num_left_out, {})
    files = len(config.stash.get(_files_left_out, ()))
    if left_out:
        unread = f" and {files} files" if files else ""
        each = ", ".join(f"{name} {left_out[name]}" for name in LEFT_OUT if name in left_out)
        terminalreporter.write_line(
            f"left out: {sum(left_out.values())} ({each}){unread}; "
            "--all runs everything, -m MARKER or the name of a test just that"
        )
