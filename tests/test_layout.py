"""The structure of the tree: layers, no import circles, small modules, one name for each class, rules by prefix.

The layers are those of CHAINS; AGENTS.md says what lies in each.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.rows import rows

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "megatron_hcp"
MODULES = sorted(PACKAGE.rglob("*.py"))
ALL_MODULES = sorted(path for name in ("src", "tests", "checks", "lab") for path in (ROOT / name).rglob("*.py"))

CHAINS = (
    "ground <- core <- cost <- dcp <- bash <- launch <- rules <- judge <- "
    "plan support render triage skills backports <- cli mcp",
    "ground <- core <- cost <- dcp <- draw data <- cli",
    "ground <- core <- cost <- dcp <- runtime <- proofs integrations",
)
"""A room (a folder of src/megatron_hcp) imports itself and what is left of it in a chain; rooms side by side do not."""
RULES_CHAIN = "view <- rule <- upstream <- cp <- dcp hcp pipe <- loss topo verl <- * <- registry"
"""The same of the rooms of rules/, its folders and files; `*` stands for the families that no other one imports."""
INSIDE = {
    "launch": "fact hf_cache layer_pattern source this_machine <- comments facts <- coerce forms <- dialects hf <- "
    "complete options <- edit <- readers recipes <- named_model <- build hidden <- load",
}
"""The same for the folders and modules inside a room."""
FOR_ALL = {"megatron_hcp", "megatron_hcp.resources"}
"""The modules at the root that every room may import."""
WITH_TORCH = {"runtime", "proofs", "integrations"}
HEAVY = {"torch", "megatron", "tensordict", "einops", "transformer_engine"}
MAX_LINES, MAX_RULE_LINES, MAX_MODULES = 300, 80, 22
FLAT = {Path("checks"), Path("lab"), Path("tests/support")}
"""Folders of programs and helpers that are named one by one, and so are not divided."""
TESTS_OF_OTHER_FOLDERS = {"docs", "lab", "checks", "support"}
"""Folders of tests/ that mirror no room: those of lab/, checks/ and docs/, and what tests share."""
TESTED_FROM_ABOVE = {
    "bash/parser": "bash/test_parser.py, by what it parses",
    "cli/reports": "cli/, by what commands print",
    "judge": "rules/test_rules_on_any_launch.py, by what it makes of every rule",
    "launch/forms": "launch/forms/, by its folders",
    "launch/forms/kubernetes": "launch/readers/test_kubernetes.py, by the launches in manifests",
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


def wrong_imports(module: str, names: frozenset[str]) -> set[str]:
    """Those of the imported modules that a module of hcp may not import."""
    allowed = rooms().get(room_of(module), set())
    ours = {name for name in names if name.partition(".")[0] == "megatron_hcp"} - FOR_ALL
    wrong = {name for name in ours if room_of(name) not in allowed}
    if room_of(module) not in INSIDE or not part_of(module):
        return wrong
    left = rooms((INSIDE[room_of(module)],)).get(part_of(module), set())
    return wrong | {name for name in ours if room_of(name) == room_of(module) and part_of(name) not in left}


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


each_module = rows("path", MODULES)


@each_module
def test_imports_point_to_the_left_only(path: Path) -> None:
    if name_of(path) == "megatron_hcp.__main__":
        assert imported(path) >= {"megatron_hcp.cli.main"}
    else:
        assert wrong_imports(name_of(path), imported(path)) == set()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("megatron_hcp.core.ranks", "megatron_hcp.launch.fact"),
        ("megatron_hcp.core.ranks", "megatron_hcp.resources.more"),
        ("megatron_hcp.triage.read", "megatron_hcp.render.job"),
        ("megatron_hcp.draw.groups", "megatron_hcp.rules.rule"),
        ("megatron_hcp.runtime.groups", "megatron_hcp.proofs.world"),
        ("megatron_hcp.skills.card", "megatron_hcp.cli.verify"),
        ("megatron_hcp.cli.verify", "megatron_hcp.proofs.world"),
        ("megatron_hcp.launch.forms.words.split", "megatron_hcp.launch.dialects.table"),
    ],
)
def test_an_upward_arrow_is_seen(module: str, name: str) -> None:
    assert wrong_imports(module, frozenset((name, "megatron_hcp.ground.errors", "megatron_hcp", "json"))) == {name}


def test_families_of_rules_import_to_the_left_only() -> None:
    levels = [level.split() for level in RULES_CHAIN.split(" <- ")]
    place = {room: number for number, level in enumerate(levels) for room in level}
    upward = []
    for path in (PACKAGE / "rules").rglob("*.py"):
        here = name_of(path).split(".")[2:3]
        for name in imported(path):
            there = name.split(".")[2:3] if name.startswith("megatron_hcp.rules.") else []
            if here and there and here != there and place.get(there[0], place["*"]) >= place.get(here[0], place["*"]):
                upward.append(f"{name_of(path)} imports {name}")
    assert upward == []


def test_every_folder_is_a_room() -> None:
    assert {room_of(name_of(path)) for path in MODULES} - {""} <= rooms().keys()


def test_no_modules_import_each_other() -> None:
    circles = circles_in({name_of(path): set(imported(path)) for path in MODULES})
    assert not circles, "\n".join(circles)


def test_a_circle_is_seen() -> None:
    assert circles_in({"a": {"b", "json"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"f", "e"}}) in (
        ["a <- c <- b <- a", "d <- e <- d"],
        ["d <- e <- d", "a <- c <- b <- a"],
    )


@each_module
def test_torch_is_imported_where_a_training_job_or_a_proof_runs(path: Path) -> None:
    heavy = {name.partition(".")[0] for name in imported(path)} & HEAVY
    assert not heavy or room_of(name_of(path)) in WITH_TORCH


def test_core_imports_the_standard_library_only() -> None:
    core = [path for path in MODULES if room_of(name_of(path)) == "core"]
    assert {name.partition(".")[0] for path in core for name in imported(path)} <= {
        *sys.stdlib_module_names,
        "megatron_hcp",
    }


def test_modules_and_folders_stay_within_their_budget() -> None:
    lines = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in ALL_MODULES}
    long = [f"{path} has {number} lines" for path, number in lines.items() if number > MAX_LINES]
    modules = Counter(path.parent for path in lines if path.parent not in FLAT)
    full = [f"{folder} has {number} modules" for folder, number in modules.items() if number > MAX_MODULES]
    assert not long + full, "\n".join(long + full)


def test_a_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    shared = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not shared, "\n".join(shared)


def written_rules() -> Iterator[tuple[str, Path, int]]:
    """Each rule's id, its file, and its lines from the decorator to the end of the check, or those of its row."""
    for path in (PACKAGE / "rules").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Known" and node.end_lineno:
                yield ast.literal_eval(node.args[0]), path, node.end_lineno - node.lineno + 1
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("._replace") and node.end_lineno:
                for keyword in node.keywords:  # a row that differs from another in a few places
                    if keyword.arg == "id":
                        yield ast.literal_eval(keyword.value), path, node.end_lineno - node.lineno + 1
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "rule":
                        yield ast.literal_eval(decorator.args[0]), path, node.end_lineno - decorator.lineno + 1


def test_a_rule_stays_within_its_budget() -> None:
    assert {name: lines for name, _, lines in written_rules() if lines > MAX_RULE_LINES} == {}


def test_a_rule_lies_in_the_folder_or_file_of_its_prefix() -> None:
    from megatron_hcp.rules.registry import RULES

    assert sorted(name for name, _, _ in written_rules()) == [rule.id for rule in RULES]
    for name, path, _ in written_rules():
        prefix = name.rstrip("0123456789").lower()
        place = path.relative_to(PACKAGE / "rules")
        assert prefix in (place.parts[0], place.stem), f"{name} is in {place}"


def test_the_tests_mirror_the_tree() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path(".")}
    mirrored = {path.relative_to(PACKAGE).with_suffix("") for path in [*MODULES, *PACKAGE.rglob("*/")]}
    assert {folder for folder in folders - mirrored if folder.parts[0] not in TESTS_OF_OTHER_FOLDERS} == set()
    with_modules = {path.parent.relative_to(PACKAGE) for path in MODULES} - {Path(".")}
    assert {room.as_posix() for room in with_modules - folders} == TESTED_FROM_ABOVE.keys()
    for place in TESTED_FROM_ABOVE.values():
        assert (tests / place.partition(",")[0]).exists(), place


def test_every_command_is_listed_with_a_module_that_exists() -> None:
    from megatron_hcp.cli.main import COMMANDS

    for name, (module, text) in COMMANDS.items():
        file = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        assert file.is_file() and f"def {name}(" in file.read_text(encoding="utf-8"), name
        assert text.endswith("."), name


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        ([], {"torch", "numpy", "megatron", "jinja2"}),
        (
            ["check", "examples/bridge_hcp.yaml", "-o", f"json={Path('/dev/null')}"],
            {"torch", "numpy", "megatron", "jinja2", "omegaconf", "rich", "tree_sitter", "jsonschema"},
        ),
    ],
    ids=["import", "check"],
)
def test_what_starts_often_loads_nothing_heavy(arguments: list[str], absent: set[str]) -> None:
    """Start-up is a promise: of the command line, and of the check of a YAML launch."""
    code = (
        "import json, sys\n"
        "from megatron_hcp.cli.main import main\n"
        "try:\n    sys.argv[1:] and main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "click" in loaded and ("yaml" in loaded) == bool(arguments), done.stderr
    assert not loaded & absent


def test_no_path_of_one_machine_is_committed() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pattern = re.compile("/(?:root|work|farm)/" + r"|/home/[a-z]+/")
    found = []
    for name in files:
        path = ROOT / name
        if path.suffix in (".png", ".svg") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [name for _ in pattern.findall(text)]
    assert found == []
