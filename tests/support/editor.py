"""An editor that talks to `hcp lsp`: a process, the real protocol, the client of pygls."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient


class Server:
    """A server that was started, and what it sent, by document."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.published: defaultdict[str, asyncio.Queue[types.PublishDiagnosticsParams]] = defaultdict(asyncio.Queue)
        self.watched: list[str] = []

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def arrived(params: types.PublishDiagnosticsParams) -> None:
            self.published[params.uri].put_nowait(params)

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def asked(params: types.RegistrationParams) -> None:
            for one in params.registrations:
                assert one.method == types.WORKSPACE_DID_CHANGE_WATCHED_FILES
                options: Any = one.register_options
                self.watched += [watcher["globPattern"] for watcher in options["watchers"]]

    async def end(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


async def started(can: types.ClientCapabilities) -> Server:
    server = Server(LanguageClient("test", "1"))
    await server.client.start_io(sys.executable, "-m", "megatron_hcp", "lsp")
    await server.client.initialize_async(types.InitializeParams(capabilities=can))
    server.client.initialized(types.InitializedParams())
    return server


class Editor:
    """An editor with one document open."""

    def __init__(self, server: Server, path: Path) -> None:
        self.client, self.uri, self.version = server.client, path.as_uri(), 1
        self.published, self.watched = server.published[self.uri], server.watched

    async def open(self, text: str) -> list[types.Diagnostic]:
        item = types.TextDocumentItem(self.uri, "x", self.version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return list((await self.published.get()).diagnostics)

    async def change(self, text: str) -> list[types.Diagnostic]:
        self.version += 1
        document = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))
        while (last := await self.published.get()).version != self.version:
            pass
        return list(last.diagnostics)

    @property
    def document(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(self.uri)


LOOP = asyncio.new_event_loop()
"""What reads from the server that editors share: it must last from test to test."""
SHARED: list[Server] = []


def in_editor(
    path: Path, steps: Callable[[Editor], Awaitable[None]], can: types.ClientCapabilities | None = None
) -> None:
    """Takes the steps in an editor with a server: with its own if it says what it can, else the one that tests share,
    for a start takes longer than most steps do."""

    async def alone(own: types.ClientCapabilities) -> None:
        server = await started(own)
        await steps(Editor(server, path))
        await server.end()

    async def beside_others() -> None:
        server = SHARED.pop() if SHARED else await started(types.ClientCapabilities())
        editor = Editor(server, path)
        await steps(editor)
        server.client.text_document_did_close(types.DidCloseTextDocumentParams(editor.document))
        SHARED.append(server)  # a step that fails leaves it to nobody

    if can is not None:
        asyncio.run(alone(can))
    else:
        LOOP.run_until_complete(beside_others())


def end_shared() -> None:
    """Ends the server that tests shared."""
    while SHARED:
        LOOP.run_until_complete(SHARED.pop().end())
