"""Words of a job as a shell takes them."""

from __future__ import annotations

import shlex

from megatron_hcp.launch.fact import RunText


def quoted(value: object) -> str:
    """A shell word. Commas are quoted too: bash does not need that, but shellcheck flags them in an array."""
    if isinstance(value, RunText):
        pairs = zip(value.parts, value.names, strict=True)
        return "".join(f'"${{{part}}}"' if name else quoted(part) for part, name in pairs if part)
    text = str(value)
    if not all(map(_is_shown, text)):  # printing the script must not send control characters to the terminal
        return f"$'{''.join(map(_escaped, text))}'"
    word = shlex.quote(text)
    return f"'{word}'" if "," in text and word == text else word


def _is_shown(letter: str) -> bool:
    return letter.isprintable() or letter in "\n\t"


def _escaped(letter: str) -> str:
    if _is_shown(letter):
        return f"\\{letter}" if letter in "\\'" else letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
