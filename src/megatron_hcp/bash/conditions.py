"""Conditions: `[ … ]`, `[[ … ]]`, `(( … ))`. The result is True, False, or None if it cannot be determined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from megatron_hcp.bash.arith import Undecidable
from megatron_hcp.bash.expand import MAX_DEPTH, arithmetic, fragments, value
from megatron_hcp.bash.paths import seen_from_folder
from megatron_hcp.bash.pattern import STEP_COST, Node, Pattern
from megatron_hcp.bash.pattern_text import glob, literal, regex
from megatron_hcp.bash.redirect import is_made
from megatron_hcp.bash.split import Splice, value_of
from megatron_hcp.bash.syntax import ArithmeticCommand, Condition, Parameter, Piece, Quoted, ShellWord, Text
from megatron_hcp.bash.value import Hole, Lit, Value, text_of
from megatron_hcp.bash.walker import Status, Walker

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_READABLE = ("-e", "-f", "-r", "-s")
_COMPARISONS = {*_NUMBERS, "=", "==", "!=", "=~", "<", ">"}


def holds(w: Walker, node: Condition) -> Status:
    """Whether `[ … ]` or `[[ … ]]` is true."""
    return _Test(w, node.tokens).answer()


def arithmetic_holds(w: Walker, node: ArithmeticCommand) -> Status:
    """Whether `((…))` is true, that is, not zero."""
    try:
        return arithmetic(w, node.pieces) != 0
    except Undecidable:
        return None


class _Test:
    """Evaluates the tokens: `||` (`-o`) binds weaker than `&&` (`-a`), and that weaker than `!` and the comparisons."""

    def __init__(self, w: Walker, tokens: Sequence[str | ShellWord]) -> None:
        self.w, self.tokens = w, tokens
        for token in tokens:
            if isinstance(token, ShellWord):
                _note_unset(w, token.pieces)
        self.place = 0
        self.depth = 0

    def answer(self) -> bool | None:
        answer = self._or()
        return answer if self.place == len(self.tokens) else None

    def _accept(self, *texts: str) -> bool:
        if self.place < len(self.tokens) and self.tokens[self.place] in texts:
            self.place += 1
            return True
        return False

    def _or(self) -> bool | None:
        answer = self._and()
        while self._accept("||", "-o"):
            other = self._and()
            answer = True if answer or other else None if answer is None or other is None else False
        return answer

    def _and(self) -> bool | None:
        answer = self._not()
        while self._accept("&&", "-a"):
            other = self._not()
            answer = False if answer is False or other is False else True if answer and other else None
        return answer

    def _not(self) -> bool | None:
        negated = False
        while self._accept("!"):
            negated = not negated
        answer = self._primary()
        return None if answer is None else answer != negated

    def _primary(self) -> bool | None:
        if self._accept("("):
            self.depth += 1
            answer = self._or() if self.depth < MAX_DEPTH else None
            self.depth -= 1
            return answer if self._accept(")") else None
        if self.place >= len(self.tokens):
            return None
        first, *following = self.tokens[self.place : self.place + 3]
        self.place += 1
        if isinstance(first, str):
            operand = following[0] if following else None
            self.place += 1
            return _unary(self.w, first, operand) if isinstance(operand, ShellWord) and first[:1] == "-" else None
        if len(following) == 2 and following[0] in _COMPARISONS and isinstance(following[1], ShellWord):
            self.place += 2
            return _compare(self.w, first, str(following[0]), following[1])
        return _is_filled(self.w, value(self.w, first))


def _note_unset(w: Walker, pieces: Sequence[Piece]) -> None:
    """Keeps which variables a condition reads although the script hasn't set them: `[ -z "$MASTER_ADDR" ]`."""
    for piece in pieces:
        if isinstance(piece, Quoted):
            _note_unset(w, piece.pieces)
        elif isinstance(piece, Parameter) and piece.name not in w.vars:
            w.tested.add(piece.name)


def _unary(w: Walker, sign: str, operand: ShellWord) -> bool | None:
    if sign in ("-z", "-n"):
        frags = fragments(w, operand.pieces)
        splices = [frag.what for frag in frags if isinstance(frag.what, Splice)]
        are_empty = bool(splices) and not any(splice.items for splice in splices)
        filled = False if are_empty else _is_filled(w, value_of(frags))
        return None if filled is None else filled == (sign == "-n")
    if sign == "-v":
        name = text_of(value(w, operand))
        return w.lookup(name, w.span(operand))[1] if name and name.isidentifier() else None
    if sign in ("-d", "-e", "-w", "-x") and w.made and is_made(w, value(w, operand)):
        return True
    if sign in _READABLE:
        # A file next to the script also exists where it runs; what else exists there is unknown.
        script = w.find_script(seen_from_folder(w, value(w, operand)), ())
        return None if isinstance(script, str) else True
    return None


def _is_filled(w: Walker, found: Value) -> bool | None:
    certain = [part.text if isinstance(part, Lit) else isinstance(part, Hole) and part.variable for part in found]
    if any(text and (w.is_copied or isinstance(part, Lit)) for text, part in zip(certain, found, strict=True)):
        return True
    return False if text_of(found) is not None else None


def _compare(w: Walker, left: ShellWord, sign: str, right: ShellWord) -> bool | None:
    first = text_of(value(w, left))
    if sign in ("=", "==", "!=", "=~"):
        return _compared(w, first, right, sign)
    second = text_of(value(w, right))
    if first is None or second is None:
        return None
    if sign in ("<", ">"):
        return first < second if sign == "<" else first > second
    try:
        return _NUMBERS[sign](w.arithmetic(first), w.arithmetic(second))
    except Undecidable:
        return None


def _compared(w: Walker, left: str | None, right: ShellWord, sign: str) -> bool | None:
    pattern = pattern_of(w, right, is_regex=sign == "=~")
    if left is None or pattern is None:
        return None
    found = left == pattern if isinstance(pattern, str) else tried(w, pattern, left, is_regex=sign == "=~")
    return None if found is None else found != (sign == "!=")


def tried(w: Walker, pattern: Pattern, text: str, is_regex: bool = False) -> bool | None:
    """Whether a pattern matches a text; None if that takes too long to determine."""
    try:
        return pattern.is_in(text) if is_regex else pattern.matches(text)
    except Undecidable:
        return None
    finally:
        w.pay(pattern.cost, STEP_COST)


def pattern_of(w: Walker, word: ShellWord, is_regex: bool = False) -> Pattern | str | None:
    """The right side of `==`, `=~` or a case: a text if it has no unquoted `*?[`, otherwise a pattern."""
    raw = w.text(word)
    if not is_regex and not any(char in raw for char in "*?["):
        return text_of(value(w, word))
    try:
        return Pattern(_regex_nodes(raw) if is_regex else _glob_nodes(w, word))
    except Undecidable:
        return None


def _regex_nodes(raw: str) -> list[Node]:
    if any(char in raw.removesuffix("$") for char in "$`\"'\\"):
        raise Undecidable("a regular expression has parts that are expanded or quoted")
    return regex(raw)


def _glob_nodes(w: Walker, word: ShellWord) -> list[Node]:
    nodes: list[Node] = []
    for piece in word.pieces:
        if isinstance(piece, Quoted | Parameter):
            text = text_of(value_of(fragments(w, [piece])))
            if text is None:
                raise Undecidable("a part of a pattern is not known")
            nodes += literal(text)
        elif isinstance(piece, Text) and not any(char in w.text(piece) for char in "$`\"'("):
            nodes += glob(w.text(piece))
        else:
            raise Undecidable("a part of a pattern is not understood")
    return nodes
