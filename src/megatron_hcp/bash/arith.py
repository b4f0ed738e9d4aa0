"""Shell arithmetic (`$((…))`, `((…))`, `let`) on 64-bit whole numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?:#[0-9a-zA-Z]+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<=|>>=|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),]))"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=")
_MAX_DEPTH = 40


class Undecidable(Exception):
    """The text cannot be evaluated; the message says why."""


class Arithmetic:
    """Evaluates one expression. `read` returns a variable's text (or raises `Undecidable`), `write` sets one."""

    def __init__(self, read: Callable[[str], str], write: Callable[[str, str], None]) -> None:
        self.read, self.write = read, write
        self.tokens: list[tuple[str, str]] = []
        self.place = 0
        self.depth = 0

    def value(self, text: str) -> int:
        """The value of the expression; an empty one is 0, as in bash.

        >>> Arithmetic(lambda name: "8", lambda name, text: None).value("N * 4 / 3 + (1 << 2)")
        14
        """
        saved = self.tokens, self.place
        self.tokens, self.place = _tokens(text), 0
        result = 0
        if self.tokens:
            result = self._comma()
            if self.place != len(self.tokens):
                raise Undecidable(f"the arithmetic {text.strip()[:40]!r} is not understood")
        self.tokens, self.place = saved
        return result

    def _peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def _accept(self, *texts: str) -> str:
        found = self._peek()
        if found in texts and found and self.tokens[self.place][0] == "op":
            self.place += 1
            return found
        return ""

    def _comma(self) -> int:
        result = self._assignment()
        while self._accept(","):
            result = self._assignment()
        return result

    def _assignment(self) -> int:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Undecidable("the arithmetic nests too deeply")
        try:
            start = self.place
            if start < len(self.tokens) and self.tokens[start][0] == "name":
                self.place += 1
                operator = self._accept(*_ASSIGN)
                if operator:
                    name, value = self.tokens[start][1], self._assignment()
                    if operator != "=":
                        value = _apply(operator[0], self._variable(name), value)
                    self.write(name, str(value))
                    return value
                self.place = start
            return self._ternary()
        finally:
            self.depth -= 1

    def _ternary(self) -> int:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        first = self._assignment()
        if not self._accept(":"):
            raise Undecidable("the arithmetic has ? without :")
        second = self._assignment()
        return first if condition else second

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        while operator := self._accept(*_LEVELS[level]):
            left = _apply(operator, left, self._binary(level + 1))
        return left

    def _power(self) -> int:
        base = self._unary()
        return _apply("**", base, self._power_again()) if self._accept("**") else base

    def _power_again(self) -> int:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Undecidable("the arithmetic nests too deeply")
        try:
            return self._power()
        finally:
            self.depth -= 1

    def _unary(self) -> int:
        sign = self._accept("++", "--", "+", "-", "!", "~")
        if sign in ("++", "--") and self.tokens[self.place : self.place + 1] and self._is_name():
            name = self.tokens[self.place][1]
            self.place += 1
            return self._step(name, 1 if sign == "++" else -1)
        if sign:
            self.depth += 1
            if self.depth > _MAX_DEPTH:
                raise Undecidable("the arithmetic nests too deeply")
            value = self._unary()
            self.depth -= 1
            return {"-": -value, "!": int(not value), "~": ~value}.get(sign, value)
        return self._primary()

    def _is_name(self) -> bool:
        return self.tokens[self.place][0] == "name"

    def _primary(self) -> int:
        if self._accept("("):
            value = self._comma()
            if not self._accept(")"):
                raise Undecidable("the arithmetic lacks a closing parenthesis")
            return value
        if self.place >= len(self.tokens):
            raise Undecidable("the arithmetic ends too early")
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return _number(text)
        if kind != "name":
            raise Undecidable(f"the arithmetic has a misplaced {text}")
        value = self._variable(text)
        step = self._accept("++", "--")
        if step:
            self._step(text, 1 if step == "++" else -1)
        return value

    def _step(self, name: str, by: int) -> int:
        value = self._variable(name) + by
        self.write(name, str(value))
        return value

    def _variable(self, name: str) -> int:
        text = self.read(name).strip()
        if not text:
            return 0
        if re.fullmatch(r"[-+]?\w+", text) and not text.lstrip("-+")[:1].isalpha():
            return -_number(text[1:]) if text[0] == "-" else _number(text.lstrip("+"))
        self.depth += 1
        if self.depth > 8:
            raise Undecidable("the arithmetic refers to itself")
        value = self.value(text)  # a variable may hold an expression
        self.depth -= 1
        return value


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise Undecidable(f"the arithmetic {text.strip()[:40]!r} is not understood")
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return tokens


def _number(text: str) -> int:
    if len(text) > 40:
        raise Undecidable("the arithmetic has a number beyond 64 bits")
    try:
        if "#" in text:
            base, digits = text.split("#", 1)
            return int(digits, int(base))
        if text[:2].lower() == "0x":
            return int(text, 16)
        return int(text, 8) if text[0] == "0" else int(text)
    except ValueError:
        raise Undecidable(f"{text!r} is no whole number") from None


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise Undecidable("the arithmetic divides by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    if operator == "**":
        if not 0 <= right < 64:
            raise Undecidable("the arithmetic has a power beyond 64 bits")
        return _wrap(left**right)
    if operator in ("<<", ">>") and not 0 <= right < 64:
        raise Undecidable("the arithmetic shifts beyond 64 bits")
    return _wrap(int(_OPERATIONS[operator](left, right)))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}


def _wrap(value: int) -> int:
    """A whole number as a shell stores it: 64 bits, signed."""
    return (value + 2**63) % 2**64 - 2**63
