"""Programs of upstream's trees, kept in hcp's cache until a file that was read, or looked for, changes."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from megatron_hcp.ground.cache import digest_of, keep, kept
from megatron_hcp.validators.program import StartProgram, as_lines, unit_of
from megatron_hcp.validators.reader.checkout import TextOf, program_of_units, read_folder, roots_of, texts_of
from megatron_hcp.validators.roots import UpstreamRoots


def program_of_tree(folder: str, repo: str = "megatron-lm") -> StartProgram:
    """The program of a repository's validators in a folder, as `program_of_folder` has it.

    Raises:
        HcpError: the folder holds none that is known.
    """
    upstream = roots_of(repo)
    text_of = texts_of(folder, upstream)
    entry = digest_of(["program", repo, os.path.realpath(folder)])
    found = _known(kept(entry), upstream, text_of)
    if found is not None:
        return found
    files: dict[str, str] = {}

    def noting(path: str) -> str | None:
        text = text_of(path)
        files[path] = _digest(text)
        return text

    version, units = read_folder(folder, upstream, noting)
    lines = [as_lines(unit) for unit in units.values()]
    keep(entry, {"version": version, "files": files, "units": lines})
    return program_of_units(upstream, version, units)


def _known(data: Any, upstream: UpstreamRoots, text_of: TextOf) -> StartProgram | None:
    """The program that was kept, if its files are still the same."""
    try:
        if any(_digest(text_of(path)) != digest for path, digest in data["files"].items()):
            return None
        units = [unit_of(lines) for lines in data["units"]]
        return program_of_units(upstream, str(data["version"]), {unit.name: unit for unit in units})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):  # an entry that someone else wrote
        return None


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
