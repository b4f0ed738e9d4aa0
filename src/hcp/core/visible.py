"""What text from outside passes before it is printed: nothing invisible, and no secrets."""

from __future__ import annotations

import re


def visible(text: str) -> str:
    r"""The text on one line, with everything that is not printable written as an escape.

    Control characters could move a terminal's cursor or start a line that a CI runner executes; bidirectional and
    invisible ones show a text that is not there; a lone surrogate stands for a byte of a file name that is not UTF-8.

    >>> visible("p2p\n::error::x \x1b[2J")
    'p2p\\n::error::x \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(letter: str) -> str:
    code = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


HIDDEN = "***"
"""What is printed in place of a secret."""
_HINTS = ("token", "key", "passw", "secret", "credential")
_NAME = re.compile(r"[\w.-]+")
_SEPARATOR = re.compile(r"\s*[=:]\s*")
_VALUE_END = re.compile(r"""[\s,;&|<>(){}\[\]"'`]""")
_HOST_END = re.compile(r"""[\s/?#'"<>\\]""")
_PLAIN = re.compile(r"-?\d{1,6}|true|false|null|none", re.IGNORECASE)
_KEYS = ("api", "access", "private", "auth", "account", "license", "wandb", "hf", "ssh", "encryption", "encrypt")
"""What stands before `_key` in a lower-case name that holds a secret: `data.prompt_key` does not."""
_WORDS = ("pad", "eos", "bos", "unk", "mask", "sep", "cls", "image", "video", "audio", "special", "end", "per")
"""What stands before `_token` in a name that holds no secret, but a word of a tokenizer."""


def is_secret(name: str, value: str = "") -> bool:
    """Whether what has this name must not be printed. A number or a truth value is no token and no key.

    >>> is_secret("env.HF_TOKEN"), is_secret("--wandb-api-key"), is_secret("data.prompt_key"), is_secret("eos_token")
    (True, True, False, False)
    """
    lowered = name.lower().replace("-", "_")
    if "passw" in lowered or "secret" in lowered or "credential" in lowered:
        return True
    if _PLAIN.fullmatch(value):
        return False
    before, word = lowered[: -len("token")], lowered[-len("token") :]
    if word == "token":
        return not before.endswith("_") or not before[:-1].endswith(_WORDS)
    if lowered.endswith("apikey"):
        return True
    return lowered.endswith("_key") and (name.endswith("KEY") or lowered[: -len("_key")].endswith(_KEYS))


def without_secrets(text: str) -> str:
    """The text with the values of secret names, and the names and passwords in addresses, left out.

    Takes time in proportion to the text, whatever it holds: each part is looked at once.

    >>> without_secrets("HF_TOKEN=hf_abc --wandb-api-key 12ab https://me:pw@host/x tp=2")
    'HF_TOKEN=*** --wandb-api-key *** https://***@host/x tp=2'
    """
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        text = _without_values(text)
    return _without_users(text) if "://" in text and "@" in text else text


def _without_values(text: str) -> str:
    parts, done = [], 0
    for match in _NAME.finditer(text):
        if match.start() < done or not any(hint in match[0].lower() for hint in _HINTS):
            continue
        start, end = _value_span(text, match)
        if start < end and is_secret(match[0].lstrip("-"), text[start:end]):
            parts += [text[done:start], HIDDEN]
            done = end
    return "".join([*parts, text[done:]])


def _value_span(text: str, name: re.Match[str]) -> tuple[int, int]:
    """Where the value of a name stands: after `=` or `:`, or after a flag; an empty span where there is none."""
    at, quote = name.end(), text[name.start() - 1 : name.start()] if name.start() else ""
    quoted = quote in ("'", '"')
    if quoted and text[at : at + 1] == quote:  # a key in quotes
        at, quoted = at + 1, False
    separator = _SEPARATOR.match(text, at)
    if separator is None and not (name[0].startswith("-") and text[at : at + 1] == " "):
        return at, at
    start = separator.end() if separator is not None else at + 1
    opening = text[start : start + 1]
    if opening in ("'", '"'):
        start += 1
        end = text.find(opening, start)
    elif quoted:  # a whole word in quotes
        end = text.find(quote, start)
    elif separator is None and opening == "-":  # the next flag
        return at, at
    else:
        found = _VALUE_END.search(text, start)
        end = found.start() if found else -1
    return start, len(text) if end < 0 else end


def _without_users(text: str) -> str:
    parts, done, at = [], 0, text.find("://")
    while at >= 0:
        start = at + len("://")
        found = _HOST_END.search(text, start)
        end = found.start() if found else len(text)
        sign = text.rfind("@", start, end)
        if sign > start:
            parts += [text[done:start], HIDDEN]
            done = sign
        at = text.find("://", end)
    return "".join([*parts, text[done:]])
