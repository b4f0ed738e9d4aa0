"""What is installed is what was tested: bounded requirements, a pin for every package, wheels of the same bytes."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release.sbom import bill_of

from support.build_source import copy_source
from support.processes import HANG_S
from support.requirements import BASE, BUILD, EXTRAS, FOR_USERS, HASHED, PINS, PROJECT, ROOT, pinned, pins_of

BOUNDLESS = {"torch", "megatron-core", "transformer-engine", "tensordict", "einops"}
"""The containers of users decide on these."""


class Closure(NamedTuple):
    """What the tests need, directly or not: name -> what wants it. `absent` is what this environment lacks."""

    installed: dict[str, str]
    absent: dict[str, str]


def closure_of(requirements: list[Requirement]) -> Closure:
    found = Closure({}, {})
    queue = [(requirement, "pyproject.toml") for requirement in requirements]
    done = set()
    while queue:
        requirement, wanted_by = queue.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            if name == canonicalize_name(PROJECT["project"]["name"]):
                queue += [(each, "pyproject.toml") for each in EXTRAS.get(extra, BASE)]
                continue
            try:
                own = distribution(name).requires or []
            except PackageNotFoundError:
                found.absent[name] = wanted_by
                continue
            found.installed.setdefault(name, wanted_by)
            for each in map(Requirement, own):
                stated = each.marker is None or each.marker.evaluate({"extra": extra})
                plain = each.marker is None or each.marker.evaluate({"extra": ""})
                if stated and (plain if not extra else not plain):
                    queue.append((each, name))
    return found


@pytest.fixture(scope="module")
def closure() -> Closure:
    return closure_of([*BASE, *EXTRAS["test"], *BUILD])


@pytest.fixture(scope="module")
def pins() -> dict[str, Requirement]:
    return pins_of(PINS.read_text(encoding="utf-8"))


def test_what_the_base_install_needs_has_an_upper_bound():
    for requirement in BASE:
        bounds = {specifier.operator for specifier in requirement.specifier}
        assert bounds & {"<", "<=", "~="}, f"{requirement}: a next major version would be installed untested"


def test_what_users_containers_decide_has_none():
    for requirement in (each for name in ("megatron", "dcp", "te") for each in EXTRAS[name]):
        assert requirement.name in BOUNDLESS, f"{requirement.name} is new here: bound it, or name it"
        assert {specifier.operator for specifier in requirement.specifier} <= {">="}, str(requirement)


def test_every_package_that_is_installed_for_the_tests_is_pinned(closure, pins):
    unpinned = [
        f"{name}=={distribution(name).version} (wanted by {wanted_by})"
        for name, wanted_by in sorted(closure.installed.items())
        if name not in pins
    ]
    assert not unpinned, f"constraints.txt has no line for {', '.join(unpinned)} on Python {sys.version.split()[0]}"


def test_what_is_installed_is_what_constraints_say(closure, pins):
    other = [
        f"{name} {distribution(name).version}, wanted {pins[name].specifier}"
        for name in sorted(closure.installed)
        if name in pins and not pins[name].specifier.contains(distribution(name).version, prereleases=True)
    ]
    assert not other, f"not the tested versions: {'; '.join(other)}: pip install -c constraints.txt -e '.[test]'"


def test_a_pin_is_one_version_and_somebody_wants_it(closure, pins):
    assert all(str(pin.specifier).startswith("==") and "*" not in str(pin.specifier) for pin in pins.values())
    if not closure.absent:
        assert not set(pins) - set(closure.installed), "constraints.txt pins what nothing wants any more"


def test_the_base_install_is_complete(closure):
    needed = {canonicalize_name(requirement.name) for requirement in BASE}
    assert not needed & set(closure.absent)


def test_a_package_without_a_pin_would_be_found():
    line = "click==8.5.1\nother==1 ; python_version < '3'\n"
    assert set(pins_of(line)) == {"click"}


def test_the_hashed_constraints_hold_what_users_install_at_the_same_versions():
    text = HASHED.read_text(encoding="utf-8")
    plain, hashed = (
        {(canonicalize_name(pin.name), str(pin.specifier)) for pin, _ in pinned(each)}
        for each in (PINS.read_text(encoding="utf-8"), text)
    )
    assert hashed <= plain, "run lab release/hashes: constraints.txt has other versions by now"
    missing = closure_of(FOR_USERS).installed.keys() - pins_of(text).keys()
    assert not missing, f"run lab release/hashes: constraints.hashed.txt lacks {', '.join(sorted(missing))}"


def test_every_line_with_hashes_has_some_and_each_is_a_sha256():
    for pin, hashes in pinned(HASHED.read_text(encoding="utf-8")):
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes), str(pin)


def test_a_line_with_hashes_is_read_with_them():
    ((pin, hashes),) = pinned("a==1; python_version < '4' \\\n    --hash=sha256:x\n# b\n")
    assert (pin.name, str(pin.specifier), hashes) == ("a", "==1", ("sha256:x",))


def test_workflows_name_actions_by_their_commits_and_the_release_has_never_run():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in used), path.name
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "Never run yet" in release and "--require-hashes --no-deps -r constraints.hashed.txt" in release


def test_the_bill_of_materials_names_the_wheel_and_every_pinned_package(tmp_path):
    wheel = tmp_path / "megatron_hcp-0.2.0-py3-none-any.whl"
    wheel.write_bytes(b"x")
    bill = bill_of(wheel, HASHED.read_text(encoding="utf-8"))
    whole = bill["metadata"]["component"]
    assert whole["purl"] == "pkg:pypi/megatron-hcp@0.2.0"
    assert whole["hashes"][0]["content"] == hashlib.sha256(b"x").hexdigest()
    pins = {canonicalize_name(pin.name) for pin, _ in pinned(HASHED.read_text(encoding="utf-8"))}
    assert {part["name"] for part in bill["components"]} == pins
    required = {part["name"] for part in bill["components"] if part["scope"] == "required"}
    assert required == closure_of(BASE).installed.keys()
    assert bill == bill_of(wheel, HASHED.read_text(encoding="utf-8"))


def _source(folder: Path, stamp: int) -> Path:
    """A copy of what a wheel is made of, with times and permissions of its own."""
    copy_source(folder)
    for path in (path for path in folder.rglob("*") if path.is_file()):
        path.chmod(0o600 if stamp % 2 else 0o644)
        os.utime(path, (stamp, stamp))
    return folder


def _wheel(folder: Path, stamp: int) -> Path:
    """The wheel built from a copy of the tree."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -c constraints.txt -e '.[test]'")
    out = folder / f"wheel{stamp}"
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=_source(folder / f"source{stamp}", stamp),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_a_wheel_that_is_built_twice_has_the_same_bytes(tmp_path):
    wheels = [_wheel(tmp_path, stamp) for stamp in (1_000_000_001, 1_700_000_000)]
    assert wheels[0].stat().st_size < 2_500_000
    there, src = zipfile.ZipFile(wheels[0]).namelist(), ROOT / "src"
    left_out = (path for path in src.rglob("*.py") if str(path.relative_to(src)) not in there)
    assert {(path.name, len(ast.parse(path.read_text()).body)) for path in left_out} == {("__init__.py", 1)}
    assert len({(wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()) for wheel in wheels}) == 1


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel as pip installs it: with the compiled files that pip puts beside each module, templates included."""
    place = tmp_path_factory.mktemp("installed")
    wheel = _wheel(place, 1_700_000_000)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--target", place / "site", wheel], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert list((place / "site" / "megatron_hcp" / "_pack").rglob("*.pyc")), (
        "pip compiled nothing: this test sees no caches"
    )
    return place / "site"


FOREIGN = {
    "hcp/__init__.py": "raise ImportError('the package of another distribution')\n",
    "hcp-9.dist-info/METADATA": "Metadata-Version: 2.1\nName: hcp\nVersion: 9\n",
    "hcp-9.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "hcp-9.dist-info/entry_points.txt": "[console_scripts]\nhcp = hcp:main\n",
    "hcp-9.dist-info/RECORD": "hcp/__init__.py,,\nhcp-9.dist-info/RECORD,,\n",
}
"""A wheel named like our command, as PyPI has one."""


@pytest.mark.slow
@pytest.mark.parametrize("ours_last", [True, False])
def test_a_distribution_called_hcp_and_ours_live_in_one_environment(tmp_path: Path, ours_last: bool) -> None:
    theirs = tmp_path / "hcp-9-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as archive:
        for name, text in FOREIGN.items():
            archive.writestr(name, text)
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=True)
    python = tmp_path / "venv" / "bin" / "python"

    def run(*words: str | Path) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path.endswith("-packages"))
        done = subprocess.run([python, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    wheels = (theirs, _wheel(tmp_path, 1_700_000_000))
    for wheel in wheels if ours_last else wheels[::-1]:
        run(*pip, "install", "--no-index", "--no-deps", "--force-reinstall", wheel)
    assert run("-m", "megatron_hcp", "--version").startswith("hcp")
    run(*pip, "uninstall", "--yes", "hcp")
    assert run("-m", "megatron_hcp", "explain", "HCP001").startswith("# HCP001")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["skills new mine", "skills install --dir here", "skills validate", "verify --list", "completion bash"],
)
def test_the_pack_works_as_pip_installs_it(installed: Path, tmp_path: Path, words: str):
    done = subprocess.run(
        [sys.executable, "-m", "megatron_hcp", *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.slow
def test_an_agent_finds_the_tools_of_the_pack_as_pip_installs_it(installed: Path, tmp_path: Path):
    pytest.importorskip("anyio", reason="anyio is not installed: pip install -c constraints.txt -e '.[test]'")
    pytest.importorskip("mcp", reason="mcp is not installed: pip install -c constraints.txt -e '.[test]'")
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "megatron_hcp", "mcp"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert server.stdin is not None and server.stdout is not None
    with server:
        server.stdin.write("".join(json.dumps(message) + "\n" for message in asked))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
    (tools,) = [answer["result"]["tools"] for answer in answers if answer["id"] == 2]
    assert {tool["name"] for tool in tools} == {"check", "triage", "explain", "support", "plan", "render", "dcp_plan"}
    assert all(tool["outputSchema"] for tool in tools)
