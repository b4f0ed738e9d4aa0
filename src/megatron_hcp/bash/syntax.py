"""The syntax tree of a bash script: the parts that are followed, independent of the parser.

A node covers [start, end), in bytes of its text. The classes are plain because every check of a script loads them:
defining this many dataclasses or NamedTuples takes longer than following a short script.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

from megatron_hcp.bash.value import ScriptText

Quoting = Literal["word", "string", "heredoc", "raw", "ansi"]
"""Which backslashes of a text quote: those outside quotes, in `"…"`, in a here-document, none, those in `$'…'`."""


class SyntaxNode:
    """A part of the text."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class _OfPieces(SyntaxNode):
    __slots__ = ("pieces",)

    def __init__(self, start: int, end: int, pieces: Sequence[Piece]) -> None:
        self.start, self.end, self.pieces = start, end, pieces


class Statement(SyntaxNode):
    """What the script does in one place."""

    __slots__ = ()


class _OfStatements(Statement):
    __slots__ = ("statements",)

    def __init__(self, start: int, end: int, statements: Sequence[Statement]) -> None:
        self.start, self.end, self.statements = start, end, statements


class ShellWord(_OfPieces):
    """A word as it is written, before its expansion."""

    __slots__ = ()


class Text(SyntaxNode):
    """Characters that stand for themselves."""

    __slots__ = ("quoting",)

    def __init__(self, start: int, end: int, quoting: Quoting) -> None:
        self.start, self.end, self.quoting = start, end, quoting


class Quoted(_OfPieces):
    """`"…"`, `'…'`: a word even if it is empty."""

    __slots__ = ()


class Parameter(SyntaxNode):
    """`$name`, or `${…}` with a prefix (`#`, `!`), a subscript, an operator and its operand, if it has them."""

    __slots__ = ("name", "operand", "operator", "prefix", "subscript")

    def __init__(self, start: int, end: int, name: str) -> None:
        self.start, self.end, self.name = start, end, name
        self.prefix = self.operator = ""
        self.subscript: str | None = None
        self.operand: Sequence[Piece] = ()


class ArithmeticExpansion(_OfPieces):
    """`$((…))`."""

    __slots__ = ()


class CommandSubstitution(SyntaxNode):
    """`$(…)`."""

    __slots__ = ("statements",)

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.statements: Sequence[Statement] = ()


class ProcessSubstitution(SyntaxNode):
    """`<(…)`; nothing in it is followed."""

    __slots__ = ()


class NotUnderstood(_OfStatements):
    """A piece, a word or a statement that the parser does not understand, with the statements that it finds in it."""

    __slots__ = ()


class ArrayLiteral(SyntaxNode):
    """`(…)` as the value of an assignment."""

    __slots__ = ("words",)

    def __init__(self, start: int, end: int, words: Sequence[ShellWord | NotUnderstood]) -> None:
        self.start, self.end, self.words = start, end, words


class Assignment(Statement):
    """`name=value`, `name[index]=value`, `name+=value` (which appends); in a declaration also `name` alone."""

    __slots__ = ("appends", "index", "name", "value")

    def __init__(self, start: int, end: int, name: str, value: AssignedValue | None) -> None:
        self.start, self.end, self.name, self.value = start, end, name, value
        self.index: ShellWord | None = None
        self.appends = False


class Command(Statement):
    """`A=1 name words <<< stdin`. The name is the first of the words; `name` is empty unless it is plain text."""

    __slots__ = ("assignments", "name", "stdin", "words")

    def __init__(self, start: int, end: int, name: str) -> None:
        self.start, self.end, self.name = start, end, name
        self.assignments: list[Assignment] = []
        self.words: list[ShellWord | NotUnderstood] = []
        self.stdin: ShellWord | None = None


class Declaration(Statement):
    """`export`, `local`, `readonly`, `declare`, `typeset` (the keyword) with the letters of their options."""

    __slots__ = ("flags", "items", "keyword")

    def __init__(self, start: int, end: int, keyword: str, flags: str) -> None:
        self.start, self.end, self.keyword, self.flags = start, end, keyword, flags
        self.items: list[Assignment | ShellWord] = []


class Condition(Statement):
    """`[ … ]`, `[[ … ]]`: operators (texts) and operands in written order."""

    __slots__ = ("tokens",)

    def __init__(self, start: int, end: int, tokens: Sequence[str | ShellWord]) -> None:
        self.start, self.end, self.tokens = start, end, tokens


class ArithmeticCommand(Statement):
    """`((…))`."""

    __slots__ = ("pieces",)

    def __init__(self, start: int, end: int, pieces: Sequence[Piece]) -> None:
        self.start, self.end, self.pieces = start, end, pieces


class BraceGroup(_OfStatements):
    """`{ …; }`, `do …; done`."""

    __slots__ = ()


class Subshell(_OfStatements):
    """`( … )`."""

    __slots__ = ()


class Negation(_OfStatements):
    """`! …`."""

    __slots__ = ()


class Pipeline(_OfStatements):
    """`… | …`, stage by stage."""

    __slots__ = ()


class AndOr(Statement):
    """`first && … || …`: each sign with the statement on its right."""

    __slots__ = ("first", "rest")

    def __init__(self, start: int, end: int, first: Statement, rest: Sequence[tuple[str, Statement]]) -> None:
        self.start, self.end, self.first, self.rest = start, end, first, rest


class Redirected(Statement):
    """A statement with redirections: its input if the script contains it, and its output files, or those it appends to.

    `following` are statements on the line of `<<EOF`, which start once the here-document is complete.
    """

    __slots__ = ("appends", "following", "outputs", "statement", "stdin")

    def __init__(self, start: int, end: int, statement: Statement | None) -> None:
        self.start, self.end, self.statement = start, end, statement
        self.stdin: ShellWord | None = None
        self.outputs: list[ShellWord] = []
        self.appends = False
        self.following: list[Statement] = []


class If(Statement):
    """(conditions, body) of `if`, each `elif` and `else`, which has no conditions."""

    __slots__ = ("arms",)

    def __init__(self, start: int, end: int, arms: Sequence[tuple[Sequence[Statement], Sequence[Statement]]]) -> None:
        self.start, self.end, self.arms = start, end, arms


class Case(Statement):
    """`case subject in`, with (patterns, body) of each arm."""

    __slots__ = ("arms", "subject")

    def __init__(self, start: int, end: int, subject: ShellWord) -> None:
        self.start, self.end, self.subject = start, end, subject
        self.arms: list[tuple[Sequence[ShellWord], Sequence[Statement]]] = []


class ForLoop(Statement):
    """`for name in words`; `words` is None without `in`."""

    __slots__ = ("body", "name", "words")

    def __init__(self, start: int, end: int, name: str, words: Sequence[ShellWord] | None, body: Statement) -> None:
        self.start, self.end, self.name, self.words, self.body = start, end, name, words, body


class CountedLoop(Statement):
    """`for ((initial; condition; update))`, as texts."""

    __slots__ = ("body", "condition", "initial", "update")

    def __init__(self, start: int, end: int, expressions: Sequence[str], body: Statement) -> None:
        self.start, self.end, self.body = start, end, body
        self.initial, self.condition, self.update = expressions


class WhileLoop(Statement):
    """`while`, `until`."""

    __slots__ = ("body", "conditions", "is_until")

    def __init__(self, start: int, end: int, conditions: Sequence[Statement], body: Statement, is_until: bool) -> None:
        self.start, self.end, self.conditions, self.body, self.is_until = start, end, conditions, body, is_until


class Function(Statement):
    """`name() body`."""

    __slots__ = ("body", "name")

    def __init__(self, start: int, end: int, name: str, body: Statement) -> None:
        self.start, self.end, self.name, self.body = start, end, name, body


Piece = Text | Quoted | Parameter | ArithmeticExpansion | CommandSubstitution | ProcessSubstitution | NotUnderstood
AssignedValue = ShellWord | ArrayLiteral | NotUnderstood


class Script:
    """A text with its statements, the places of its comments, and where each variable is assigned (in order).

    `lost_from` is the byte where a statement starts whose end is not found; None if there is none.
    """

    __slots__ = ("assigned", "comments", "lost_from", "statements", "text")

    def __init__(
        self,
        text: ScriptText,
        statements: Sequence[Statement],
        comments: Sequence[tuple[int, int]],
        assigned: Sequence[tuple[int, str]],
        lost_from: int | None = None,
    ) -> None:
        self.text, self.statements, self.comments, self.assigned = text, statements, comments, assigned
        self.lost_from = lost_from

    def assigned_in(self, node: SyntaxNode) -> list[str]:
        """The names of the variables that are assigned anywhere in a part of the text."""
        first, last = (bisect_left(self.assigned, (place, "")) for place in (node.start, node.end))
        return list(dict.fromkeys(name for _, name in self.assigned[first:last]))
