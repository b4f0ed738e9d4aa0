"""Upstream's own code on this machine, as `--upstream` names it: whose it is, where, and which release."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Fact, UpstreamTree


class Repository(NamedTuple):
    """A repository of upstream: the file by which its tree is recognised, the file that states its version, and the
    fact that this version is. The paths are the checkout's; a wheel has at its top what a checkout keeps in `src/`."""

    mark: str
    version_file: str
    fact: str = ""


_BRIDGE = "src/megatron/bridge/package_info.py"
REPOSITORIES = {
    "megatron-lm": Repository("megatron/core/package_info.py", "megatron/core/package_info.py", "mcore"),
    "megatron-core": Repository("", "megatron/core/package_info.py", "mcore"),
    "megatron-bridge": Repository(_BRIDGE, _BRIDGE, "bridge"),
    "verl": Repository("verl/version/version", "verl/version/version", "verl"),
    "transformer-engine": Repository("transformer_engine/__init__.py", "build_tools/VERSION.txt", "te"),
    "nemo-rl": Repository("nemo_rl/package_info.py", "nemo_rl/package_info.py", "nemo_rl"),
    "ms-swift": Repository("swift/version.py", "swift/version.py", "ms_swift"),
    "slime": Repository("slime/utils/arguments.py", "setup.py", "slime"),
    "miles": Repository("miles/utils/arguments.py", "setup.py", "miles"),
    "nvidia-resiliency-ext": Repository("", "pyproject.toml", "nvrx"),
}
"""megatron-core is a part of Megatron-LM's tree. nvidia-resiliency-ext takes its version from tags."""
SHORT = {"bridge": "megatron-bridge", "te": "transformer-engine", "swift": "ms-swift"}
"""Short names of repositories."""
_DYNAMIC_CP = "megatron/core/datasets/data_schedule.py"
"""Only the dev branch has a scheduler of dynamic CP there."""
_WANTED = (
    f"[NAME=]DIR of upstream's code, NAME one of {', '.join(name for name, row in REPOSITORIES.items() if row.mark)}"
)
MOST_BYTES = 5_000_000


def upstreams_of(texts: Iterable[str], *, cached: bool = True) -> tuple[UpstreamTree, ...]:
    """What `--upstream [NAME=]DIR|installed` names; a folder that is named wins over what is installed.

    `cached`: what is read may be kept in hcp's cache.

    Raises:
        HcpError: there is no such folder, it isn't the code of a repository that hcp knows, or a repository has two.
    """
    found: dict[str, str] = {}
    texts = tuple(texts)
    for text in texts:
        for repo, folder in _named(text) if text != "installed" else ():
            if found.setdefault(repo, folder) != folder:
                raise HcpError(
                    f"--upstream names {found[repo]} and {folder} for {repo}",
                    wanted="one folder for each repository",
                    do="leave one out",
                )
    for repo, folder in _installed() if "installed" in texts else ():
        found.setdefault(repo, folder)
    return tuple(UpstreamTree(repo, folder, checkout_version(repo, folder), cached) for repo, folder in found.items())


def versions_of(upstreams: Iterable[UpstreamTree]) -> dict[str, Fact]:
    """The releases that these trees state, and the branch of Megatron-LM, as facts."""
    facts = {}
    for upstream in upstreams:
        name = REPOSITORIES[upstream.repo].fact
        if name and upstream.release is not None:
            facts[name] = Fact(upstream.release, "upstream")
        schedule = os.path.join(upstream.path, _DYNAMIC_CP)
        if upstream.repo == "megatron-lm" and os.path.isfile(schedule):
            branch = "dev" if "class DefaultDynamicCPScheduler" in _text(schedule) else "main"
            facts["mcore_branch"] = Fact(branch, "upstream")
    return facts


def recognised(folder: str) -> list[str]:
    """The repositories whose code lies in a folder: one in a checkout, several where packages are installed."""
    return [name for name, row in REPOSITORIES.items() if row.mark and _below(folder, row.mark) is not None]


def checkout_version(name: str, folder: str | os.PathLike[str]) -> str | None:
    """The version of a tree as its repository states it, such as 2.20.0.dev0; None if not stated."""
    row = REPOSITORIES.get(name)
    file = _below(os.fspath(folder), row.version_file) if row else None
    if file is None:
        return None
    text = _text(file)
    parts = [re.search(rf"^{key}\s*=\s*(\d+)", text, re.M) for key in ("MAJOR", "MINOR", "PATCH")]
    if all(parts):
        pre = re.search(r"^PRE_RELEASE\s*=\s*['\"](\w*)", text, re.M)
        return ".".join(part[1] for part in parts if part) + (pre[1] if pre else "")
    named = re.search(r"""^[ \t]{0,40}(?:__version__ = |version=)['"]([\w.+]{1,60})['"]""", text, re.M)
    found = named[1] if named else text.strip()
    return found if _is_version(found) else None


def _named(text: str) -> list[tuple[str, str]]:
    name, equals, folder = text.partition("=")
    if not equals or os.path.isdir(text):
        name, folder = "", text
    if not os.path.isdir(folder):
        what = "which is a file" if os.path.isfile(folder) else "and no such folder" if folder else "an empty text"
        raise HcpError(f"found --upstream {text[:200]!r}, {what}", wanted=_WANTED, do="check the path")
    here = recognised(folder)
    if not name:
        if here:
            return [(repo, folder) for repo in here]
        raise HcpError(f"found --upstream {text[:200]}, which is no code of upstream", wanted=_WANTED)
    repo = "megatron-lm" if name == "megatron-core" else SHORT.get(name, name)
    if repo not in here:
        what = f"no code of {repo}" if repo in REPOSITORIES else "a name that is unknown"
        raise HcpError(f"found --upstream {text[:200]}: {what}", wanted=_WANTED, do="check the name and the path")
    return [(repo, folder)]


def _installed() -> list[tuple[str, str]]:
    """The packages that Python would import here, found without importing them."""
    from importlib.util import find_spec

    found = []
    for module in ("megatron", "verl", "transformer_engine", "nemo_rl", "swift", "slime", "miles"):
        try:
            spec = find_spec(module)
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folder = os.path.dirname(place)
            found += [(repo, folder) for repo in recognised(folder) if f"{module}/" in f"/{REPOSITORIES[repo].mark}"]
    if not found:
        raise HcpError(
            "found --upstream installed, and none of upstream's packages here",
            wanted="megatron-core or another one, installed for this Python",
            do="run it in the job's container, or name a checkout",
        )
    return found


def _below(folder: str, name: str) -> str | None:
    """A file of a tree, where a wheel has it or where the checkout does."""
    places = (os.path.join(folder, name.removeprefix("src/")), os.path.join(folder, name))
    return next(filter(os.path.isfile, places), None)


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return len(text) <= 100


def _text(file: str) -> str:
    from megatron_hcp.ground.files import read_regular

    return read_regular(file, "a source file of upstream", limit=MOST_BYTES).decode("utf-8", "replace")
