"""What every kind of input is made of: words that break readers, and ways to damage a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

MONSTERS = (
    *(
        "",
        " ",
        "'",
        '"',
        "\\",
        "$",
        "${",
        "$((",
        "$(",
        "`",
        "#",
        "-",
        "--",
        "=",
        ":",
        "~",
        "*",
        "&",
        "!",
        "%",
        "|",
        ">",
    ),
    *(
        "\x1b]52;c;aGk=\x07",
        "\x1b[2J",
        "\u202eabc",
        "\x85",
        "\x9b31m",
        "\x00",
        "\r",
        "\t",
        "\x0b",
        "\x0c",
        "\x1c",
        "\u2028",
    ),
    *(
        "\ufeff",
        "\u200b",
        "x\n::error file=a,line=1::pwn",
        "\n::add-mask::x",
        "##[error]x",
        "##vso[task.x]y",
        "a\nb",
        "\udc80",
    ),
    *(
        "-1",
        "0",
        "1e999",
        "0x10",
        "1_000",
        "²",
        "١٢",
        "nan",
        ".inf",
        "-.inf",
        ".nan",
        "None",
        "True",
        "null",
        "yes",
        "off",
    ),
    *(
        "9" * 400,
        "9" * 5000,
        "-" + "9" * 4301,
        "1e-5000",
        "0b1",
        "0o17",
        "1." + "0" * 400,
        "2" * 19,
        "18446744073709551616",
    ),
    *("1:" * 300 + "1", "1:60", "190:20:30", "2001-99-99", "2001-12-14t21:59:43.10-05:00", "12:30:45", "4-4:00:00"),
    *(
        "a2a+p2p",
        "[8,2]",
        "8,2",
        "{a: 1}",
        "[" * 50,
        "{" * 50,
        "(" * 200,
        "a" * 3000,
        "é" * 50,
        "日本",
        "👩‍👩‍👧",
        "\U000e0041",
    ),
    *(
        "../../../etc/passwd",
        "/etc/passwd",
        "/dev/null",
        "x/" * 200,
        "%s%n",
        "{{x}}",
        "{% raw %}",
        "${oc.env:HOME}",
        "${a.b}",
    ),
    *("${.}", "${oc.select:a,${b}}", "${" * 60, "*a", "&a b", "<<: *a", "!!python/object/apply:os.system [id]", "!x y"),
    *(
        "$(touch out-run)",
        "`touch out-run`",
        "; touch out-run",
        "||",
        "&&",
        "\\\n",
        "<<E",
        "<(x)",
        "$'\\e[2J'",
        "$'\\u202e'",
    ),
    *("hcp_decoy", "hcp_decoy.sub", "this.x", "os.path", ".x", "x.", "A" * 300, "te=2.14", "mcore=0.16.1", "arch=sm90"),
    *("{1..100000}", "{a,b}{c,d}{e,f}", "{" + "{a,b}," * 20 + "}", "*" * 60, "[a-", "+(a|b)", "@(", "?" * 40),
)
SIZES = ("1", "2", "4", "8", "16", "3", "6", "64", "1024", "4096", "131072", "131064", "8192")


class Dice(Random):
    """A source of chance; `wild` is how often a value is one that no launch has: the same within a case."""

    wild = 0.2


def monster(random: Random) -> str:
    return random.choice(MONSTERS)


def value(random: Random) -> str:
    """Mostly a size, as launches have them."""
    how = random.random()
    if how < getattr(random, "wild", 0.2):
        return monster(random) if how > 0.02 else monster(random) + monster(random)
    if random.random() < 0.8:
        return random.choice(SIZES)
    return random.choice(("a2a+p2p", "p2p", "a2a", "all_gather", "true", "false", "auto", "rope", "sbhd", "fused"))


def damaged(random: Random, data: bytes, others: Sequence[bytes], most: int = 60_000) -> bytes:
    """The text with some random damage."""
    if len(data) > most:
        at = random.randrange(len(data) - most)
        data = data[at : at + most]
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(_ACCIDENTS)(random, data, others)
    return data[: 2 * most]


_SIGNS = b"\"'$(){}[]:#\\\n =-&*<|;0123456789abcxyz"


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] = random.choice(_SIGNS if random.random() < 0.9 else range(256))
    return bytes(changed)


def _lines(change: Callable[[Random, list[bytes]], None]) -> Callable[[Random, bytes, Sequence[bytes]], bytes]:
    def with_lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        lines = data.split(b"\n")
        change(random, lines)
        return b"\n".join(lines)

    return with_lines


def _move(random: Random, lines: list[bytes]) -> None:
    line = lines.pop(random.randrange(len(lines)))
    lines.insert(random.randrange(len(lines) + 1), line)


def _twice(random: Random, lines: list[bytes]) -> None:
    at = random.randrange(len(lines))
    lines[at:at] = lines[at : at + random.randint(1, 5)] * random.choice((1, 1, 2, 40))


def _drop(random: Random, lines: list[bytes]) -> None:
    at = random.randrange(len(lines))
    del lines[at : at + random.randint(1, 4)]


def _truncate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] if random.random() < 0.8 else data[at:]


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others) if others else b""
    here, there = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
    return data[:here] + other[there : there + random.choice((40, 400, 4000))] + data[here:]


def _word(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Replaces a word with a monster; words are what is between blanks, = and :."""
    marks = [at for at, byte in enumerate(data[:20_000]) if byte in b" =:\n"]
    if not marks:
        return data + _bytes(monster(random))
    at = random.choice(marks)
    end = next((place for place in range(at + 1, len(data)) if data[place] in b" =:\n"), len(data))
    return data[: at + 1] + _bytes(monster(random)) + data[end:]


_RAW = (b"\xff", b"\xe9", b"\xc2\x85", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b[2J", b"\x00")


def _insert(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + (_bytes(monster(random)) if random.random() < 0.8 else random.choice(_RAW)) + data[at:]


def _line_ends(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b" \\\n", b"\x0b")))


def _marked(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xef\xbb\xbf\xef\xbb\xbf")) + data


_ACCIDENTS = (
    *(_flip, _flip, _lines(_move), _lines(_twice), _lines(_drop), _word, _word, _word, _word, _word, _word),
    *(_insert, _truncate, _splice, _line_ends, _marked),
)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def encoded(random: Random, text: str) -> bytes:
    """The text in a file: sometimes with other line ends, a mark, or in an encoding that nobody expects."""
    how = random.random()
    if how < 0.04:
        text = text.replace("\n", "\r\n")
    elif how < 0.06:
        text = "\ufeff" + text
    elif how < 0.065:
        return text.encode("utf-16", "surrogatepass")
    elif how < 0.07:
        return text.encode("latin-1", "replace")
    return text.encode("utf-8", "surrogateescape" if random.random() < 0.2 else "replace")
