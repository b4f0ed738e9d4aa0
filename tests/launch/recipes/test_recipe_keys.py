"""What recipes set that validators read: the table of recipes was asked for all of it, and keeps what decides most."""

from __future__ import annotations

from bridge_releases import KEPT, Defaults, digest_of_keys, kept_of, unasked, varying
from follow.values import UNKNOWN, Node

from megatron_hcp.launch.recipes.table import look_up, names_of, recorded_keys


def test_the_table_was_asked_for_all_that_validators_read() -> None:
    """A field that a new guard reads must not be taken for its class's default: `python lab recipes/table --write`."""
    releases, digest = recorded_keys()
    assert digest == digest_of_keys(releases)


def test_a_key_that_recipes_were_not_asked_for_has_no_default() -> None:
    """Else a recipe that recomputes whole layers by a method was refused as one that names no method."""
    releases, _ = recorded_keys()
    asked = set()
    for release in releases:
        for recipe in (look_up(name, release) for name in names_of(release)):
            assert recipe.varies is not None
            asked |= {setting.key for setting in recipe.settings} | recipe.unknown.keys() | recipe.varies
    assert unasked(releases, asked) == set()


def test_what_differs_from_the_class_or_is_not_known_varies() -> None:
    defaults = Defaults("0.6.0").of({})
    same = {"train.train_samples": None, "profiling": Node(None)}
    assert varying(defaults, same) == set()
    others = {"train.train_samples": 5, "optimizer.use_distributed_optimizer": True, "peft": UNKNOWN}
    assert varying(defaults, others) == set(others)


def test_of_a_recipe_is_kept_what_is_known() -> None:
    assert kept_of({"peft": UNKNOWN, "comm_overlap": Node(None), "train.train_iters": 5}) == {"train.train_iters": 5}
    known = {setting.key for setting in look_up("llama3_8b_pretrain_config", "0.6.0").settings}
    assert known & {*KEPT}
