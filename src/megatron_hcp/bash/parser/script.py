"""A whole script, from its bytes to our syntax tree."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from time import process_time
from typing import TYPE_CHECKING

from tree_sitter import Language, Parser

from megatron_hcp.bash.parser import commands, compound
from megatron_hcp.bash.parser.tree import Tree
from megatron_hcp.bash.syntax import Script, Statement
from megatron_hcp.bash.value import ScriptText
from megatron_hcp.ground.errors import HcpError

if TYPE_CHECKING:
    from tree_sitter import Node
    from tree_sitter import Tree as SyntaxTree

_MAX_PASSES = 20
MAX_PARSING_S = 1.0
_QUICK = 4000
_SECOND = re.compile(rb"[ \t][A-Za-z_]\w*\+?=")
_STATEMENTS: dict[str, Callable[[Tree, Node], Statement]] = {
    "command": commands.command,
    "variable_assignment": commands.assignment,
    "variable_assignments": commands.assignments,
    "declaration_command": commands.declaration,
    "unset_command": commands.unset,
    "test_command": commands.condition,
    "compound_statement": compound.group,
    "do_group": compound.group,
    "subshell": compound.subshell,
    "pipeline": compound.pipeline,
    "negated_command": compound.negation,
    "list": compound.and_or,
    "redirected_statement": compound.redirected,
    "if_statement": compound.if_,
    "case_statement": compound.case,
    "for_statement": compound.for_loop,
    "c_style_for_statement": compound.counted_loop,
    "while_statement": compound.while_loop,
    "function_definition": compound.function,
    "ERROR": compound.error,
}
_OPENS_AND_CLOSES = {
    "fi": (rb"(?m)^[ \t]*if\b", rb"(?m)(?:^|[\s;&|])fi(?![\w-])"),
    "done": (
        rb"(?m)^[ \t]*(?:for|while|until|select)\b",
        rb"(?m)(?:^|[\s;&|])done(?![\w-])",
    ),
    "esac": (rb"(?m)^[ \t]*case\b", rb"(?m)(?:^|[\s;&|])esac(?![\w-])"),
}
_SUM = re.compile(rb"(?<=:[-=])\$\(\((?:[\w \t+*/%<>=,()-]|\$\w+|\$\{\w+\})*\)\)(?=\})")
"""`$((…))` as a whole default value: `dollar.text` reads it, and the grammar fails at parentheses in it."""
_DOCUMENT = re.compile(rb"(^[ \t]*)?(?<!<)<<-?[ \t]*(['\"\\]?)([^\s'\"\\;&|<>()$`]+)(['\"]?[ \t]*$)?", re.M)
_parser: Parser | None = None
_Syntax = tuple[Sequence[Statement], Sequence[tuple[int, int]], Sequence[tuple[int, str]], "int | None"]
_kept: dict[bytes, _Syntax] = {}
"""The trees of the last texts, which nothing changes: scripts of a folder often hand the same text to another shell."""
_MOST_KEPT, _LONGEST_KEPT = 32, 20_000


def parse(text: ScriptText) -> Script:
    """The syntax tree of a text. What is not understood is `NotUnderstood` in the tree.

    Raises:
        HcpError: an `if`, a loop or a `case` is never closed, or so much of a long text makes no sense that the parser
            would search for one too long.
    """
    known = _kept.get(text.data)
    if known is None:
        known = _syntax(text)
        if len(text.data) <= _LONGEST_KEPT:
            if len(_kept) == _MOST_KEPT:
                del _kept[next(iter(_kept))]
            _kept[text.data] = known
    return Script(text, *known)


def _syntax(text: ScriptText) -> _Syntax:
    root = _parsed(text.data, text.file)
    lost = _lost_from(root, text.data, text.file) if root.has_error else None
    if lost is not None and (data := _without_longer_ends(text.data)) != text.data:
        second = _parsed(data, text.file)
        if not second.has_error or _lost_from(second, text.data, text.file) is None:
            root, lost = second, None
    tree = Tree(text.data, _STATEMENTS)
    statements = tree.block(root.children)
    while tree.substitutions:
        substitution, node = tree.substitutions.pop()
        substitution.statements = tree.block(node.children)
    comments = [(child.start_byte, child.end_byte) for child in root.children if child.type == "comment"]
    return statements, comments, sorted(tree.assigned), lost


def _parsed(data: bytes, file: str) -> Node:
    """tree-sitter's root node. What its grammar cannot read is replaced in a copy of equal length."""
    global _parser
    if _parser is None:
        _parser = Parser(_grammar())
    shown = bytearray(_SUM.sub(lambda found: b"0" * len(found[0]), _without_bare_documents(narrow(data))))
    root = _tree(_parser, bytes(shown), file).root_node
    for _ in range(_MAX_PASSES if _may_hold_several(data) else 0):
        ends = _swallowed_ends(root, data)
        if not ends:
            break
        for place in ends:
            shown[place] = ord(";")
        root = _tree(_parser, bytes(shown), file).root_node
    return root


_FIRST_WORD = re.compile(rb"(?m)^\t*([^\s]+)")


def _without_longer_ends(data: bytes) -> bytes:
    """A copy in which no line only starts as a document ends: the grammar takes `EOFINNER` for the end of `<<EOF`."""
    copy = bytearray(data)
    names = {found[3] for found in _DOCUMENT.finditer(data)}
    lengths = {len(name) for name in names}
    for found in _FIRST_WORD.finditer(data) if names else ():
        word = found[1]
        if any(len(word) > length and word[:length] in names for length in lengths):
            copy[found.start(1)] = ord("_")
    return bytes(copy)


def _tree(parser: Parser, data: bytes, file: str) -> SyntaxTree:
    """tree-sitter's tree. On a long line without sense, its search takes time quadratic in the length."""
    if len(data) < _QUICK:
        return parser.parse(data)
    end = process_time() + MAX_PARSING_S

    def chunk(offset: int, point: object) -> bytes:
        return data[offset : offset + _QUICK]

    try:
        parsed = parser.parse(chunk, progress_callback=lambda offset, has_error: process_time() > end)
    except TypeError:  # tree-sitter before 0.25 can only parse to the end
        return parser.parse(data)
    except ValueError:
        pass
    else:
        return parsed
    parser.reset()
    raise HcpError(
        f"{file} has long lines that make no sense to a shell",
        wanted="a bash script",
        do="see what `bash -n` says about it",
    )


def _lost_from(root: Node, data: bytes, file: str) -> int | None:
    """Where a statement starts whose end is not found, so that what follows may be misread; None if there is none.

    Raises:
        HcpError: bash finds no end either. The parser also misses some that are there, in or after a here-document: so
            only without one, and if the words themselves are too few.
    """
    end = len(data.rstrip())
    waiting, lost = [root], []
    while waiting:
        node = waiting.pop()
        if node.is_error and node.end_byte >= end:
            lost.append(node.start_byte)
        if node.is_missing and node.type in _OPENS_AND_CLOSES and node.start_byte >= end and node.parent is not None:
            statement = node.parent.parent or node.parent if node.type == "done" else node.parent
            opens, closes = _OPENS_AND_CLOSES[node.type]
            if len(re.findall(opens, data)) > len(re.findall(closes, data)) and b"<<" not in data:
                word = data[statement.start_byte :].split(None, 1)[0].decode()
                raise HcpError(
                    f"this `{word}` is never closed, and bash reads nothing from here on",
                    wanted=f"`{node.type}`",
                    do="see what `bash -n` says about it",
                    at=(file, statement.start_point[0] + 1),
                )
            lost.append(statement.start_byte)
        waiting += (child for child in node.children if child.has_error or child.is_missing)
    return min(lost, default=None)


def _may_hold_several(data: bytes) -> bool:
    """Whether a line may hold several assignments."""
    for match in _SECOND.finditer(data):
        start = match.start()
        if data.find(b"=", data.rfind(b"\n", 0, start) + 1, start) >= 0:
            return True
    return False


def _grammar() -> Language:
    """The language of tree-sitter-bash, straight from its binding.

    Its package also imports what finds its queries, which takes longer than reading a script.
    """
    package = find_spec("tree_sitter_bash")
    assert package is not None, "tree-sitter-bash is not installed"
    spec = PathFinder.find_spec("tree_sitter_bash._binding", package.submodule_search_locations)
    assert spec is not None and spec.loader is not None, "tree-sitter-bash has no binding"
    binding = module_from_spec(spec)
    spec.loader.exec_module(binding)
    return Language(binding.language())


def narrow(data: bytes) -> bytes:
    """The bytes, with placeholders of equal length for characters beyond U+FFFF.

    After `{` the scanner asks C's `isdigit` about such a character, which may crash the process (tree-sitter-bash issue
    337). Ours are among them: they stand for unknown parts, as in `eval echo {1..$N}`.
    """
    return data if data.isascii() else re.sub(rb"[\xf0-\xf7][\x80-\xbf]{3}", "¤¤".encode(), data)


def _without_bare_documents(data: bytes) -> bytes:
    """The bytes, with blanks for here-documents that no command gets, which the grammar takes for commands.

    Lines between `<<COMMENT` and `COMMENT` are comments in many scripts.
    """
    if _DOCUMENT.search(data) is None:
        return data
    ends: dict[bytes, list[int]] = {}
    for line in re.finditer(rb"^\t*([^\n]+)$", data, re.M):
        ends.setdefault(line[1], []).append(line.end())
    shown = bytearray(data)
    place = 0
    while match := _DOCUMENT.search(data, place):
        closing = ends.get(match[3], [])
        found = bisect(closing, match.end())
        place = closing[found] if found < len(closing) else match.end()
        if match[1] is not None and match[4] is not None and place > match.end():
            shown[match.start() : place] = re.sub(rb"[^\n]", b" ", data[match.start() : place])
    return bytes(shown)


def _swallowed_ends(root: Node, data: bytes) -> list[int]:
    """Where lines of several assignments end that the grammar (0.25) joins with the next line: `A=1 B=2`."""
    ends: list[int] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type != "command":
            stack += node.named_children
            continue
        for first, second in pairwise(node.named_children):
            if first.type != "variable_assignment":
                break
            if commands.has_line_end(data[first.end_byte : second.start_byte]):
                ends.append(first.end_byte)
    return ends
