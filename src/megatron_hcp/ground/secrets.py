"""Passwords, tokens and keys in untrusted text: recognized by their names and by their shapes, and never shown."""

from __future__ import annotations

import re
from functools import lru_cache

from megatron_hcp.ground.secret_shapes import OF_NAMES, areas_of, secret_spans

HIDDEN = "***"
_NAME = r"[A-Za-z_][\w.-]*"
_RULE_ID = r"KEY\d{3}"
"""Rules about keys have ids such as KEY002."""
_PARTS = r"[A-Za-z0-9]+"
_ANYWHERE = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL")
_AT_THE_END = ("TOKEN", "KEY")
_WITH_A_WORD = ("_PASS", "_PWD", "_PW", "_SIGNATURE", "ACCESS_KEY_ID", "_WEBHOOK", "_WEBHOOK_URL", "_BEARER", "_PAT")
"""Names that end so are credentials: `DB_PASS`, but not `PWD`, the working folder."""
_EXCEPTIONS = ("Error", "Exception", "Warning", "NotFound")
"""How names of exceptions end: `NoCredentialsError: Unable to locate credentials` has no credential."""
_HARMLESS_NAMES = (
    "answer assistant audio baseline batch bos cache class cls column cp data dp eight end eod eos expected extra fim "
    "fn first full generated id image images index input json label mask max media messages metric min model mtp "
    "multi new next num of one output pad per prompt query reason response reward role row sample sep sequence skip "
    "sort special split start step stop task teacher text thinking tools total unk video vision word"
)
_HARMLESS = frozenset(_HARMLESS_NAMES.upper().split())
"""Words before `key` or `token` in training settings: `data.prompt_key`, `--eos-token`."""
_OF_DATA_NAMES = (
    "answer bos eod eos foreign image input label output pad partition primary prompt query response reward sample "
    "sort text unk video"
)
_OF_DATA = frozenset(_OF_DATA_NAMES.upper().split())
"""Those also where scripts and programs write the name in capitals: `PROMPT_KEY=question`, `DEFAULT_IMAGE_TOKEN`."""
_USER_ALONE = r"[a-z][a-z._-]{0,15}@(?![^/\s]*@)"
"""A user's name without a password, which is no credential: tokens that stand there have digits or capitals."""
_URL = rf"://(?!{_USER_ALONE})[^/\s@]*(?:@[^/\s@]*)*@"
_HUGGING_FACE = r"\bhf_[A-Za-z0-9]{16,}"
"""Without underscores: `hf_to_megatron.py` is a file; and often without digits."""
_NAMED = r"\bname[\"']?[:=]\s?[\"']?([\w.-]{1,80})[\"']?,?\s{1,40}[\"']?value[\"']?[:=]\s?[\"']?([^\s\"',}]+)"
"""As Kubernetes states an environment variable, with the value beside the name or on the line below."""
_QUOTES = "\"'`"
_UNQUOTED_END = " \t\r\n;&|<>)}]"
_NEXT_ENTRY = r",[ \t]*[\"']?[A-Za-z_]\w{0,80}[\"']?[ \t]*[=:]|,[ \t\n]|,$"


@lru_cache(maxsize=4000)
def is_secret_name(name: str) -> bool:
    """Whether this is a credential's name: an environment variable, a flag, or the last part of a dotted key.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "--wandb-key", "a.env_vars.API_KEY", "data.prompt_key")]
    [True, True, True, False]
    """
    as_written = name.rpartition(".")[2]
    last = as_written.upper()
    if last in _AT_THE_END or re.fullmatch(_RULE_ID, last):
        return False  # a common word; as a flag, `--token`, it is a name
    if any(word in last for word in _ANYWHERE) or (as_written.isupper() and last.endswith(_WITH_A_WORD)):
        return last != "OLD_PWD" and not as_written.endswith(_EXCEPTIONS)
    if not last.rstrip("0123456789_-").endswith(_AT_THE_END):
        return False
    parts = re.findall(_PARTS, last.rstrip("0123456789_-"))
    if "_" in as_written and as_written.isupper():
        return parts[-1] not in _AT_THE_END or parts[-2] not in _OF_DATA  # written as an environment variable
    return len(parts) == 1 or parts[-1] not in _AT_THE_END or parts[-2] not in _HARMLESS


def without_secrets(text: str) -> str:
    """The text with `***` for the values of what `is_secret_name` names, for what has a secret's shape, and for the
    user in a URL that has a password or may be a token.

    Recognizes `NAME=value`, `NAME: value`, `"NAME": "value"` and `--name value`. A value that is a variable stays.

    >>> without_secrets("--export=ALL,HF_TOKEN=hf_x --wandb-key x https://me:pw@host/")
    '--export=ALL,HF_TOKEN=*** --wandb-key *** https://***@host/'
    """
    if "hf_" in text:
        text = re.sub(_HUGGING_FACE, HIDDEN, text)
    if "@" in text and "://" in text:
        text = re.sub(_URL, f"://{HIDDEN}@", text)
    areas = areas_of(text)
    spans = [*secret_spans(text, areas)]
    if "value" in text:
        spans += (found.span(2) for found in re.finditer(_NAMED, text) if is_secret_name(f"--{found[1]}"))
    if spans:
        text = _without(text, sorted(spans))
    if OF_NAMES.isdisjoint(areas):
        return text
    parts: list[str] = []
    shown = 0
    for match in re.finditer(_NAME, text):
        is_flag = text[max(0, match.start() - 1) : match.start()] == "-"
        if match.start() < shown or not is_secret_name("--" + match[0] if is_flag else match[0]):
            continue
        start, end = _value_of(text, match.start(), match.end())
        if start < end and text[start] != "$" and text[start:end] != HIDDEN:
            parts += [text[shown:start], HIDDEN]
            shown = end
    return "".join([*parts, text[shown:]]) if parts else text


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with `***` for what lies in the spans, which are sorted and may overlap; a variable stays."""
    parts: list[str] = []
    shown = 0
    for start, end in spans:
        if end <= shown or text[start] == "$" or text[start:end] == HIDDEN:
            continue
        if start >= shown:
            parts += [text[shown:start], HIDDEN]
        shown = end
    return "".join([*parts, text[shown:]]) if parts else text


def _value_of(text: str, name: int, place: int) -> tuple[int, int]:
    """Where the value of the name at [name, place) is; an empty range if none follows."""
    is_flag = text[max(0, name - 1) : name] == "-"
    place = _past(text, place, _QUOTES + "]\\", 4)
    sign = _past(text, place, " \t", 8)
    if text[sign : sign + 2] in ("+=", ":="):
        sign += 1
    if text[sign : sign + 1] == ":" or (text[sign : sign + 1] == "=" and text[sign + 1 : sign + 2] != "="):
        is_spaced = sign > place or text[sign] == ":"
        start = _past(text, sign + 1, " \t", 8) if is_spaced else sign + 1
    elif is_flag and sign > place and text[sign : sign + 1] != "-":
        start = sign
    else:
        return place, place
    return _extent(text, start)


def _extent(text: str, start: int) -> tuple[int, int]:
    """A value without its quotes."""
    first = start
    start = _past(text, start, "\\", 1) if text[start + 1 : start + 2] in ("'", '"') else start
    quote = text[start : start + 1]
    if quote in ("'", '"'):
        closing = ("\\" if start > first else "") + quote
        end = start + 1
        while (end := text.find(closing, end)) > 0 and not start > first and text[end - 1] == "\\":
            end += 1
        return start + 1, len(text) if end < 0 else end
    end = start
    while end < len(text) and text[end] not in _UNQUOTED_END:
        if text[end] == "," and re.compile(_NEXT_ENTRY).match(text, end):
            break
        end += 1
    while end > start and text[end - 1] in _QUOTES + "\\":
        end -= 1
    return start, end


def _past(text: str, place: int, chars: str, most: int) -> int:
    end = min(len(text), place + most)
    while place < end and text[place] in chars:
        place += 1
    return place
