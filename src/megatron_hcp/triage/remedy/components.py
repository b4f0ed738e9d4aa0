"""Which part of the software an exception comes from, by its module's path; how a missing module is installed."""

from __future__ import annotations

import re
from functools import cache

from megatron_hcp.triage.remedy.correction import records

_PLUMBING = re.compile(
    r"torch/(?:nn/modules/module|_ops|utils/_contextlib|autograd|distributed/elastic)|"
    r"python3\.\d{1,2}/(?!(?:site|dist)-packages)|torch/_utils\.py|<frozen|<__array|<string>|concurrent/futures|runpy|importlib"
)
"""Frames that every call passes."""
_NEAREST = 4


@cache
def _components() -> list[tuple[re.Pattern[str], str, str]]:
    return [(re.compile(said["frame"]), said["part"], said["look"]) for said in records("components.txt")]


def is_plumbing(frame: str) -> bool:
    """Whether a frame says nothing of where an exception comes from."""
    return _PLUMBING.search(frame) is not None


def component_of(frames: tuple[str, ...]) -> tuple[str, str] | None:
    """The part and what to look at there, by the frames nearest to an exception, the innermost first."""
    for frame in [frame for frame in frames if not is_plumbing(frame)][:_NEAREST]:
        if found := next(((part, look) for pattern, part, look in _components() if pattern.search(frame)), None):
            return found
    return None


_PACKAGE = re.compile(r"(?:site|dist)-packages/(\w{2,40})/")
_NAMED_OTHERWISE = {"megatron": "megatron-core", "swift": "ms-swift", "PIL": "pillow", "cv2": "opencv-python"}


def distribution(module: str) -> str:
    """What pip calls the package of a module, as far as its name says."""
    top = module.partition(".")[0]
    return _NAMED_OTHERWISE.get(top, top.replace("_", "-"))


def package_of(file: str) -> str:
    """The installed package that a file is of, as pip calls it; empty for others."""
    found = _PACKAGE.search(file)
    return distribution(found[1]) if found else ""


def install_text(module: str) -> str:
    """How a missing module gets into the job's environment; by its name, or the longest part of it that is known."""
    known = next(records("installs.txt"))
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        if found := known.get(".".join(parts[:count])):
            return f"{found} (in the environment that the job runs in, on every node)"
    if len(parts) > 1:
        return (
            f"the installed {parts[0]} has no {module}: install the release that has it (pip show {parts[0]}), or, if "
            "it is your own, put its folder on PYTHONPATH"
        )
    return (
        f"pip install {module.replace('_', '-')} in the environment that the job runs in, on every node; if {module} "
        "is a folder of your own, put its parent on PYTHONPATH"
    )
