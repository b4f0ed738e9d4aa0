"""Prints the bill of materials of a wheel, CycloneDX 1.6 as JSON: `python lab release/sbom WHEEL >FILE.cdx.json`.

It names what the base and `[mcp]` install, by constraints.hashed.txt. The same wheel gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from program import parser_of

from support.requirements import BASE, HASHED, PROJECT, pinned


def bill_of(wheel: Path, hashed: str) -> dict[str, Any]:
    """The bill of a wheel whose requirements are pinned by a text with hashes."""
    name, version, *_ = parse_wheel_filename(wheel.name)
    digest = {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    whole = {**_component(str(name), str(version)), "hashes": [digest], "licenses": [_license()]}
    parts = [_part(pin, hashes) for pin, hashes in pinned(hashed)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": whole},
        "components": parts,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    reference = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


def _part(pin: Requirement, hashes: tuple[str, ...]) -> dict[str, Any]:
    """A package; required by the base, or optional. Its wheels differ by platform, so they are properties."""
    name = canonicalize_name(pin.name)
    part = _component(name, str(pin.specifier).removeprefix("=="))
    is_base = name in {canonicalize_name(each.name) for each in BASE} | {"markupsafe"}
    properties = [{"name": "wheel", "value": value} for value in hashes]
    if pin.marker is not None:
        properties.append({"name": "marker", "value": str(pin.marker)})
    return {**part, "scope": "required" if is_base else "optional", "properties": properties}


def _license() -> dict[str, Any]:
    return {"license": {"id": PROJECT["project"]["license"]}}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("wheel", type=Path)
    print(json.dumps(bill_of(parser.parse_args().wheel, HASHED.read_text("utf-8")), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
