"""The server: it runs `hcp` itself for each question, so that its answers are those of the command line.

Each question runs in its own process, so it can neither stop the server nor write to the protocol's streams.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from megatron_hcp import __version__
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.visible import visible
from megatron_hcp.mcp.fit import fitted, parts_of
from megatron_hcp.mcp.tools import TOOLS, Tool
from megatron_hcp.rules.registry import RULES
from megatron_hcp.skills.card import find_skill, read_skill_file, skill_dirs
from megatron_hcp.skills.skill import front_matter

_TIMEOUT_S = 120
_PAGE = 40
"""Resources per answer to a client that lists them."""
_SKILL, _RULE = "hcp://skills/", "hcp://rules/"
Context = ServerRequestContext[Any]


def ask(tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
    """Runs the tool's command and returns `{"exit_code", "answer"}`, with `"cut"` if the answer did not fit.

    Raises:
        HcpError: the arguments cannot be used, or the command printed no JSON.
    """
    tool.refuse_wrong(given)
    # -P: do not import modules from the agent's working folder.
    python = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
    done = subprocess.run(
        [*python, "-m", "megatron_hcp", *tool.words(given), "--format", "json"],
        input=str(given.get("text") or ""), capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise HcpError((done.stderr.strip().splitlines() or ["hcp printed nothing"])[-1][:300]) from None
    answer, cut = fitted(answer, given.get("skip") or 0, main=tool.main, spare=tool.spare)
    return {"exit_code": done.returncode, "answer": answer, **({"cut": cut} if cut else {})}


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


async def _call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = next((tool for tool in TOOLS if tool.name == params.name), None)
    try:
        if tool is None:
            raise HcpError(f"found no tool {params.name:.40}", wanted=", ".join(tool.name for tool in TOOLS))
        result = await anyio.to_thread.run_sync(ask, tool, params.arguments or {}, abandon_on_cancel=True)
    except HcpError as error:
        return _failed(str(error))
    except subprocess.TimeoutExpired:
        return _failed(f"{params.name}: no answer after {_TIMEOUT_S} s; give a smaller input")
    text = json.dumps(result, separators=(",", ":"))
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=result, is_error=result["exit_code"] in (2, 3)
    )


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=visible(text))], is_error=True)


async def _list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    cursor = params.cursor if params is not None and params.cursor else "0"
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 6):
        raise ValueError(f"found cursor {cursor[:60]!r}; wanted one of an earlier answer")
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


async def _read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    if uri.startswith(_SKILL):
        path, _, number = uri.removeprefix(_SKILL).partition("?part=")
        name, slash, reference = path.partition("/")
        if name not in {folder.name for folder in skill_dirs()}:
            raise ValueError(f"found no skill {name[:60]!r}")
        text = read_skill_file(find_skill(name), reference if slash else "SKILL.md", "a file of the skill")
        parts = parts_of(text)
        if (number or "1") not in map(str, range(1, len(parts) + 1)):
            raise ValueError(f"found part {number[:20]!r}; wanted 1 to {len(parts)}")
        part = int(number or "1")
        text = parts[part - 1]
        if part < len(parts):
            text += f"\n(Part {part} of {len(parts)}: read {_SKILL}{path}?part={part + 1} for the next.)\n"
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, text=text, mime_type="text/markdown")]
        )
    rule = uri.removeprefix(_RULE)
    if rule not in {each.id for each in RULES}:
        raise ValueError(f"found no resource {uri[:60]!r}; wanted {_SKILL}NAME or {_RULE}ID")
    explain = next(tool for tool in TOOLS if tool.name == "explain")
    result = await anyio.to_thread.run_sync(ask, explain, {"rule": rule})
    contents = types.TextResourceContents(uri=uri, text=json.dumps(result["answer"]), mime_type="application/json")
    return types.ReadResourceResult(contents=[contents])


def serve() -> None:
    """Serves the protocol on standard input and output until the client closes them."""
    server: Server[Any] = Server(
        "hcp",
        version=__version__,
        instructions="Check a launch with context parallelism before it uses a cluster; plan its layout; find out why "
        "a job died. The skills are resources: hcp://skills/NAME.",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )

    async def main() -> None:
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    anyio.run(main)
