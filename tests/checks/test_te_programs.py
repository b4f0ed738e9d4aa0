"""The programs of checks/ on Transformer Engine's own Python code, from the newest unpacked wheel."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.upstream, pytest.mark.slow]
ON_TE = ("--attention", "transformer-engine-cpu")


def test_transformer_engines_own_class_and_choice_of_backend_equal_attention_in_one_process(started):
    ran = started("attention_parity", *ON_TE)
    assert ran.code == 0, ran.stderr
    assert ran.report["versions"]["transformer-engine"].endswith("(with stand-ins)")
    assert [result["measured"] < 1e-13 for result in ran.report["results"]] == [True] * 4


def test_gpt_and_the_hybrid_model_train_on_it_as_without_cp(started):
    ran = started("training_step", *ON_TE, "--types", "p2p", "all_gather", "a2a", "--hybrid", "--steps", "1")
    assert ran.code == 0, ran.stderr
    names = [result["name"] for result in ran.report["results"] if "gradients" in result["name"]]
    assert names == [
        "TP 1 CP 4 a2a+p2p [2, 2]: gradients",
        "TP 1 CP 4 p2p: gradients",
        "TP 1 CP 4 all_gather: gradients",
        "TP 1 CP 4 a2a: gradients",
        "TP 2 CP 2 p2p: gradients",
        "hybrid TP 1 CP 4 a2a+p2p [2, 2]: gradients",
    ]


def test_a_release_that_is_not_unpacked_is_named(started):
    ran = started("attention_parity", *ON_TE, "--te", "0.0.1")
    assert ran.code == 2
    assert "transformer-engine-0.0.1" in ran.report["error"]
