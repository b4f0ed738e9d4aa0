"""The tree as tests see it: its modules, the rooms that they lie in, what each may import and does import."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "megatron_hcp"
MODULES = sorted(PACKAGE.rglob("*.py"))
ALL_MODULES = sorted(path for name in ("src", "tests", "checks", "lab") for path in (ROOT / name).rglob("*.py"))

CHAINS = (
    "ground <- core <- cost <- dcp <- bash <- launch <- validators <- rules <- judge <- "
    "plan support render triage skills backports dryrun <- project <- cli mcp <- lsp",
    "ground <- core <- cost <- dcp <- draw data <- cli",
    "ground <- core <- job <- render triage <- cli",
    "ground <- core <- cost <- dcp <- runtime <- proofs integrations <- pretend",
)
"""A room (a folder of src/megatron_hcp) imports itself and what is left of it in a chain; rooms side by side do not."""
INSIDE = {
    "launch": "fact hf_cache layer_pattern source this_machine <- comments facts images upstream <- coerce forms <- "
    "model_config <- dialects hf <- complete options <- edit <- readers recipes <- named_model <- build hidden <- load",
    "rules": "view <- rule <- upstream <- cp <- dcp hcp pipe <- loss topo verl <- * <- registry",
}
"""The same for the folders and modules inside a room; `*` stands for those that are not named."""
FOR_ALL = {"megatron_hcp", "megatron_hcp.resources"}
"""The modules at the root that every room may import."""
WITH_TORCH = {"runtime", "proofs", "integrations", "pretend"}
HEAVY = {"torch", "megatron", "tensordict", "einops", "transformer_engine"}
MAX_LINES, MAX_RULE_LINES, MAX_MODULES = 300, 80, 22
FLAT = {Path("checks"), Path("lab"), Path("tests/support")}
"""Folders of programs and helpers that are named one by one, and so are not divided."""
TESTS_OF_OTHER_FOLDERS = {"docs", "lab", "checks", "support"}
"""Folders of tests/ that mirror no room: those of lab/, checks/ and docs/, and what tests share."""
TESTED_FROM_ABOVE = {
    "bash/parser": "bash/test_parser.py, by what it parses",
    "cli/reports": "cli/, by what commands print",
    "launch/forms": "launch/forms/, by its folders",
    "launch/forms/kubernetes": "launch/readers/test_kubernetes.py, by the launches in manifests",
    "pretend/real": "dryrun/test_step.py, by what a step in real arithmetic gives",
    "pretend/stand_ins": "pretend/test_seeded_faults.py, by a fault sown in each",
    "pretend/stand_ins/frameworks": "pretend/test_seeded_faults.py, by a fault sown in each",
    "support": "cli/test_support.py, by what the command prints: tests/support holds what tests share",
    "triage/signatures": "triage/test_signatures.py, by the rows of the table",
    "triage/signatures/cp": "triage/test_signatures.py, by the rows of the table",
}
"""Rooms without a folder of tests, and where in tests/ theirs are."""


def rooms(chains: tuple[str, ...] = CHAINS) -> dict[str, set[str]]:
    """Each room, and the rooms that it may import."""
    allowed: dict[str, set[str]] = defaultdict(set)
    for chain in chains:
        left: set[str] = set()
        for level in chain.split(" <- "):
            for room in level.split():
                allowed[room] |= {room} | left
            left |= set(level.split())
    return dict(allowed)


def name_of(path: Path) -> str:
    """`megatron_hcp.core.ranks` for its file; a package is named for its folder."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


OURS = {name_of(path) for path in MODULES}


def room_of(module: str) -> str:
    """The room that a module of hcp lies in; empty for those at the root."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""


def part_of(module: str) -> str:
    """The folder or module of its room that a module is, or lies in."""
    return ".".join(module.split(".")[2:3])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> frozenset[str]:
    """Every module that a file imports, also inside functions and for type checkers alone."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & OURS
            if not names <= OURS:
                found.add(node.module)
    return frozenset(found)


@cache
def parts_of(room: str) -> dict[str, set[str]]:
    """Each folder and module of a room in INSIDE, and those of the room that it may import."""
    chain = INSIDE[room]
    others = {part_of(module) for module in OURS if room_of(module) == room} - {"", *chain.split()}
    return rooms((chain.replace("*", " ".join(sorted(others))),))


def wrong_imports(module: str, names: frozenset[str]) -> set[str]:
    """Those of the imported modules that a module of hcp may not import."""
    room, part = room_of(module), part_of(module)
    allowed = rooms().get(room, set())
    ours = {name for name in names if name.partition(".")[0] == "megatron_hcp"} - FOR_ALL
    wrong = {name for name in ours if room_of(name) not in allowed}
    if room in INSIDE and part:
        left = parts_of(room).get(part, set())
        wrong |= {name for name in ours if room_of(name) == room and part_of(name) not in left}
    return wrong


def circles_in(graph: dict[str, set[str]]) -> list[str]:
    """The circles of a graph (a module, and what it imports): each is opened at one place, to find the next."""
    left = {module: names - {module} for module, names in graph.items()}
    circles: list[str] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
            return circles
        except CycleError as error:
            circle = error.args[1]
            circles.append(" <- ".join(circle))
            left[circle[1]].discard(circle[0])
