"""An exception of upstream's code as a refusal: its text, the statement that raised it, and where that stands."""

from __future__ import annotations

import ast
import os
import traceback
from functools import cache


def refusal_of(error: BaseException, package: str) -> dict[str, str]:
    """`package` is the folder whose code is upstream's; the innermost statement below it counts."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if f"{os.sep}{package}{os.sep}" in frame.filename and os.path.exists(frame.filename)
    ]
    if not frames:
        return {"text": text, "code": "", "where": ""}
    frame = frames[-1]
    at = frame.filename.rindex(f"{os.sep}{package}{os.sep}") + 1
    return {
        "text": text,
        "code": _statement(frame.filename, frame.lineno or 1),
        "where": f"{frame.filename[at:]} {frame.name}",
    }


@cache
def _tree(path: str) -> tuple[str, ast.Module]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return text, ast.parse(text)


@cache
def _statement(path: str, line: int) -> str:
    """The innermost statement at the line, after the condition that guards it."""
    text, tree = _tree(path)
    inner: ast.stmt | None = None
    guard = ""
    for node in ast.walk(tree):  # outer nodes come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            inner = node
            if isinstance(node, ast.If):
                guard = f"if {ast.get_source_segment(text, node.test)}: "
    assert inner is not None
    if isinstance(inner, ast.If | ast.FunctionDef | ast.ClassDef | ast.With | ast.For | ast.Try):
        return guard.strip()
    return " ".join(f"{guard}{ast.get_source_segment(text, inner)}".split())
