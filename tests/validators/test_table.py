"""The tables: woven texts give each release back, and hold what upstream's own files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from start_tables.woven import woven, written

from megatron_hcp.launch.facts.known_options import revisions_with
from megatron_hcp.validators.given.options import option_of
from megatron_hcp.validators.program import StartProgram, Unit, as_lines, condition_of, unit_of
from megatron_hcp.validators.reader.checkout import texts_of, units_of
from megatron_hcp.validators.reader.prune import pruned
from megatron_hcp.validators.reader.sources import Sources
from megatron_hcp.validators.reader.statements import Reader
from megatron_hcp.validators.roots import MEGATRON_LM
from megatron_hcp.validators.table import (
    FOLDER,
    lines_of,
    program_of_release,
    releases_of,
    table_of,
)
from megatron_hcp.validators.trees import tree_of
from support.needs import UPSTREAM

RELEASES = releases_of("megatron-lm")
CONFIGS = ("ModelParallelConfig", "TransformerConfig", "MLATransformerConfig")


def program(release: str) -> StartProgram:
    found = program_of_release("megatron-lm", release)
    assert found is not None
    return found


def test_a_woven_text_gives_each_release_its_own_lines() -> None:
    texts = [["a", "b", "c"], ["a", "c", "d"], [], ["x", "c", "b"], ["a", "b", "c"]]
    table = woven(texts)
    assert [lines_of(table, 1 << place) for place in range(len(texts))] == texts
    assert table.count("\na\n") == 1


@pytest.mark.parametrize("file", sorted(Path(FOLDER).iterdir()), ids=lambda file: file.stem)
def test_a_file_of_tables_is_as_it_is_written(file: Path) -> None:
    assert written(table_of(file.stem)) == file.read_text(encoding="utf-8")


def test_a_unit_survives_its_lines() -> None:
    unit = Unit("f", "def", ("args", "n={'a': 1}"), "a.py", ("if args.a", " check args.b\tno"), frozenset((0,)))
    assert unit_of(as_lines(unit)) == unit


def test_the_tables_have_the_releases_whose_options_are_known() -> None:
    assert revisions_with("context_parallel_size")[-len(RELEASES) :] == RELEASES
    assert program_of_release("megatron-lm", "0.1.0") is None and program_of_release("other", "main") is None


@pytest.mark.parametrize("release", RELEASES)
def test_every_line_of_a_release_is_in_the_notation(release: str) -> None:
    found = program(release)
    present = [unit for unit in map(found.find, table_of("megatron-lm").units) if unit is not None]
    assert {"validate_args", "TransformerConfig.__post_init__", "initialize_model_parallel", "options"} <= {
        unit.name for unit in present
    }
    for unit in present:
        for line in unit.lines:
            if unit.kind == "options":
                option_of(line)
            elif line.lstrip().startswith(("check ", "stop ")):
                condition, message = condition_of(line)
                assert tree_of(condition) and len(message) <= 80, line
    assert found.guards > 200 and 50 * found.unreadable <= 2 * found.guards


@pytest.mark.upstream
@pytest.mark.parametrize("release", [name for name in RELEASES if (UPSTREAM / f"megatron-core-{name}").is_dir()])
def test_the_tables_hold_what_the_wheel_says(release: str) -> None:
    """Wheels before 0.17 lack megatron/training: of those, the configs and the process groups are compared."""
    folder = UPSTREAM / f"megatron-core-{release}"

    def text_of(path: str) -> str | None:
        file = folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else None

    names = [*CONFIGS, *(f"{name}.__post_init__" for name in CONFIGS)]
    if (folder / "megatron" / "training" / "arguments.py").is_file():
        names += ["validate_args", "options", "core_transformer_config_from_args"]
        wheel = units_of(text_of, MEGATRON_LM)
    else:
        reader = Reader(Sources(text_of))
        reader.read("megatron/core/transformer/transformer_config.py", "MLATransformerConfig")
        wheel = pruned(reader.units, ("MLATransformerConfig",))
    for name in names:
        ours, theirs = program(release).find(name), wheel.get(name)
        assert (ours and ours.guards) == (theirs and theirs.guards), name
        rest = iter(theirs.lines if theirs else ())  # the tables leave out what decides nothing
        assert all(line in rest for line in (ours.lines if ours else ())), name
    assert "TransformerConfig.__post_init__" in wheel


@pytest.mark.upstream
@pytest.mark.parametrize("folder", sorted(UPSTREAM.glob("transformer-engine-*")), ids=lambda folder: folder.name)
def test_what_stands_for_transformer_engines_constructor_is_asked_by_every_release(folder: Path) -> None:
    base = "transformer_engine/pytorch/attention"
    files = (f"{base}.py", f"{base}/dot_product_attention.py", f"{base}/dot_product_attention/dot_product_attention.py")
    reader = Reader(Sources(texts_of(str(folder), MEGATRON_LM)))
    assert any(reader.read(file, "DotProductAttention.__init__") for file in files)
    asked = reader.units["DotProductAttention.__init__"].guards
    ours = program("0.19.0").find("te.DotProductAttention.__init__")
    assert ours is not None
    for line in ours.guards:
        own = line.replace("config.num_attention_heads", "num_attention_heads")
        assert own.replace("config.num_query_groups", "self.num_gqa_groups") in {one.strip() for one in asked}
