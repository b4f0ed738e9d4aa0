"""Cases of what looks at the machine: `hcp doctor`, and `hcp dryrun` up to the start of its child.

No program is started: what `hcp doctor` reads of programs is made here, and `hcp dryrun` ends where it would start one.
"""

from __future__ import annotations

import json
import sys
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from fuzzer.launches import GOOD, Made, pick
from fuzzer.seeds import Seeds
from fuzzer.shell import launch_words, script
from fuzzer.text import damaged, encoded, monster, value

_UPSTREAM = {
    "megatron/core/package_info.py": b"MAJOR = 0\nMINOR = 16\nPATCH = 1\nPRE_RELEASE = ''\n",
    "megatron/training/__init__.py": b"",
    "pretrain_gpt.py": b"",
    "transformer_engine/__init__.py": b"",
    "build_tools/VERSION.txt": b"2.14.0\n",
    "verl/version/version": b"0.9.0\n",
    "verl/workers/engine/megatron/__init__.py": b"",
    "src/megatron/bridge/package_info.py": b"MAJOR = 0\nMINOR = 6\nPATCH = 0\n",
}
_RANKS = ("auto", "all-roles", "0", "0,1", "0,0,7", "-1")
_SAID = (
    *("GPU 0: NVIDIA H100 80GB HBM3 (UUID: x)\n", "slurm 24.05.1\n", "12.8 8\n", ""),
    *("ModuleNotFoundError: No module named 'mcp'\n", "Slurmctld(primary) at a is UP\n"),
)


def dryrun(random: Random, seeds: Seeds) -> Made:
    """A launch, a tree of upstream with parts that are absent or damaged, and options of a dry run."""
    launch = GOOD if random.random() < 0.3 else encoded(random, script(random))
    if random.random() < 0.3:
        launch = damaged(random, pick(random, seeds, "shell"), [launch])
    files = [("run.sh", launch)]
    for name, text in _UPSTREAM.items():
        if random.random() < (0.95 if name.startswith("megatron") else 0.6):
            text = damaged(random, text, [b"version='9'\n"]) if text and random.random() < 0.2 else text
            files.append((f"upstream/{name}", text))
    words = ["dryrun", random.choice(("run.sh",) * 9 + (monster(random),))]
    where = random.choice(("upstream",) * 6 + ("megatron-lm=upstream", "te=upstream", "installed", monster(random)))
    words += ["--upstream", where] if random.random() < 0.9 else []
    usual = {"--ranks": _RANKS, "--until": ("backward", "model"), "--seconds": ("5", "60"), "--memory": ("1", "8")}
    for name, values in usual.items():
        if random.random() < 0.3:
            words += [name, random.choice(values) if random.random() < 0.6 else value(random)]
    if random.random() < 0.5:
        words += ["--assume", random.choice(("te=2.14", "world_size=64", f"world_size={value(random)}"))]
    words += ["--format", random.choice(("text", "json"))]
    return [*words, *(["--", *launch_words(random)[:4]] if random.random() < 0.2 else [])], files, b""


def doctor(random: Random, seeds: Seeds) -> Made:
    """What programs say, in the order in which they are asked, and folders of installed skills."""
    said = []
    for _ in range(random.randint(1, 12)):
        text = random.choice(_SAID) if random.random() < 0.5 else monster(random) + "\n"
        text = damaged(random, text.encode("utf-8", "replace"), []).decode("utf-8", "replace")
        said.append((random.choice((0, 0, 1, 127, None)), text, random.choice(("", text)), random.choice(("", "time"))))
    files = []
    for number in range(random.choice((0, 1, 2))):
        skill = random.choice(seeds.of("skill") or (b"",))
        name = random.choice(("training-resiliency", "context-parallel-planning", f"x{number}"))
        place = random.choice((".agents", ".claude"))
        skill = damaged(random, skill, []) if random.random() < 0.7 else skill
        files.append((f"{place}/skills/{name}/SKILL.md", skill))
    words = ["doctor", "--format", random.choice(("text", "json", "json", monster(random)))]
    return words, list(dict(files).items()), json.dumps(said).encode()


class _ReachedError(BaseException):
    """The dry run is about to start its child."""


def asked(words: list[str]) -> None:
    """Runs `hcp dryrun` up to there."""
    from megatron_hcp.cli.main import main
    from megatron_hcp.dryrun import ask

    with patch.object(ask, "tempfile", SimpleNamespace(TemporaryDirectory=_reached)):
        try:
            main(words)
        except _ReachedError:
            print(json.dumps({"schema": "hcp.dryrun-asked/0"}))
            sys.exit(0)


def _reached(**_: str) -> None:
    raise _ReachedError


def examined(words: list[str]) -> None:
    """Runs `hcp doctor` where all programs are there, and say what standard input holds."""
    from megatron_hcp.cli.machine import doctor
    from megatron_hcp.cli.main import main
    from megatron_hcp.ground.child import Child

    said = [Child(*one) for one in json.load(sys.stdin)]

    def run(*asked: object, **_: object) -> Child:
        said.append(said.pop(0))
        return said[-1]

    with patch.multiple(doctor, run_child=run, shutil=SimpleNamespace(which=str)):
        main(words)
