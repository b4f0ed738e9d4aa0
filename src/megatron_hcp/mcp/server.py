"""The server: it runs `hcp` itself for each question, so that its answers are those of the command line.

Each question runs in its own process, so it can neither stop the server nor write to the protocol's streams. It ends
with the call: if the client cancels it or closes the server's input, or if the server is asked to end.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp import MCPError
from megatron_hcp import __version__
from megatron_hcp.ground.child import Child, run_child
from megatron_hcp.ground.errors import HcpError, error_json
from megatron_hcp.ground.secrets import without_secrets
from megatron_hcp.ground.visible import visible
from megatron_hcp.mcp.fit import fitted, parts_of
from megatron_hcp.mcp.intake import Wire
from megatron_hcp.mcp.prompts import PROMPTS
from megatron_hcp.mcp.summary import summary
from megatron_hcp.mcp.tools import TOOLS, Tool
from megatron_hcp.rules.registry import RULES
from megatron_hcp.skills.card import find_skill, read_skill_file, skill_dirs
from megatron_hcp.skills.skill import front_matter

TIMEOUT_S = 120
"""Seconds that one call may take."""
_AT_ONCE = 4
"""Calls that run at once: each is a process, and an agent may ask for many."""
_PAGE = 32
"""Resources per answer to a client that lists them."""
_SKILL, _RULE = "hcp://skills/", "hcp://rules/"
Context = ServerRequestContext[Any]


def ask(tool: Tool, given: dict[str, Any], is_stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Runs the tool's command and returns `{"exit_code", "answer"}`, with `"cut"` if the answer did not fit.

    Raises:
        HcpError: the arguments cannot be used, or the command printed no JSON, or took too long.
    """
    tool.refuse_wrong(given)
    # -P: do not import modules from the agent's working folder.
    python = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
    words = [*python, "-m", "megatron_hcp", *tool.words(given), *(["--format", "json"] if tool.prints_json else [])]
    try:
        done = run_child(words, input=str(given.get("text") or ""), timeout_s=TIMEOUT_S, is_stopped=is_stopped)
    except (OSError, ValueError) as error:  # a null byte in a word, or more of them than the system takes
        raise HcpError(f"{tool.name}: cannot be started ({error})", do="give a smaller input, as text") from None
    if done.status is None:
        ends = {
            "time": f"no answer after {TIMEOUT_S} s",
            "stopped": "the call was ended",
            "output": "an endless answer",
        }
        raise HcpError(f"{tool.name}: {ends[done.why]}", do="give a smaller input")
    try:
        answer = json.loads(done.stdout) if tool.prints_json else _rendered(done)
    except ValueError:
        said = (done.stderr.strip().splitlines() or ["hcp printed nothing"])[-1]
        raise HcpError(said.removeprefix("hcp: ")[:300]) from None
    answer, cut = fitted(answer, given.get("skip") or 0, main=tool.main, spare=tool.spare)
    return {"exit_code": done.status, "answer": answer, **({"cut": cut} if cut else {})}


def _rendered(done: Child) -> dict[str, Any]:
    """The job that was written. A site that lacks something is said in one line, and nothing is written.

    Raises:
        ValueError: nothing was written.
    """
    if not done.stdout:
        raise ValueError
    return {"schema": "hcp.rendered/1", "job": done.stdout.splitlines(), "notes": done.stderr.splitlines()}


class _Calls:
    """The calls that run: at most four at once, the others wait; all end together."""

    def __init__(self) -> None:
        self._limit = anyio.CapacityLimiter(_AT_ONCE)
        self._running: set[threading.Event] = set()

    async def run(self, tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
        """What `ask` returns; its process ends where this call is cancelled."""
        stopped = threading.Event()
        self._running.add(stopped)
        try:
            question = partial(ask, tool, given, stopped.is_set)
            return await anyio.to_thread.run_sync(question, abandon_on_cancel=True, limiter=self._limit)
        finally:
            stopped.set()
            self._running.discard(stopped)

    def end(self) -> None:
        """Ends those that run."""
        for stopped in tuple(self._running):
            stopped.set()


async def _list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    read_only = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=read_only,
        )
        for tool in TOOLS
    ]
    return types.ListToolsResult(tools=tools)


async def _call_tool(calls: _Calls, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = next((tool for tool in TOOLS if tool.name == params.name), None)
    try:
        if tool is None:
            raise HcpError(
                f"found no tool {without_secrets(params.name):.40}", wanted=", ".join(tool.name for tool in TOOLS)
            )
        result = await calls.run(tool, params.arguments or {})
    except HcpError as error:
        result = {"exit_code": 2, "answer": error_json(error)}
    return types.CallToolResult(
        content=[types.TextContent(text=summary(result))],
        structured_content=result,
        is_error=result["exit_code"] in (2, 3),
    )


def _refusal(error: HcpError) -> MCPError:
    """An error of the protocol: resources have no other."""
    found, wanted, do = map(without_secrets, (error.found, error.wanted, error.do))
    shown = HcpError(found, wanted=wanted, do=do, at=error.at)
    return MCPError(types.INVALID_PARAMS, without_secrets(visible(str(shown))), error_json(shown))


async def _list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    cursor = params.cursor if params is not None and params.cursor else "0"
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 6):
        raise _refusal(
            HcpError(f"found the cursor {without_secrets(cursor)[:60]!r}", wanted="one of an earlier answer")
        )
    skills = [
        types.Resource(
            uri=_SKILL + folder.name,
            name=folder.name,
            description=str(front_matter(folder)[0].get("description", "")),
            mime_type="text/markdown",
        )
        for folder in skill_dirs()
    ]
    rules = [
        types.Resource(uri=_RULE + rule.id, name=rule.id, description=rule.title, mime_type="application/json")
        for rule in RULES
    ]
    first, every = int(cursor), [*skills, *rules]
    more = str(first + _PAGE) if first + _PAGE < len(every) else None
    return types.ListResourcesResult(resources=every[first : first + _PAGE], next_cursor=more)


async def _read_resource(
    calls: _Calls, ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    try:
        if uri.startswith(_SKILL):
            text, kind = part_of_skill(uri), "text/markdown"
        else:
            rule = uri.removeprefix(_RULE)
            if rule not in {each.id for each in RULES}:
                raise HcpError(f"found no resource {without_secrets(uri)[:60]!r}", wanted=f"{_SKILL}NAME or {_RULE}ID")
            explain = next(tool for tool in TOOLS if tool.name == "explain")
            text, kind = json.dumps((await calls.run(explain, {"rule": rule}))["answer"]), "application/json"
    except HcpError as error:
        raise _refusal(error) from None
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=kind)])


async def _list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    prompts = [
        types.Prompt(
            name=one.name,
            description=one.description,
            arguments=[
                types.PromptArgument(name=name, description=about, required=True) for name, about in one.takes.items()
            ],
        )
        for one in PROMPTS
    ]
    return types.ListPromptsResult(prompts=prompts)


async def _get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    prompt = next((one for one in PROMPTS if one.name == params.name), None)
    try:
        if prompt is None:
            raise HcpError(
                f"found no prompt {without_secrets(params.name):.40}", wanted=", ".join(one.name for one in PROMPTS)
            )
        text = prompt.filled(params.arguments or {})
    except HcpError as error:
        raise _refusal(error) from None
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=prompt.description, messages=[message])


def part_of_skill(uri: str) -> str:
    """A file of a skill, or the part of it that fits an answer.

    Raises:
        HcpError: there is no such skill, file or part.
    """
    path, _, number = uri.removeprefix(_SKILL).partition("?part=")
    name, slash, reference = path.partition("/")
    if name not in {folder.name for folder in skill_dirs()}:
        raise HcpError(f"found no skill {without_secrets(name)[:60]!r}", wanted="one that resources/list names")
    parts = parts_of(read_skill_file(find_skill(name), reference if slash else "SKILL.md", "a file of the skill"))
    if (number or "1") not in map(str, range(1, len(parts) + 1)):
        raise HcpError(f"found part {without_secrets(number)[:20]!r}", wanted=f"1 to {len(parts)}")
    part = int(number or "1")
    more = f"\n(Part {part} of {len(parts)}: read {_SKILL}{path}?part={part + 1} for the next.)\n"
    return parts[part - 1] + (more if part < len(parts) else "")


def serve() -> None:
    """Serves the protocol on standard input and output until the client closes them.

    Raises:
        HcpError: an answer could not be written.
    """
    try:
        anyio.run(_serve)
    except Exception as error:
        raise _first(error) from None


def _first(error: BaseException) -> BaseException:
    """The error itself: of tasks that run beside each other, several come as a group."""
    inner = getattr(error, "exceptions", ())
    return _first(inner[0]) if inner else error


async def _serve() -> None:
    calls = _Calls()
    server: Server[Any] = Server(
        "hcp",
        version=__version__,
        instructions="Check a launch with context parallelism before it uses a cluster; plan its layout; find out why "
        "a job died. The skills are resources: hcp://skills/NAME.",
        on_list_tools=_list_tools,
        on_call_tool=partial(_call_tool, calls),
        on_list_resources=_list_resources,
        on_read_resource=partial(_read_resource, calls),
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
    )
    wire: Any = Wire(calls.end)
    try:
        async with stdio_server(wire, wire) as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())
    finally:
        calls.end()
