"""Compares the releases that a card was written for with those that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from megatron_hcp.ground.visible import visible
from megatron_hcp.launch.this_machine import installed_versions
from megatron_hcp.skills.card import Card

_FACTS = {
    "megatron-core": "mcore",
    "transformer-engine": "te",
    "megatron-bridge": "bridge",
    "verl": "verl",
    "torch": "torch",
    "nvidia-resiliency-ext": "nvrx",
}
"""The fact that holds the installed version of each package in a stack."""


def stack_notes(card: Card, installed: Mapping[str, Any] | None = None) -> list[str]:
    """A line for each installed package whose version is outside the card's stack.

    `installed`: versions by fact name; this machine's unless given.
    """
    found = installed_versions() if installed is None else installed
    versions = {package: str(found[fact]) for package, fact in _FACTS.items() if fact in found}
    return [
        f"{visible(card.skill)} was written for {package} {visible(card.stack[package])}; {version} is installed"
        for package, version in versions.items()
        if package in card.stack and not _is_in(version, card.stack[package])
    ]


def is_range(text: str) -> bool:
    """Whether a text is a PEP 440 version range."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


def _is_in(version: str, wanted: str) -> bool:
    """Whether a version, including a release candidate, is in a PEP 440 range. An invalid range (which
    `hcp skills validate` reports) and an invalid version always match, because nothing can be said about them."""
    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True
