"""What hcp's program for Megatron-Bridge gets: the recipe, the launch's own overrides, and no files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from megatron_hcp.dryrun.ask import HowToRun, request_of
from megatron_hcp.dryrun.bridge_words import bridge_words
from megatron_hcp.dryrun.program import framework_trees
from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.fact import Dialect, Launch, UpstreamTree
from megatron_hcp.launch.load import LoadOptions, load_launch

RECIPE, CP2 = "llama3_8b_pretrain_config", "model.context_parallel_size=2"


def launch(*words: str, recipe: str | None = RECIPE, upstream: tuple[UpstreamTree, ...] = ()) -> Launch:
    return load_launch("", LoadOptions(dialect="bridge", words=words, recipe=recipe, upstream=upstream))


def test_the_recipe_comes_first_and_then_the_launchs_own_overrides_alone() -> None:
    own = ("model.context_parallel_size=2", "model.hierarchical_context_parallel_sizes=[2,1]", "+model.extra=null")
    words = bridge_words(launch(*own)).words
    assert words[:4] == (RECIPE, own[0], "model.hierarchical_context_parallel_sizes=[2, 1]", own[2])
    assert not [word for word in words[4:] if not word.startswith(("dataset.", "tokenizer."))]


@pytest.mark.parametrize(
    ("own", "what"),
    [
        ("dataset.blend=[/data/a]", "data"),
        ("tokenizer.tokenizer_model=/models/a", "tokenizer"),
        ("checkpoint.load=/checkpoints/a", "checkpoint"),
    ],
)
def test_an_override_that_names_a_file_is_replaced_and_listed(own: str, what: str) -> None:
    told = bridge_words(launch(own))
    (row,) = [row for row in told.replaced if row.what == what]
    assert [word.partition("=")[0] for word in row.was] == [own.partition("=")[0]]
    assert not any("/" in word for word in told.words)


@pytest.mark.parametrize(
    ("own", "after"), [(["~KEY"], []), (["KEY=1", "~KEY=1"], []), (["KEY=1"], ["~KEY"]), (None, [CP2, "~KEY"])]
)
def test_a_word_that_removes_a_key_is_refused_wherever_it_stands(
    tmp_path: Path, own: list[str] | None, after: list[str]
) -> None:
    key, target = "train.train_iters", ""
    if own is not None:
        target = str(tmp_path / "run.sh")
        script = f"python scripts/training/run_recipe.py --recipe {RECIPE} {' '.join(own)}\n"
        Path(target).write_text(script.replace("KEY", key))
    words = tuple(word.replace("KEY", key) for word in after)
    dialect: Dialect | None = "bridge" if own is None else None
    with pytest.raises(HcpError, match=re.escape(f"found ~{key};")):
        bridge_words(load_launch(target, LoadOptions(dialect=dialect, words=words, recipe=RECIPE)))


def test_a_word_that_removes_what_is_replaced_is_left_out() -> None:
    assert bridge_words(launch(CP2, "~checkpoint.load")) == bridge_words(launch(CP2))


def test_a_launch_without_a_recipe_is_told_to_name_one() -> None:
    with pytest.raises(HcpError, match="no recipe"):
        bridge_words(launch("model.context_parallel_size=2", recipe=None))


def test_a_frameworks_code_is_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    tree = UpstreamTree("megatron-bridge", str(tmp_path), None)
    with pytest.raises(HcpError, match="no megatron/bridge"):
        framework_trees(launch(upstream=(tree,)))
    with pytest.raises(HcpError, match="no code of megatron-bridge"):
        framework_trees(launch())
    for root in (tmp_path, tmp_path / "src"):
        (root / "megatron/bridge").mkdir(parents=True)
        assert framework_trees(launch(upstream=(tree,))) == (tree._replace(path=str(root)),)


def test_memory_is_not_counted_in_bridge(tmp_path: Path) -> None:
    (tmp_path / "megatron/core").mkdir(parents=True)
    (tmp_path / "megatron/bridge").mkdir()
    upstream = tuple(UpstreamTree(repo, str(tmp_path), None) for repo in ("megatron-lm", "megatron-bridge"))
    with pytest.raises(HcpError, match="--measure"):
        request_of(launch(upstream=upstream), HowToRun(measure=True))


def test_a_message_about_the_made_up_vocabulary_is_not_upstreams() -> None:
    told = bridge_words(launch("model.vocab_size=50000"))
    assert "tokenizer.vocab_size=49999" in told.words and "49999" in told.not_the_launchs
