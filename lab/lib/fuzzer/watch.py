"""What a command does beside computing: files opened and changed, programs and connections, foreign code.

An audit hook sees it. A change of a file that was not named, a program and a connection are kept from happening, so
that a bug in hcp does not harm the machine it is tested on.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzzer.case import OUTPUT

from megatron_hcp.ground.cache import folder as cache_folder

ROOT = Path(__file__).resolve().parents[3]
DECOY = "hcp_decoy"
"""A file in each folder, and a package on the path, that nothing names in a way that may open or import it."""
_OWN = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (
            sys.prefix,
            sys.base_prefix,
            sysconfig.get_path("stdlib"),
            sysconfig.get_path("purelib"),
            ROOT / "src",
            ROOT / "skills",
            ROOT / "checks",
            ROOT / "templates",
            ROOT / "schemas",
        )
    }
)
"""Folders of the program itself. What lies in them may be read."""
_STARTS = frozenset(
    "subprocess.Popen os.exec os.fork os.forkpty os.posix_spawn os.spawn os.startfile os.system pty.spawn".split()
)
_CONNECTS = frozenset("socket.bind socket.connect socket.getaddrinfo socket.sendto urllib.Request".split())
_CHANGES = frozenset(
    "os.chflags os.chmod os.chown os.link os.mkdir os.remove os.rename os.rmdir os.setxattr os.symlink os.truncate "
    "os.utime shutil.copytree shutil.move shutil.rmtree".split()
)
_TWO_PATHS = frozenset(("os.rename", "os.link", "shutil.move", "shutil.copytree"))
_WRITTEN = ("agents", "hcp.yaml", "hcp-baseline.json")
"""Starts of what commands write that are not asked for a name: skills, settings, the baseline; without their dot."""
_LISTS = frozenset(("os.listdir", "os.scandir"))
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class BlockedError(BaseException):
    """What hcp was about to do, and must not."""


class Watch:
    """What was seen since `watching` began; nothing is looked at outside it."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        self._folder = ""
        self._named: tuple[str, ...] = ()
        self._cache = self._wheels = ""
        self._hooked = False

    @contextmanager
    def watching(self, folder: Path, words: Sequence[str]) -> Iterator[list[str]]:
        """Inside, what is not allowed is added to the list."""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._hook)
        self.seen = []
        self._folder = os.path.realpath(folder) + os.sep
        self._named = tuple({path + os.sep for word in words for path in _paths_in(word)})
        self._cache = os.path.realpath(cache_folder()) + os.sep
        self._wheels = os.path.realpath(os.environ.get("HCP_UPSTREAM") or Path.home() / ".cache" / "hcp-upstream")
        before = set(sys.modules)
        # A module that is imported first in here is compiled, which is the interpreter's write and not the command's.
        writes_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        self.on = True
        try:
            yield self.seen
        finally:
            self.on = False
            sys.dont_write_bytecode = writes_no_bytecode
            for name in set(sys.modules) - before:
                where = getattr(sys.modules[name], "__file__", None)
                if where is not None and not os.path.realpath(where).startswith(_OWN):
                    self.seen.append(f"imported {name} of {where}")
                if name.partition(".")[0] in (DECOY, "this", "antigravity"):
                    self.seen.append(f"imported {name}")

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                return
            writes = bool((flags or 0) & _WRITES) or (isinstance(mode, str) and any(sign in mode for sign in "wax+"))
            self._check(path, "wrote" if writes else "opened", writes)
        elif event in _LISTS:
            self._check("." if arguments[0] is None else arguments[0], "listed", False)
        elif event in _CHANGES:
            for path in arguments[event == "shutil.copytree" : 2 if event in _TWO_PATHS else 1]:
                self._check(path, event, True)
        elif event in _STARTS:
            self._block(f"started {str(arguments[0] if arguments else '')[:100]}")
        elif event in _CONNECTS:
            self._block(f"connected: {event}")

    def _check(self, path: Any, what: str, changes: bool) -> None:
        if isinstance(path, int):
            return
        self.on = False  # what happens here is not hcp's doing
        try:
            full = os.path.realpath(os.fsdecode(path))
        except (ValueError, OSError):
            return
        finally:
            self.on = True
        if (full + os.sep).startswith(self._cache) or (changes and self._cache.startswith(full + os.sep)):
            return  # hcp's own cache, and the folders above it that it makes
        inside = full.startswith(self._folder)
        last = os.path.relpath(full, self._folder).lstrip(".") if inside else ""
        if changes:
            if full == os.devnull or last.startswith((OUTPUT, *_WRITTEN)):
                return
            self._block(f"{what} {self._short(full)}")
        if inside and DECOY not in last:
            return
        if what == "listed" and full in (self._wheels, *map(os.path.realpath, sys.path)):  # an import looks there
            return
        if full == self._folder[:-1] or (full + os.sep).startswith(_OWN) or full == os.devnull:
            return
        if not (full + os.sep).startswith(self._named):
            self.seen.append(f"{what} {self._short(full)}")

    def _block(self, what: str) -> None:
        self.seen.append(what)
        raise BlockedError(what)

    def _short(self, full: str) -> str:
        return full.replace(self._folder, "")[:200]


def _paths_in(word: str) -> Iterator[str]:
    """What a word could name: itself, and what follows each = in it; nothing as short as /."""
    while word:
        try:
            full = os.path.realpath(word)
        except (ValueError, OSError):
            full = ""
        if len(full) > 1:
            yield full
        word = word.partition("=")[2]


WATCH = Watch()
