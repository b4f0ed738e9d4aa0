"""Types of command-line options that several benchmarks share."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """The whole number that is written there; argparse's error if it is none, or below 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: wanted a whole number, 1 or more")
    return number
