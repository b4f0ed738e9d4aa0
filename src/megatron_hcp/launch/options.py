"""The options that state facts in addition to the launch: --assume and --facts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.ground.secrets import is_secret_name
from megatron_hcp.launch.coerce import coerce
from megatron_hcp.launch.dialects.table import FACTS
from megatron_hcp.launch.fact import Fact, Origin, Setting
from megatron_hcp.launch.facts.last_read import BRANCHES, of_package

_LONGEST = 100
_SHAPES = {
    "version": (r"v?\d[\w.+-]*", "a version such as 2.14"),
    "arch": (r"sm(5[023]|6[012]|7[025]|8[06789]|90|10[013]|110|12[01])[af]?", "a GPU architecture such as sm90"),
    "log_directory": (r"present|missing", "present or missing"),
    "placement": (r"(block|cyclic|plane|arbitrary)\S*", "block or cyclic"),
}
"""What a stated word must look like: a misspelled one would only leave rules undecided, or let them pass."""


def is_job_option(name: str) -> bool:
    """Whether a name states an option of sbatch or srun, as a launch writes it: `srun.container_mounts`."""
    return re.fullmatch(r"(sbatch|srun)\.[a-z][a-z_]*", name) is not None


def parse_assumptions(texts: Iterable[str]) -> dict[str, Fact]:
    """`NAME=VALUE` texts as assumed facts; a text may hold several, separated by spaces.

    >>> parse_assumptions(["te=2.14 nodes=2"])["nodes"].value
    2

    Raises:
        HcpError: no such fact (the closest name is suggested), or a value not of its type.
    """
    facts: dict[str, Fact] = {}
    for text in texts:
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise HcpError(f"found --assume {word[:60]!r}", wanted="NAME=VALUE", do="for example te=2.14")
            for fact, stated in of_branch(name, value).items():
                facts[fact] = stated_fact(fact, stated, "assumed", f"--assume {word[:60]}")
    return facts


def of_branch(name: str, value: Any) -> dict[str, Any]:
    """The facts that a stated one stands for: `mcore=main` is the version of Megatron-LM's branch main, and the branch.

    Other projects have no fact for their branch: their main's version is stated, or its code is named by --upstream.

    >>> of_branch("mcore", "main"), of_branch("te", "2.14")
    ({'mcore': '0.20.0', 'mcore_branch': 'main'}, {'te': '2.14'})
    """
    branch = of_package(name, value) if name == "mcore" and value in BRANCHES else None
    return {name: value} if branch is None else {name: branch.version, "mcore_branch": value}


def read_facts_file(path: str) -> dict[str, Fact]:
    """The facts in a JSON file of the schema `hcp.facts/1`, as `hcp facts` writes it.

    Raises:
        HcpError: no such file, another schema, an unknown fact, a value not of its type.
    """
    import json

    from megatron_hcp.launch.source import text_of_target

    name, text = text_of_target(path, lambda: b"", "facts as `hcp facts` writes them")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise HcpError(f"{name} is not JSON", wanted="facts as `hcp facts` writes them", do="write it again") from None
    facts = data.get("facts") if isinstance(data, dict) else None
    if not isinstance(facts, dict) or data.get("schema") != "hcp.facts/1":
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise HcpError(f"{name} has the schema {str(found)[:40]}", wanted="hcp.facts/1", do="write it with `hcp facts`")
    return {fact: _stored_fact(fact, entry, name) for fact, entry in facts.items()}


def _stored_fact(name: str, entry: Any, file: str) -> Fact:
    value = entry.get("value") if isinstance(entry, dict) else entry
    origin = entry.get("origin", "installed") if isinstance(entry, dict) else "installed"
    return stated_fact(name, value, "installed" if origin == "installed" else "assumed", file)


def stated_fact(name: str, value: Any, origin: Origin, where: str) -> Fact:
    """A stated value, converted to its fact's type; `where` is how an error begins.

    Raises:
        HcpError: there is no such fact (the closest name is suggested), or the value isn't of its type.
    """
    if name.startswith("env.") and len(name) > 4:
        if is_secret_name(name):
            raise HcpError(f"{where}: {name} is a credential", wanted="a setting that rules read", do="omit it")
        is_unset = value is None or (isinstance(value, str) and value.lower() in ("null", "none"))
        return Fact(None if is_unset else str(value), origin)
    if is_job_option(name):
        return Fact(str(value), origin)
    spec = FACTS.get(name)
    if spec is None:
        from difflib import get_close_matches

        near = get_close_matches(name, FACTS, n=1)
        do = f"did you mean {near[0]}?" if near else "`hcp facts --names all` lists them"
        raise HcpError(f"{where}: there is no fact {name[:40]!r}", wanted="one of hcp's fact names", do=do)
    fact = Fact(coerce(spec, Setting(name, value)), origin)
    shape = _SHAPES.get(spec.type if spec.type == "version" else name)
    word = fact.value
    if shape is not None and word is not None and (len(word) > _LONGEST or not re.fullmatch(shape[0], word)):
        raise HcpError(
            f"{where}: {name} is {fact.value[:60]!r}", wanted=shape[1], do="correct it and run the check again"
        )
    return fact
