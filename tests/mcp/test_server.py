"""`hcp mcp` under a client of the official SDK: the answers are those of the command line, in the published schemas."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

jsonschema = pytest.importorskip("jsonschema")

LAUNCH = "model.context_parallel_size=16 model.cp_comm_type=a2a+p2p"


def with_server(cwd: Path, talk) -> Any:
    async def main() -> Any:
        server = StdioServerParameters(command=sys.executable, args=["-m", "hcp", "mcp"], cwd=cwd, env=dict(os.environ))
        async with stdio_client(server) as (reads, writes), mcp.ClientSession(reads, writes) as session:
            await session.initialize()
            return await talk(session)

    return anyio.run(main)


def test_a_client_of_the_sdk_finds_tools_asks_them_and_reads_resources(tmp_path: Path, hcp, root: Path) -> None:
    (tmp_path / "launch.txt").write_text(LAUNCH)
    log = root / "tests" / "triage" / "dead_job.log"

    async def talk(session: Any) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert {"check", "triage", "explain", "support", "plan"} == tools.keys()
        assert all(tool.annotations.read_only_hint for tool in tools.values())

        async def ask(name: str, **given: Any) -> Any:
            result = await session.call_tool(name, given)
            if not result.is_error:
                jsonschema.validate(result.structured_content, tools[name].output_schema)
                assert json.loads(result.content[0].text) == result.structured_content
            assert len(result.model_dump_json(exclude_none=True)) < 8_000
            return result

        by_path = await ask("check", path="launch.txt", assume=["te=2.14"])
        by_text = await ask("check", text=LAUNCH, assume=["te=2.14"])
        said = json.loads(hcp("check", "launch.txt", "--assume=te=2.14", "--format=json", cwd=tmp_path).stdout)
        assert by_path.structured_content["exit_code"] == 1
        assert by_path.structured_content["answer"]["findings"] == said["findings"]
        assert by_text.structured_content["answer"]["findings"][0]["rule"] == said["findings"][0]["rule"]

        dead = (await ask("triage", text=log.read_text())).structured_content
        assert dead["exit_code"] == 1 and dead["answer"]["first_failure"]
        rule = (await ask("explain", rule="HCP001")).structured_content["answer"]["rules"][0]
        assert rule["rule"] == "HCP001"

        config = str(root / "examples" / "llama3_8b_config.json")
        support = (await ask("support", model=config, tp="1,8", assume=["te=2.14"])).structured_content
        assert support["exit_code"] == 0 and support["answer"]["schema"] == "hcp.support/1"
        cluster = {"gpus": 16, "gpu": "h100", "seq_length": 32768, "global_batch": 16}
        plan = (await ask("plan", model=config, **cluster, top=1)).structured_content["answer"]
        assert plan["layouts"][0]["legal"] and plan["layouts"][0]["fits"]
        one = (await ask("plan", model=config, **cluster, layout="tp=2 cp=3")).structured_content
        assert one["exit_code"] == 0 and not one["answer"]["layouts"][0]["legal"]

        wrong: list[tuple[str, dict[str, Any], str]] = [
            ("check", {}, "wanted one of them"),
            ("check", {"path": "none.sh"}, "none.sh"),
            ("check", {"path": "--help"}, "./--help"),
            ("explain", {"rule": "--all"}, "wanted an id"),
            ("explain", {"rule": "HCP001", "folder": "x"}, "found folder"),
            ("check", {"text": "x", "skip": -1}, "whole number"),
        ]
        for name, given, words in wrong:
            result = await ask(name, **given)
            assert result.is_error and words in result.content[0].text, (name, given, result.content[0].text)

        names = {str(resource.uri) for resource in (await session.list_resources()).resources}
        assert {"hcp://rules/HCP001", "hcp://skills/hierarchical-context-parallel"} <= names
        skill = await session.read_resource("hcp://skills/hierarchical-context-parallel")
        assert skill.contents[0].text == (root / "skills/hierarchical-context-parallel/SKILL.md").read_text()
        with pytest.raises(mcp.MCPError):
            await session.read_resource("hcp://skills/../../etc/passwd")

    with_server(tmp_path, talk)


def test_without_the_extra_one_line_names_it(hcp, tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("raise ModuleNotFoundError(name='mcp')")
    done = hcp("mcp", env={"PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"]))})
    assert done.returncode == 2 and "extra [mcp]" in done.stderr and len(done.stderr.splitlines()) == 1
