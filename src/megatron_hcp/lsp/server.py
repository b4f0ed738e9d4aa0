"""The server: documents in, marks out. A change is judged once no newer one has come for a moment."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from megatron_hcp import __version__
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.line_diff import LineMatcher
from megatron_hcp.ground.place import Location
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.signals import end_at_once
from megatron_hcp.ground.visible import visible
from megatron_hcp.lsp.judged import (
    JudgedText,
    Mark,
    dialect_in,
    each_release,
    explained,
    fixed_text,
    judged,
    titles_of_fixes,
    with_fixes,
)
from megatron_hcp.lsp.keys import offered
from megatron_hcp.project.place import BASELINE, CONFIG, PYPROJECT

_PAUSE_S = 0.03
_MOST_CHARACTERS = 1_000_000
_MOST_BYTES, _LONGEST_HEADER = 64_000_000, 1_000
"""Of a message; pygls asks for as many as a header says."""
_WATCHED = ("*.{sh,bash,sbatch,slurm,yaml,yml,json,env}", CONFIG, BASELINE, PYPROJECT)
"""What launches read beside themselves, in any folder."""
_LEVELS = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class HcpServer(LanguageServer):
    """The last judgement of each document, and the last one that had launches, for its keys."""

    def __init__(self) -> None:
        super().__init__("hcp", __version__)
        self.docs: dict[str, JudgedText] = {}
        """Of those that are open: pygls would read any other one from the disk."""
        self.dialects: dict[str, tuple[str, str]] = {}
        self.ready: set[tuple[str, str]] = set()
        """Those of `dialects` whose releases have been read."""

    def judge(self, uri: str) -> None:
        """Judges a document as it is now and publishes what is found."""
        doc = self.workspace.get_text_document(uri)
        found = judged(doc.source, doc.path) if len(doc.source) <= _MOST_CHARACTERS else JudgedText()
        self.docs[uri] = found
        if (dialect := dialect_in(found.reports)) is not None:
            self.dialects[uri] = dialect
        lines = _lines(doc.source)
        marks = [_diagnostic(mark, lines) for mark in found.marks]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, marks, doc.version))

    def with_fixes(self, uri: str) -> JudgedText:
        """The document's last judgement with fixes, which are tried when they are first asked for."""
        found = self.docs[uri] = with_fixes(self.docs.get(uri, JudgedText()))
        return found

    def judge_those_that_read(self, uris: Sequence[str]) -> None:
        """Judges again the open documents that are, or read, or looked for, one of these files."""
        paths = {path for path in map(to_fs_path, uris) if path is not None}
        for uri, doc in list(self.docs.items()):
            if uri in uris or not paths.isdisjoint(doc.paths):
                self.judge(uri)

    def watch_files(self) -> None:
        """Asks the editor to say when a file changes that launches may read, if it can."""
        workspace = self.client_capabilities.workspace
        able = workspace.did_change_watched_files if workspace is not None else None
        if able is None or not able.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(f"**/{name}") for name in _WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        one = types.Registration("hcp.files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        self.client_register_capability(types.RegistrationParams([one]), lambda _: None)


def _diagnostic(mark: Mark, lines: Sequence[str]) -> types.Diagnostic:
    return types.Diagnostic(
        range=_range(mark.place, lines),
        message=mark.text,
        severity=_LEVELS[mark.level],
        code=mark.code,
        source="hcp",
        data={"line": mark.place.line},
    )


def _range(place: Location, lines: Sequence[str]) -> types.Range:
    return types.Range(_position(place.line, place.column, lines), _position(place.end_line, place.end_column, lines))


def _position(line: int, column: int, lines: Sequence[str]) -> types.Position:
    """A place that counts characters from 1, as the protocol counts: UTF-16 units from 0."""
    if line > len(lines):
        return types.Position(len(lines), 0)
    text = lines[line - 1].rstrip("\r\n")
    return types.Position(line - 1, len(text[: column - 1].encode("utf-16-le", "surrogatepass")) // 2)


def _place(position: types.Position, lines: Sequence[str]) -> tuple[int, int]:
    """The reverse: line and column from 1."""
    text = lines[position.line] if position.line < len(lines) else ""
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * position.character]
    return position.line + 1, len(units.decode("utf-16-le", "ignore")) + 1


def _lines(text: str) -> list[str]:
    """A document's lines with their ends, as the protocol has them: a form feed or U+2028 ends none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _edits(old: str, new: str) -> list[types.TextEdit]:
    """Whole lines that are replaced."""
    before, after = _lines(old), _lines(new)
    return [
        types.TextEdit(types.Range(types.Position(one, 0), types.Position(two, 0)), "".join(after[three:four]))
        for what, one, two, three, four in LineMatcher(before, after).get_opcodes()
        if what != "equal"
    ]


def make_server() -> HcpServer:
    """A server with its features, not yet started."""
    server = HcpServer()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: types.DidOpenTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.judge(uri)
        found = server.docs[uri]
        if (dialect := dialect_in(found.reports)) is not None and dialect not in server.ready:
            server.ready.add(dialect)
            for _ in each_release(found):  # a change may bring in any of them, and the first use of each is slow
                await asyncio.sleep(_PAUSE_S)
            gc.collect()
            gc.freeze()  # the tables that a judgement reads stay: a collection while somebody types passes over them

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: types.DidChangeTextDocumentParams) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(_PAUSE_S)
        if server.workspace.get_text_document(uri).version == version:
            server.judge(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        server.judge_those_that_read([params.text_document.uri])

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed_elsewhere(params: types.DidChangeWatchedFilesParams) -> None:
        server.judge_those_that_read([change.uri for change in params.changes])

    @server.feature(types.INITIALIZED)
    def initialized(params: types.InitializedParams) -> None:
        server.watch_files()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.docs.pop(uri, None)
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        uri = params.text_document.uri
        if uri not in server.docs:
            return None
        doc = server.workspace.get_text_document(uri)
        text = explained(server.docs[uri], doc.path, *_place(params.position, _lines(doc.source)))
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text)) if text else None

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix], resolve_provider=True),
    )
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        path = server.workspace.get_text_document(uri).path
        return [
            types.CodeAction(
                title=f"hcp {one.code}: {title}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[one],
                is_preferred=number == 0,
                data={"uri": uri, "code": one.code, "line": line, "number": number},
            )
            for one in params.context.diagnostics
            if one.source == "hcp" and one.data and uri in server.docs
            for line in (one.data["line"],)
            for number, title in enumerate(
                titles_of_fixes(server.with_fixes(uri), str(one.code), Location(path, line, 1, line, 1))
            )
        ]

    @server.feature(types.CODE_ACTION_RESOLVE)
    def resolve(action: types.CodeAction) -> types.CodeAction:
        asked: dict[str, Any] = dict(action.data or {})
        if asked.get("uri") not in server.docs:
            return action
        doc = server.workspace.get_text_document(asked["uri"])
        place = Location(doc.path, asked["line"], 1, asked["line"], 1)
        text = fixed_text(server.with_fixes(asked["uri"]), asked["code"], place, asked["number"])
        if text is None:
            said = f"hcp {asked['code']}: this fix has no place in the file; make it by hand"
            server.window_show_message(types.ShowMessageParams(types.MessageType.Info, said))
            return action
        action.edit = types.WorkspaceEdit(changes={asked["uri"]: _edits(doc.source, text)})
        return action

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=["-", "."]))
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        doc = server.workspace.get_text_document(params.text_document.uri)
        dialect = server.dialects.get(params.text_document.uri)
        if dialect is None or params.text_document.uri not in server.docs:
            return []
        lines = _lines(doc.source)
        line, column = _place(params.position, lines)
        is_yaml = doc.path.endswith((".yaml", ".yml"))
        return [
            types.CompletionItem(one.label, kind=types.CompletionItemKind.Property, detail=one.about)
            for one in offered([text.rstrip("\r\n") for text in lines], line - 1, column - 1, *dialect, is_yaml)
        ]

    return server


class _Input:
    """Standard input, as pygls reads it."""

    def readline(self) -> bytes:
        return sys.stdin.buffer.readline(_LONGEST_HEADER)

    def read(self, count: int) -> bytes:
        if count > _MOST_BYTES:
            raise HcpError(
                f"found a message of {count:,} bytes", wanted=f"at most {_MOST_BYTES:,}", do="restart hcp lsp"
            )
        return sys.stdin.buffer.read(count)


class _OneLine(logging.Handler):
    """What pygls says of a message that it cannot use, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        said = record.getMessage().partition("\n")[0][:1000] + (
            f" ({type(error).__name__}: {error})"[:1000] if error else ""
        )
        with suppress(OSError):
            print(f"hcp: {without_secrets(visible(said))[:300]}", file=sys.stderr, flush=True)


def serve() -> None:
    """Answers until the editor closes the input. It writes no file and starts nothing, so a signal ends it at once.

    Raises:
        HcpError: a message is too long.
    """
    end_at_once()
    logging.getLogger("pygls").handlers, logging.getLogger("pygls").propagate = [_OneLine()], False
    stdin: Any = _Input()
    make_server().start_io(stdin)
