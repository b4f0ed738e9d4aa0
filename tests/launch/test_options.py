"""--assume and --facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.facts.last_read import of_package
from megatron_hcp.launch.options import parse_assumptions, read_facts_file
from megatron_hcp.launch.this_machine import machine_facts


def test_assumptions_have_the_types_of_their_facts() -> None:
    read = parse_assumptions(["te=2.14 nodes=2", "hcp_sizes=8,2", "einops=true", "env.NVTE_FUSED_ATTN=0", "vpp=null"])
    values = {name: fact.value for name, fact in read.items()}
    assert values == {
        "te": "2.14",
        "nodes": 2,
        "hcp_sizes": (8, 2),
        "einops": True,
        "env.NVTE_FUSED_ATTN": "0",
        "vpp": None,
    }
    assert {fact.origin for fact in read.values()} == {"assumed"}


def test_a_branch_is_stated_as_a_version_is() -> None:
    read = {name: fact.value for name, fact in parse_assumptions(["mcore=dev"]).items()}
    dev = of_package("mcore", "dev")
    assert dev is not None and read == {"mcore": dev.version, "mcore_branch": "dev"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slime=main", "wanted a version such as 2.14"),  # no fact says which branch it is
        ("mcore=trunk", "wanted a version such as 2.14"),
        ("nodez=2", "did you mean nodes?"),
        ("xyzzy=2", "there is no fact 'xyzzy'"),
        ("nodes", "wanted NAME=VALUE"),
        ("te=new", "wanted a version such as 2.14"),
        ("arch=h100", "such as sm90"),
        ("arch=sm42", "such as sm90"),
        ("log_directory=nonsense", "wanted present or missing"),
        ("srun.container-mounts=/a:/a", "there is no fact 'srun.container-mounts'"),
        ("placement=blok", "block or cyclic"),
        ("nodes=two", "wanted a whole number"),
        ("nodes=0", "at least 1"),
        ("=1", "wanted NAME=VALUE"),
    ],
)
def test_an_assumption_that_cannot_be_used_is_one_line(text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        parse_assumptions([text])
    assert said in str(error.value)


def test_an_option_of_srun_or_sbatch_is_stated_as_a_launch_writes_it() -> None:
    read = parse_assumptions(["srun.container_mounts=/a:/a,/b:/b sbatch.signal=TERM@300"])
    assert {name: fact.value for name, fact in read.items()} == {
        "srun.container_mounts": "/a:/a,/b:/b",
        "sbatch.signal": "TERM@300",
    }


def facts_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "facts.json"
    path.write_text(text)
    return path


def test_what_hcp_facts_writes_comes_back(tmp_path: Path) -> None:
    known = machine_facts()
    data = {"schema": "hcp.facts/1", "facts": {n: {"value": v, "origin": "installed"} for n, v in known.items()}}
    read = read_facts_file(str(facts_file(tmp_path, json.dumps(data))))
    assert {name: fact.value for name, fact in read.items()} == known and set(known) <= set(FACTS)
    assert {fact.origin for fact in read.values()} <= {"installed"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "wanted hcp.facts/1"),
        ('{"schema": "hcp.check/1", "facts": {}}', "hcp.check/1"),
        ('{"schema": "hcp.facts/1"}', "wanted hcp.facts/1"),
        ("[" * 100_000, "is not JSON"),
        ('{"schema": "hcp.facts/1", "facts": {"tee": {"value": "2"}}}', "there is no fact 'tee'"),
        ('{"schema": "hcp.facts/1", "facts": {"nodes": {"value": "x"}}}', "wanted a whole number"),
    ],
)
def test_a_facts_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        read_facts_file(str(facts_file(tmp_path, text)))
    assert said in str(error.value) and "\n" not in str(error.value)
