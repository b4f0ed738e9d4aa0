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
import mcp_types as types  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

from megatron_hcp.rules.registry import RULES  # noqa: E402

jsonschema = pytest.importorskip("jsonschema")

pytestmark = pytest.mark.slow

LAUNCH = "model.context_parallel_size=16 model.cp_comm_type=a2a+p2p"


def with_server(cwd: Path, talk) -> Any:
    async def main() -> Any:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "megatron_hcp", "mcp"], cwd=cwd, env=dict(os.environ)
        )
        async with stdio_client(server) as (reads, writes), mcp.ClientSession(reads, writes) as session:
            await session.initialize()
            return await talk(session)

    return anyio.run(main)


def test_a_client_of_the_sdk_finds_tools_asks_them_and_reads_resources(tmp_path: Path, hcp, root: Path) -> None:
    (tmp_path / "launch.txt").write_text(LAUNCH)
    (tmp_path / "empty").mkdir()
    (tmp_path / "job.sbatch").write_text((root / "examples" / "mlm_hcp.sbatch").read_text())
    log = root / "tests" / "triage" / "dead_job.log"

    async def talk(session: Any) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert {"check", "triage", "explain", "support", "plan", "render", "dcp_plan"} == tools.keys()
        assert all(tool.annotations.read_only_hint for tool in tools.values())

        async def ask(name: str, **given: Any) -> Any:
            result = await session.call_tool(name, given)
            if not result.is_error:
                jsonschema.validate(result.structured_content, tools[name].output_schema)
            assert 0 < len(result.content[0].text) <= 1_500
            assert len(result.model_dump_json(exclude_none=True)) < 8_000
            return result

        by_path = await ask("check", path="launch.txt", assume=["te=2.14"])
        by_text = await ask("check", text=LAUNCH, assume=["te=2.14"])
        said = json.loads(
            hcp("check", "launch.txt", "--assume=te=2.14", "--format=json", "--full", cwd=tmp_path).stdout
        )
        assert by_path.structured_content["exit_code"] == 1
        assert all(finding["rule"] in by_path.content[0].text for finding in said["findings"])
        assert by_path.structured_content["answer"]["findings"] == said["findings"]
        assert by_text.structured_content["answer"]["findings"][0]["rule"] == said["findings"][0]["rule"]

        dead = (await ask("triage", text=log.read_text())).structured_content
        assert dead["exit_code"] == 1 and dead["answer"]["first_failure"]
        rule = (await ask("explain", rule="HCP001")).structured_content["answer"]["rules"][0]
        assert rule["rule"] == "HCP001"

        config = str(root / "examples" / "llama3_8b_config.json")
        recipe = (await ask("check", recipe="llama3_8b_pretrain_config", assume=["bridge=0.6.2"])).structured_content
        assert recipe["answer"]["target"]["name"].endswith("llama3_8b_pretrain_config")

        support = (await ask("support", model=config, tp="1,8", assume=["te=2.14"])).structured_content
        assert support["exit_code"] == 0 and support["answer"]["schema"] == "hcp.support/1"
        cluster = {"gpus": 16, "gpu": "h100", "seq_length": 32768, "global_batch": 16}
        plan = (await ask("plan", model=config, **cluster, top=1)).structured_content["answer"]
        assert plan["layouts"][0]["legal"] and plan["layouts"][0]["fits"]
        one = (await ask("plan", model=config, **cluster, layout="tp=2 cp=3")).structured_content
        assert one["exit_code"] == 0 and not one["answer"]["layouts"][0]["legal"]

        job = await ask("render", path="job.sbatch", site=["nodes=2", "gpus_per_node=8"])
        assert job.structured_content["exit_code"] == 0, job.content[0].text
        assert job.structured_content["answer"]["job"][0] == "#!/bin/bash"
        lengths = (await ask("dcp_plan", world_size=8, max_seqlen=1024, lengths=[3000, 900, 800])).structured_content
        assert lengths["answer"]["schema"] == "hcp.dcp-plan/2"

        wrong: list[tuple[str, dict[str, Any], str]] = [
            ("check", {}, "wanted one of them"),
            ("check", {"path": "none.sh"}, "none.sh"),
            ("check", {"path": "--help"}, "./--help"),
            ("explain", {"rule": "all rules"}, "wanted an id"),
            ("explain", {"rule": "HCP001", "folder": "x"}, "found folder"),
            ("check", {"text": "x", "skip": -1}, "skip: found int -1"),
            ("check", {"text": ["x"]}, "text: found list"),
            ("check", {"path": 5}, "path: found int 5; wanted string"),
            ("check", {"path": "a\0b"}, "wanted string"),
            ("check", {"path": str(tmp_path / "empty")}, "found no launch in"),
            ("render", {"path": "job.sbatch", "site": ["output=/etc/x"]}, "a name of the site file"),
            ("render", {"path": "job.sbatch", "site": ["submit=1"]}, "a name of the site file"),
            ("render", {"path": "launch.txt"}, "not stated: start"),
            ("dcp_plan", {"world_size": 8, "max_seqlen": 1024}, "both or neither"),
            ("check", {"path": "/dev/zero"}, "is too large"),
            ("check", {"text": "x" * 1_000_001}, "found more than 1,000,000 bytes"),
            ("check", {"text": "x", "assume": "te=2"}, "assume: found str 'te=2'; wanted array"),
            ("check", {"path": "launch.txt", "assume": ["--diff"]}, "NAME=VALUE"),
            ("plan", {"model": config}, "found no gpus, gpu, seq_length, global_batch"),
            ("plan", {**cluster, "model": config, "gpus": True}, "gpus: found bool"),
            ("plan", {**cluster, "model": config, "precision": "fp4"}, "precision: found str 'fp4'"),
            ("explain", {"rule": "HCP999"}, "no rule 'HCP999'"),
            ("nothing", {}, "found no tool nothing"),
        ]
        for name, given, words in wrong:
            result = await ask(name, **given)
            error = result.structured_content["answer"]["error"]
            said = f"found {error['found']}; wanted {error['expected']}; {error['do']}"
            jsonschema.validate(result.structured_content, tools[name].output_schema if name in tools else {})
            assert result.is_error and words in said, (name, given, said)

    with_server(tmp_path, talk)


def test_answers_that_would_be_long_are_cut_with_a_note(tmp_path: Path, root: Path) -> None:
    """Each is longer than 8 kB by itself; what matters most is kept, and the rest can be had."""
    overrides = (root / "examples" / "bridge_overrides.txt").read_text()
    config = str(root / "examples" / "llama3_8b_config.json")
    cluster = {"gpus": 64, "gpu": "h100", "seq_length": 131072, "global_batch": 64, "top": 5}

    async def talk(session: Any) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}

        async def ask(name: str, **given: Any) -> dict[str, Any]:
            result = await session.call_tool(name, given)
            assert len(result.model_dump_json(exclude_none=True)) < 8_000
            jsonschema.validate(result.structured_content, tools[name].output_schema)
            return result.structured_content

        launch = await ask("check", text=overrides)
        assert launch["answer"]["findings"][0]["rule"] == "HCP001"
        layouts, skip = [], 0
        while True:
            found = await ask("plan", model=config, **cluster, skip=skip)
            layouts += [json.dumps(layout["layout"]) for layout in found["answer"]["layouts"]]
            skip = len(layouts)
            if not any(note.startswith("layouts") and "ask again" in note for note in found.get("cut", ())):
                break
        whole = await ask("plan", model=config, **{**cluster, "top": 1})
        assert (
            skip > 3 and len(set(layouts)) == skip and json.dumps(whole["answer"]["layouts"][0]["layout"]) == layouts[0]
        )
        table = await ask("support", model=config)
        assert table["answer"]["cells"]
        script = (root / "examples" / "mlm_hcp.sbatch").read_text()
        job = await ask("render", text=script, site=["nodes=2", "gpus_per_node=8"])
        assert any(note.startswith("job") and "ask again with skip=" in note for note in job["cut"])

    with_server(tmp_path, talk)


def test_rules_and_skills_are_resources_in_parts_that_fit(tmp_path: Path, root: Path) -> None:
    async def talk(session: Any) -> None:
        names: list[str] = []
        cursor = None
        while cursor or not names:
            page = await session.list_resources(params=types.PaginatedRequestParams(cursor=cursor))
            assert len(page.model_dump_json(exclude_none=True)) < 8_000
            names += [str(resource.uri) for resource in page.resources]
            cursor = page.next_cursor
        skills = sorted(path.parent.name for path in root.glob("skills/*/SKILL.md"))
        rules = [rule.id for rule in RULES]
        assert names == [*(f"hcp://skills/{name}" for name in skills), *(f"hcp://rules/{name}" for name in rules)]
        for name in skills:
            uri, text, parts = f"hcp://skills/{name}", "", 0
            while uri:
                result = await session.read_resource(uri)
                assert len(result.model_dump_json(exclude_none=True)) < 8_000
                part, note, rest = result.contents[0].text.partition("\n(Part ")
                text, parts = text + part, parts + 1
                uri = rest.partition("read ")[2].partition(" for")[0] if note else ""
            whole = (root / "skills" / name / "SKILL.md").read_text()
            assert text == whole and (parts > 1) == (len(whole) > 7_500), (name, parts)
        for name in ("HCP001", "KNOWN001"):
            rule = await session.read_resource(f"hcp://rules/{name}")
            assert json.loads(rule.contents[0].text)["rules"][0]["rule"] == name
        for uri in ("hcp://skills/../../etc/passwd", f"hcp://skills/{skills[0]}?part=99", "hcp://rules/NO1", "x://y"):
            with pytest.raises(mcp.MCPError) as refused:
                await session.read_resource(uri)
            assert refused.value.data["schema"] == "hcp.error/1"
        with pytest.raises(mcp.MCPError):
            await session.list_resources(params=types.PaginatedRequestParams(cursor="-1"))

    with_server(tmp_path, talk)


def test_a_resource_of_a_skill_never_leads_out_of_its_folder(tmp_path: Path, root: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("a planted secret")
    up = "/".join([".."] * 40)
    names = [f"/{secret}", f"{up}{secret}", f"references/{up}{secret}", f"./{secret}", ""]
    names += ["/proc/self/environ", "references/%2e%2e/SKILL.md", "SKILL.md\0", "references"]

    async def talk(session: Any) -> None:
        skill = min(path.parent.name for path in root.glob("skills/*/SKILL.md"))
        for name in names:
            with pytest.raises(mcp.MCPError) as refused:
                await session.read_resource(f"hcp://skills/{skill}/{name}")
            assert "planted" not in str(refused.value), name
        reference = min(path.name for path in (root / "skills" / skill / "references").glob("*.md"))
        result = await session.read_resource(f"hcp://skills/{skill}/references/{reference}")
        assert result.contents[0].text

    with_server(tmp_path, talk)


def test_prompts_for_the_usual_jobs_name_the_tools(tmp_path: Path) -> None:
    async def talk(session: Any) -> None:
        prompts = {prompt.name: prompt for prompt in (await session.list_prompts()).prompts}
        assert {"check_launch", "plan_layout", "explain_failure"} == prompts.keys()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        for name, prompt in prompts.items():
            given = {argument.name: "x/y {z}" for argument in prompt.arguments}
            text = (await session.get_prompt(name, given)).messages[0].content.text
            assert "x/y {z}" in text and any(f"`{tool}`" in text for tool in tools)
        for name, given in (("check_launch", {}), ("check_launch", {"path": "x" * 9_999}), ("none", {})):
            with pytest.raises(mcp.MCPError) as refused:
                await session.get_prompt(name, given)
            assert refused.value.data["schema"] == "hcp.error/1"

    with_server(tmp_path, talk)
