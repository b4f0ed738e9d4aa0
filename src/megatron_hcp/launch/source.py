"""A target's bytes as text, or a one-line error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from megatron_hcp.ground.asked import note_content
from megatron_hcp.ground.errors import HcpError, UnrecognisedError
from megatron_hcp.ground.intake import TooLargeError, open_input, read_at_most, read_whole

MAX_BYTES = 5_000_000
_LAUNCH = "a launch file"


def standard_input() -> bytes:
    """The content of standard input.

    Raises:
        HcpError: it is closed, or larger than `MAX_BYTES`.
    """
    if sys.stdin is None:
        raise HcpError("standard input is closed", wanted="a launch on it", do="name a file, or redirect one with <")
    note_content("-", None)
    try:
        return read_at_most(sys.stdin.buffer, MAX_BYTES)
    except TooLargeError as error:
        raise _too_large("<stdin>", error.found) from None


def text_of_target(target: str, stdin: Callable[[], bytes], wanted: str = _LAUNCH) -> tuple[str, str]:
    """(name, text) of a file, or of standard input for "-"; `wanted` is what an error says the file should be.

    Raises:
        HcpError: missing, a directory, unreadable, larger than `MAX_BYTES`, binary, not UTF-8, or empty.
    """
    if target == "-":
        return "<stdin>", decoded(stdin(), "<stdin>", wanted)
    try:
        data = read_whole(target, MAX_BYTES)
    except IsADirectoryError:
        raise HcpError(f"{target} is a directory", wanted=wanted, do="name the file in it") from None
    except FileNotFoundError:
        do = "put overrides after --" if "=" in target or target.startswith("-") else "check the path"
        raise HcpError(f"{target} does not exist", wanted=wanted, do=do) from None
    except TooLargeError as error:
        raise _too_large(target, error.found, wanted) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HcpError(f"{target!r} cannot be read ({reason})", wanted=wanted, do="check the path") from None
    return target, decoded(data, target, wanted)


def byte_order_mark(target: str) -> str:
    """The byte-order mark of a file, which `decoded` drops; "" if there is none, or no file to read again."""
    if not os.path.isfile(target):
        return ""
    try:
        with open_input(target) as file:
            return "\ufeff" if file.read(3) == b"\xef\xbb\xbf" else ""
    except (OSError, ValueError):
        return ""


def decoded(data: bytes, name: str, wanted: str = _LAUNCH) -> str:
    """The bytes as text; a byte-order mark is dropped. `wanted` is what an error says the file should be."""
    what, do = _words(wanted)
    if len(data) > MAX_BYTES:
        raise _too_large(name, len(data), wanted)
    if b"\0" in data:
        raise HcpError(f"{name} is binary", wanted=f"{what} as text", do=do)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HcpError(
            f"{name} is not UTF-8 (byte 0x{data[error.start]:02x} at offset {error.start})",
            wanted=f"{what} as text",
            do="convert it with iconv",
        ) from None
    if not text.strip():
        raise UnrecognisedError(f"{name} is empty", wanted=what, do=do)
    return text


def _words(wanted: str) -> tuple[str, str]:
    """What is wanted, and what to do."""
    return ("a launch", "name the launch file") if wanted == _LAUNCH else (wanted, "name the file that holds it")


def _too_large(name: str, size: int, wanted: str = _LAUNCH) -> HcpError:
    what, do = _words(wanted)
    is_data = name.lower().endswith((".yaml", ".yml", ".json"))  # one that a person wrote is never as large
    return (UnrecognisedError if is_data else HcpError)(
        f"{name} is too large ({size:,} bytes or more)",
        wanted=f"{what} of at most {MAX_BYTES:,} bytes",
        do=f"{do}, not a log or a data file",
    )
