"""The shape of the tree: small modules, one name for each class, rules by prefix, tests that mirror it, AGENTS.md."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tree import (
    ALL_MODULES,
    CHAINS,
    FLAT,
    MAX_LINES,
    MAX_MODULES,
    MAX_RULE_LINES,
    MODULES,
    PACKAGE,
    ROOT,
    TESTED_FROM_ABOVE,
    TESTS_OF_OTHER_FOLDERS,
    name_of,
    tree_of,
)

pytestmark = pytest.mark.xdist_group("tree")


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
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Known", "StartRow") and node.end_lineno:
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


def test_no_path_of_one_machine_is_committed() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    # slime's and miles' images keep their checkouts below /root.
    pattern = re.compile("/(?:root(?!/(?:slime|miles|other)/)|work|farm)/" + r"|/home/[a-z]+/")
    found = []
    for name in files:
        path = ROOT / name
        if path.suffix in (".png", ".svg") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [name for _ in pattern.findall(text)]
    assert found == []


AGENTS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def test_agents_md_has_the_picture_of_the_tree() -> None:
    """Each room with the first sentence of its package, in the order of the layers; the layers as they are enforced."""
    order = dict.fromkeys(room for chain in CHAINS for room in chain.replace("<-", "").split())
    lines = []
    for room in order:
        said = ast.get_docstring(tree_of(PACKAGE / room / "__init__.py")) or ""
        lines.append(f"{room + '/':<14}{said.partition(chr(10))[0].partition('. ')[0].rstrip('.')}\n")
    picture = "".join(lines)
    assert picture in AGENTS, f"AGENTS.md has another picture of the tree than\n{picture}"
    assert [chain for chain in CHAINS if chain not in AGENTS] == []


def test_agents_md_is_short_and_names_places_that_exist() -> None:
    assert len(AGENTS.split()) <= 1000, "every agent loads it"
    places = re.findall(r"`((?:[a-z_]+/)+(?:[\w.]+)?)`", AGENTS)
    found = [place for place in places if not any((root / place).exists() for root in (ROOT, PACKAGE))]
    assert len(places) > 15 and found == []
