"""Transformer Engine's own rule for "how many ranks share this attention", taken from its source.

Three classes work cp_size and context_parallel out of cp_group, in a few lines each, and everything else follows from
them: DotProductAttention.forward chooses the backend, FlashAttention and FusedAttention call the context-parallel code
or don't. Those lines are cut out of a given version's source by their structure and run here, without Transformer
Engine: so the answer about a module's cp_group is what that version would decide.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from megatron_hcp.ground.errors import HcpError

_FOLDER = "pytorch/attention/dot_product_attention"
SOURCES = {
    "DotProductAttention": f"{_FOLDER}/dot_product_attention.py",
    "FlashAttention": f"{_FOLDER}/backends.py",
    "FusedAttention": f"{_FOLDER}/backends.py",
}
"""Where the classes are inside the package transformer_engine, since 2.4."""
OLD_SOURCE = "pytorch/attention.py"
"""Where all of them are before 2.4."""


class Decision(NamedTuple):
    """What Transformer Engine makes of a module's cp_group."""

    cp_size: int
    is_context_parallel: bool


def load_te_rule(package: Path) -> Callable[[Any], Decision]:
    """The rule of one Transformer Engine version, as a function of a module with the attribute cp_group.

    Args:
        package: a folder `transformer_engine`, or the folder that holds it.

    Raises:
        HcpError: there is no such source, or a class decides differently from the versions known here.
    """
    if (package / "transformer_engine").is_dir():
        package = package / "transformer_engine"
    rules = [_rule_of(package, name) for name in SOURCES]

    def decide(module: Any) -> Decision:
        decisions = [rule(module, module.cp_group) for rule in rules]
        assert all(decision == decisions[0] for decision in decisions), f"{package}: the classes differ: {decisions}"
        return Decision(*decisions[0])

    return decide


def installed_te() -> Path | None:
    """The folder of the installed Transformer Engine, found without importing it; None if there is none."""
    spec = importlib.util.find_spec("transformer_engine")
    return Path(spec.origin).parent if spec and spec.origin else None


def _rule_of(package: Path, name: str) -> Callable[[Any, Any], tuple[int, bool]]:
    source = next((package / path for path in (SOURCES[name], OLD_SOURCE) if (package / path).is_file()), None)
    if source is None:
        raise HcpError(f"{package}: no source of {name}:", wanted="a folder transformer_engine, as in the wheel")
    statements = next(_deciding_statements(_parsed(source), name), None)
    if statements is None:
        raise HcpError(f"{source}: {name}.forward does not derive cp_size from cp_group in a way known here")
    scope: dict[str, Any] = {
        # pytorch/constants.py and pytorch/distributed.py define these names like this in every version up to 2.20.
        "dist_group_type": dist.ProcessGroup,
        "get_distributed_world_size": lambda group: dist.get_world_size(group),
    }
    exec(compile(ast.fix_missing_locations(_as_function(statements)), str(source), "exec"), scope)
    return scope["decide"]  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def _deciding_statements(tree: ast.Module, name: str) -> Iterator[list[ast.stmt]]:
    """From `cp_size = 1` to `context_parallel = …`, in the class's forward."""
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and cls.name == name:
            for function in cls.body:
                if isinstance(function, ast.FunctionDef) and function.name == "forward":
                    yield from filter(None, (_run_between(getattr(node, "body", None)) for node in ast.walk(function)))


def _run_between(body: Any) -> list[ast.stmt] | None:
    if not isinstance(body, list):
        return None
    targets = [
        node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
        for node in body
    ]
    if "cp_size" not in targets or "context_parallel" not in targets:
        return None
    return body[targets.index("cp_size") : targets.index("context_parallel") + 1]


def _as_function(statements: list[ast.stmt]) -> ast.Module:
    module = ast.parse("def decide(self, cp_group):\n    return cp_size, context_parallel")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = [*statements, *function.body]
    return module
