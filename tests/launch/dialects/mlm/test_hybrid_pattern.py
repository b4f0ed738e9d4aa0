"""What a hybrid model's layer pattern decides on Megatron-LM's command line.

Values: megatron/training/arguments.py (validate_args) and argument_utils.py (core_transformer_config_from_args) of
core_v0.17.0, core_v0.18.0, core_v0.19.0 and of the dev branch at d48bd6be0a.
"""

from __future__ import annotations

from typing import Any

import pytest

from megatron_hcp.launch.build import build_launch
from megatron_hcp.launch.fact import Launch
from megatron_hcp.launch.options import parse_assumptions
from megatron_hcp.launch.readers.target import read_target

LAYERS = "--num-layers 8 --hidden-size 64 --num-attention-heads 4"


def launch(words: str, *assumed: str) -> Launch:
    return build_launch(
        read_target("", dialect="mlm", words=f"{LAYERS} {words}".split()), assumed=parse_assumptions(assumed)
    )


def value(of: Launch, name: str) -> Any:
    return of.facts[name].value if name in of.facts else "unknown"


@pytest.mark.parametrize(
    ("words", "assumed", "layers"),
    [
        ("--hybrid-layer-pattern M*M*", (), 4),
        ("--hybrid-layer-pattern M*M*M*|M*M*M*", (), 12),  # bars divide the pipeline
        ("--hybrid-layer-pattern M*M*/MM/MM", (), 4),  # behind a slash: prediction layers
        ("--hybrid-override-pattern M*M*", ("mcore=0.17.0",), 4),
        ("--hybrid-override-pattern M*M*", ("mcore=0.16.1",), 8),  # read when the model is built
        ("--hybrid-override-pattern M*M*", (), "unknown"),
        ("--hybrid-override-pattern M*M*M*M*", (), 8),
        ("", (), 8),
    ],
)
def test_a_layer_pattern_sets_the_number_of_layers_since_0_17(
    words: str, assumed: tuple[str, ...], layers: object
) -> None:
    assert value(launch(words, *assumed), "num_layers") == layers


@pytest.mark.parametrize(
    ("words", "assumed", "mla", "variant"),
    [
        ("--hybrid-layer-pattern M*M*", (), False, None),
        ("--hybrid-layer-pattern MDMD", (), True, "dsa"),
        ("--hybrid-layer-pattern MDMD --experimental-attention-variant gdn", ("mcore_branch=main",), True, "dsa"),
        ("--hybrid-layer-pattern MDMD --experimental-attention-variant gdn", ("mcore_branch=dev",), True, "gdn"),
        ("--hybrid-layer-pattern M+M+", (), True, None),
        ("--hybrid-layer-pattern MCMH", ("mcore_branch=dev",), False, "dsv4_hybrid"),
        ("--hybrid-layer-pattern MDMC --multi-latent-attention", ("mcore_branch=dev",), True, "dsv4_hybrid"),
    ],
)
def test_a_layer_pattern_sets_the_attention(
    words: str, assumed: tuple[str, ...], mla: bool, variant: str | None
) -> None:
    of = launch(words, *assumed)
    assert (value(of, "mla"), value(of, "attention_variant")) == (mla, variant)


@pytest.mark.parametrize(("pattern", "layers"), [("M*M*", None), ("M*M*/MM/MM", 2), ("M*/M", 1)])
def test_slashes_of_a_layer_pattern_give_the_prediction_layers(pattern: str, layers: int | None) -> None:
    assert value(launch(f"--hybrid-layer-pattern {pattern}"), "mtp_layers") == layers


def test_the_number_of_layers_of_a_pattern_has_the_place_of_the_pattern() -> None:
    assert launch("--hybrid-layer-pattern M*M*").facts["num_layers"].key == "hybrid_layer_pattern"
