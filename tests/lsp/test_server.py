"""`hcp lsp` as an editor talks to it: a process, the real protocol, the client of pygls."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")

from lsprotocol import types

from megatron_hcp.project.place import BASELINE, CONFIG, PYPROJECT
from support.editor import Editor, end_shared, in_editor
from support.processes import HANG_S

TWO_LEVELS = (
    "# \U0001f680 a launch\ntorchrun --nproc-per-node 8 pretrain_gpt.py --context-parallel-size 8 --seq-length 4096 "
    "--max-position-embeddings 4096 --cp-comm-type a2a+p2p\n"
)
YAML = "model:\n  context_parallel_size: 4\n  cp_comm_type: p2p\n  seq_length: 4096\n"


@pytest.fixture(scope="module", autouse=True)
def shared_server() -> Iterator[None]:
    yield
    end_shared()


def watched(editor: Editor, folder: Path) -> set[str]:
    """The files that the editor was asked to watch; braces at a pattern's end hold alternatives (the protocol says so).

    As in a shell, an asterisk stands for no dot at the start of a name: editors differ there.
    """
    parts = [pattern.partition("{") for pattern in editor.watched]
    patterns = [head + end for head, _, ends in parts for end in ends.rstrip("}").split(",")]
    return {name for pattern in patterns for name in glob(pattern, root_dir=folder, recursive=True)}


def codes(marks: list[types.Diagnostic]) -> list[Any]:
    return [mark.code for mark in marks]


def test_findings_follow_the_text_and_stand_where_the_editor_counts(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        marks = await editor.open(TWO_LEVELS)
        found = next(mark for mark in marks if mark.code == "HCP001")
        assert found.severity == types.DiagnosticSeverity.Error and found.range.start.line == 1
        line = TWO_LEVELS.splitlines()[1]
        assert line[found.range.start.character :].startswith("--cp-comm-type")
        assert "HCP001" not in codes(await editor.change(TWO_LEVELS.replace("a2a+p2p", "p2p")))
        assert codes(await editor.change("not a launch\n")) == []

    in_editor(tmp_path / "run.sh", steps)


def test_a_fix_is_an_edit_of_the_document(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        found = next(mark for mark in await editor.open(TWO_LEVELS) if mark.code == "HCP001")
        assert "fixes" not in (found.data or {}), "fixes are tried when they are asked for"
        context = types.CodeActionContext([found])
        actions = await editor.client.text_document_code_action_async(
            types.CodeActionParams(editor.document, found.range, context)
        )
        assert actions and all(isinstance(action, types.CodeAction) for action in actions)
        first = next(action for action in actions if isinstance(action, types.CodeAction) and action.is_preferred)
        resolved = await editor.client.code_action_resolve_async(first)
        assert resolved.edit is not None and resolved.edit.changes is not None
        (edit,) = resolved.edit.changes[editor.uri]
        lines = TWO_LEVELS.splitlines(keepends=True)
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
        assert "--hierarchical-context-parallel-sizes 4 2" in edit.new_text
        assert "HCP001" not in codes(await editor.change("".join(lines)))

    in_editor(tmp_path / "run.sh", steps)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mark", ["\f", "\v", "\u2028", "\x85"])
def test_what_the_protocol_takes_for_no_end_of_a_line_ends_none(tmp_path: Path, mark: str) -> None:
    """Only a line feed and a carriage return end one for an editor: else a fix replaces another line than it means."""
    text = f"# a{mark}b\n{TWO_LEVELS}"

    async def steps(editor: Editor) -> None:
        found = next(one for one in await editor.open(text) if one.code == "HCP001")
        lines = text.split("\n")
        assert lines[found.range.start.line][found.range.start.character :].startswith("--cp-comm-type")
        action = types.CodeAction("x", data={"uri": editor.uri, "code": "HCP001", "line": 3, "number": 0})
        resolved = await editor.client.code_action_resolve_async(action)
        assert resolved.edit is not None and resolved.edit.changes is not None
        (edit,) = resolved.edit.changes[editor.uri]
        assert (edit.range.start.line, edit.range.end.line) == (2, 3)

    in_editor(tmp_path / "run.sh", steps)


def test_hover_explains_the_rule_or_the_setting(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        await editor.open(YAML)

        async def hover(line: int, character: int) -> str:
            place = types.Position(line, character)
            answer = await editor.client.text_document_hover_async(types.HoverParams(editor.document, place))
            return "" if answer is None else answer.contents.value  # type: ignore[union-attr]

        assert "`cp` = 4" in await hover(1, 26)
        assert "# context_parallel_size" in await hover(1, 26)
        marks = await editor.change(YAML.replace("p2p", "a2a+p2p"))
        found = next(mark for mark in marks if mark.code == "HCP001")
        assert "HCP001" in await hover(found.range.start.line, found.range.start.character)
        assert await hover(0, 0) == ""

    in_editor(tmp_path / "run.yaml", steps)


def test_keys_of_the_section_are_offered(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        await editor.open(YAML)
        await editor.change(YAML + "  context_par\n")

        async def labels(line: int, character: int) -> list[str]:
            params = types.CompletionParams(editor.document, types.Position(line, character))
            answer = await editor.client.text_document_completion_async(params)
            return [item.label for item in answer or []]  # type: ignore[union-attr]

        assert await labels(4, 13) == ["context_parallel_size"]

    in_editor(tmp_path / "run.yaml", steps)


def test_what_the_repository_states_holds(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".hcp.yaml").write_text("accept: [{rule: HCP001, reason: tried}]\n")

    async def steps(editor: Editor) -> None:
        assert "HCP001" not in codes(await editor.open(TWO_LEVELS))

    in_editor(tmp_path / "run.sh", steps)


def test_an_unreadable_launch_is_marked_and_the_server_lives_on(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        marks = await editor.open("model:\n  context_parallel_size: 4\n  a: [\n")
        assert [mark.severity for mark in marks] == [types.DiagnosticSeverity.Error]
        assert codes(await editor.change(YAML.replace("4096", "4097"))).count("CP001") == 1

    in_editor(tmp_path / "run.yaml", steps)


def test_a_launch_is_checked_again_when_a_file_that_it_sources_changes(tmp_path: Path) -> None:
    (tmp_path / "common.sh").write_text("CP=2\n")
    launch = "source common.sh\n" + TWO_LEVELS.replace("a2a+p2p", "p2p").replace("4096", "4098").replace(
        "size 8", "size $CP"
    )

    async def steps(editor: Editor) -> None:
        assert "CP001" in codes(await editor.open(launch))
        for text, way in (("CP=1\n", "saved"), ("CP=2\n", "watched")):
            (tmp_path / "common.sh").write_text(text)
            uri = (tmp_path / "common.sh").as_uri()
            if way == "saved":
                params = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
                editor.client.text_document_did_save(params)
            else:
                change = types.FileEvent(uri, types.FileChangeType.Changed)
                editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([change]))
            marks = list((await editor.published.get()).diagnostics)
            assert ("CP001" in codes(marks)) == (text == "CP=2\n")

    in_editor(tmp_path / "run.sh", steps)


def test_a_project_file_that_appears_or_changes_counts_at_once(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")

    async def steps(editor: Editor) -> None:
        assert "HCP001" in codes(await editor.open(TWO_LEVELS))
        for text in ("ignore: [HCP001]\n", "ignore: [HCP002]\n"):
            (tmp_path / ".hcp.yaml").write_text(text)
            change = types.FileEvent((tmp_path / ".hcp.yaml").as_uri(), types.FileChangeType.Changed)
            editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([change]))
            marks = list((await editor.published.get()).diagnostics)
            assert ("HCP001" in codes(marks)) == ("HCP002" in text)

    in_editor(tmp_path / "run.sh", steps)


@pytest.mark.sample(2)
@pytest.mark.parametrize("can_watch", [True, False])
def test_an_editor_that_can_is_asked_to_watch_what_launches_read(tmp_path: Path, can_watch: bool) -> None:
    read = {f"conf/{name}" for name in ("common.sh", "model.yaml", "config.json", CONFIG, BASELINE, PYPROJECT)}
    (tmp_path / "conf").mkdir()
    for name in read:
        (tmp_path / name).touch()

    async def steps(editor: Editor) -> None:
        await editor.open(TWO_LEVELS)  # its answer comes after what `initialized` had the server ask
        assert watched(editor, tmp_path) == (read if can_watch else set())

    watching = types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=can_watch)
    workspace = types.WorkspaceClientCapabilities(did_change_watched_files=watching)
    in_editor(tmp_path / "run.sh", steps, types.ClientCapabilities(workspace=workspace))


def test_mistakes_of_the_project_file_are_shown_in_it(tmp_path: Path) -> None:
    async def steps(editor: Editor) -> None:
        (mark,) = await editor.open("fact: {te: 2.14}\n")
        assert mark.code == "unreadable" and "fact" in mark.message
        for text in ("facts: {tee: 1}\n", "facts: [\n", "paths: {x: {ignore: [NOPE001]}}\n", "site: no.yaml\n"):
            assert len(await editor.change(text)) == 1, text
        assert await editor.change("facts: {te: '2.14'}\n") == []

    in_editor(tmp_path / ".hcp.yaml", steps)


def test_a_document_that_is_not_open_is_not_read(tmp_path: Path) -> None:
    """There is no such file: whoever looks for it fails."""

    async def steps(editor: Editor) -> None:
        found = next(mark for mark in await editor.open(TWO_LEVELS) if mark.code == "HCP001")
        asked = types.CodeActionParams(editor.document, found.range, types.CodeActionContext([found]))
        actions = await editor.client.text_document_code_action_async(asked)
        assert actions
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(editor.document))
        client, start = editor.client, types.Position(1, 0)
        assert await client.text_document_hover_async(types.HoverParams(editor.document, start)) is None
        assert not await client.text_document_code_action_async(asked)
        assert not await client.text_document_completion_async(types.CompletionParams(editor.document, start))
        (first, *_) = actions
        assert isinstance(first, types.CodeAction) and (await client.code_action_resolve_async(first)).edit is None

    in_editor(tmp_path / "none.sh", steps)


def test_an_orderly_shutdown_ends_with_0_and_says_nothing() -> None:
    said = (
        {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    )
    bodies = (json.dumps({"jsonrpc": "2.0", **one}) for one in said)
    sent = "".join(f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies)
    ended = subprocess.run([sys.executable, "-m", "megatron_hcp", "lsp"], input=sent, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_while_the_editor_keeps_its_input_open(number: int) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}).encode()
    command = [sys.executable, "-m", "megatron_hcp", "lsp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        try:
            server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            server.stdin.flush()
            assert server.stdout.readline()
            server.send_signal(number)
            assert server.wait(HANG_S) == 128 + number
            assert server.stderr.read() == b""
        finally:
            server.kill()
