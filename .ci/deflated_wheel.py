"""Deflates the wheel as far as zlib can: hatchling has no option for it, and the wheel has a bar of 2.5 MB."""

from __future__ import annotations

import os
import zipfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DeflatedWheel(BuildHookInterface[Any]):
    """Writes the finished wheel again at zlib's level 9: the same files with the same names, dates and modes."""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version == "editable":
            return
        again = f"{artifact_path}.again"
        with zipfile.ZipFile(artifact_path) as old, zipfile.ZipFile(again, "w") as new:
            for entry in old.infolist():
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED, 9)
        os.replace(again, artifact_path)
