"""Creates a new skill with everything that a skill of this pack has; the places to fill in are marked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.resources import pack_dir
from megatron_hcp.skills.skill import NAME, files_of

_NAME, _TITLE = "NEW-SKILL", "NEW SKILL"
"""The placeholders for the name and the title in templates/skill/."""


def new_skill(name: str, place: Path) -> Path:
    """Writes the skill into the folder `place`, which is created if missing: completely or not at all.

    Raises:
        HcpError: the name is not valid for a skill, something with that name exists, or it cannot be written.
    """
    if not NAME.fullmatch(name) or len(name) > 64:
        raise HcpError(
            f"found the name {visible(name)[:100]!r}",
            wanted="1 to 64 lower-case letters and digits, single hyphens inside",
            do="the folder is named with --dir",
        )
    target = place / name
    if os.path.lexists(target):
        raise HcpError(
            f"{visible(str(target))} already exists", wanted="a new skill", do="choose another name or --dir"
        )
    try:
        place.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=f".{name}.hcp-", dir=place))
        try:
            for path, text in _files(name):
                (room / name / path).parent.mkdir(parents=True, exist_ok=True)
                (room / name / path).write_text(text, encoding="utf-8")
            os.rename(room / name, target)
        finally:
            shutil.rmtree(room, ignore_errors=True)
    except OSError as error:
        raise HcpError(
            f"cannot write {visible(str(target))}: {error.strerror}",
            wanted="a writable folder",
            do="name one with --dir",
        ) from None
    return target


def _files(name: str) -> Iterator[tuple[str, str]]:
    pattern = pack_dir("templates") / "skill"
    title = name.replace("-", " ").capitalize()
    for path in files_of(pattern):
        text = (pattern / path).read_text(encoding="utf-8")
        # The suffix .in keeps tools that look for skills from finding the template.
        yield path.removesuffix(".in"), text.replace(_NAME, name).replace(_TITLE, title)
