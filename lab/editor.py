"""How long an editor waits for `hcp lsp` after a change: `python lab editor FOLDER…`. Wanted: at most 150 ms.

Draws files that are launches from checkouts, opens each in a server of its own protocol session, and changes one number
of it after another, each in a line that is drawn. Prints the time from the change until the findings of that version
have arrived, the server's pause for further typing included, and the processor time of it, which says more on a loaded
machine; the slowest files by name.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from lsprotocol import types
from program import parser_of
from pygls.lsp.client import LanguageClient

WANTED_MS = 150
SUFFIXES = {".sh", ".bash", ".sbatch", ".slurm", ".sub", ".yaml", ".yml"}
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


class Answer(NamedTuple):
    """One change: milliseconds until its findings came, and of the server's processor."""

    wall_ms: float
    cpu_ms: float
    name: str


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__)
    made.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    made.add_argument("--files", type=int, default=100)
    made.add_argument("--changes", type=int, default=5, help="of each file")
    made.add_argument("--seed", type=int, default=1)
    return made


def drawn(folders: list[Path], count: int, source: random.Random) -> list[tuple[Path, str]]:
    """Files that hold a number to change, in a drawn order; which of them are launches, the server says."""
    files = sorted(
        file for folder in folders for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file()
    )
    source.shuffle(files)
    texts = ((file, file.read_text(encoding="utf-8", errors="replace")) for file in files)
    return [(file, text) for file, text in texts if _NUMBER.search(text)][: 20 * count]


def changed(text: str, source: random.Random) -> str:
    """The text with one of its numbers made another."""
    place = source.choice(list(_NUMBER.finditer(text)))
    return f"{text[: place.start()]}{int(place[0]) + source.randint(1, 9)}{text[place.end() :]}"


async def measured(texts: list[tuple[Path, str]], options: argparse.Namespace, source: random.Random) -> list[Answer]:
    client = LanguageClient("lab", "1")
    published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def arrived(params: types.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    await client.start_io(sys.executable, "-m", "megatron_hcp", "lsp")
    server = client._server
    assert server is not None
    clock = Path(f"/proc/{server.pid}/schedstat")
    await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
    client.initialized(types.InitializedParams())
    found: list[Answer] = []
    files = 0
    for path, text in texts:
        if files == options.files:
            break
        uri = path.resolve().as_uri()
        client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "x", 0, text)))
        marks = (await published.get()).diagnostics
        files += bool(marks)
        for version in range(1, options.changes + 1) if marks else ():
            whole = types.TextDocumentContentChangeWholeDocument(changed(text, source))
            used, started = int(clock.read_text().split()[0]), time.perf_counter()
            client.text_document_did_change(
                types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(version, uri), [whole])
            )
            await published.get()
            wall = (time.perf_counter() - started) * 1e3
            found.append(Answer(wall, (int(clock.read_text().split()[0]) - used) / 1e6, str(path)))
        client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        await published.get()
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return found


def main() -> None:
    options = parser().parse_args()
    source = random.Random(options.seed)
    found = asyncio.run(measured(drawn(options.folders, options.files, source), options, source))
    for name, values in (("wall", [one.wall_ms for one in found]), ("cpu", [one.cpu_ms for one in found])):
        cuts = statistics.quantiles(values, n=100)
        over = sum(value > WANTED_MS for value in values)
        print(
            f"{name:>4}: median {statistics.median(values):.0f} ms, p95 {cuts[94]:.0f}, p99 {cuts[98]:.0f}, "
            f"most {max(values):.0f}; {over} of {len(values)} over {WANTED_MS} ms"
        )
    for one in sorted(found, key=lambda one: -one.cpu_ms)[:10]:
        print(f"  {one.wall_ms:5.0f} ms, cpu {one.cpu_ms:5.0f} ms  {one.name}")


if __name__ == "__main__":
    main()
