"""What the programs share: where the repository is, how their words are parsed, types of options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A program's parser; its docstring is the help, as it is written."""
    file = Path(sys.argv[0]).resolve()
    name = file.relative_to(ROOT / "lab").with_suffix("") if file.is_relative_to(ROOT / "lab") else file.name
    return argparse.ArgumentParser(
        f"python lab {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def at_least_one(text: str) -> int:
    """The whole number that is written there; argparse's error if it is none, or below 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a whole number, 1 or more")
    return number
