"""Hydra's override values and OmegaConf's interpolation, as upstream reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.launch.fact import Setting
from megatron_hcp.launch.facts.spec import UNKNOWN
from megatron_hcp.launch.forms.words.hydra import hydra_value
from megatron_hcp.launch.forms.yaml.interpolate import resolve
from megatron_hcp.launch.forms.yaml.settings import load_yaml
from support.selection import examples


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-3", -3),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e-6", 1e-6),
        ("1e6", 1e6),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("NULL", None),
        ("", ""),
        ("a2a+p2p", "a2a+p2p"),
        ("010", "010"),
        ("8,2", "8,2"),
        ("x y", "x y"),
        ("yes", "yes"),
        ("http://a:1/b?c=d", "http://a:1/b?c=d"),
        ("'a2a+p2p'", "a2a+p2p"),
        ('"a b"', "a b"),
        (r"'it\'s'", "it's"),
        ("'1'", "1"),
        ("[]", []),
        ("[8,2]", [8, 2]),
        ("[ 8 , 2 ]", [8, 2]),
        ("[a2a,'p2p',null]", ["a2a", "p2p", None]),
        ("[[1],[2,[x]]]", [[1], [2, ["x"]]]),
        ("{}", {}),
        ("{a:1,b:[x],c:{d:e}}", {"a": 1, "b": ["x"], "c": {"d": "e"}}),
        ("[1", "[1"),
        ("[1]x", "[1]x"),
        ("{a}", "{a}"),
        ("'open", "'open"),
        ("9" * 500, "9" * 500),
    ],
)
def test_values_follow_hydras_grammar_and_other_text_stays_text(text: str, value: object) -> None:
    assert hydra_value(text) == value and type(hydra_value(text)) is type(value)


@given(st.text("[]{}'\",:\\ ab1-", max_size=40) | st.text(max_size=40))
@settings(max_examples=examples(quick=20, full=500))
def test_no_text_breaks_the_value_reader(text: str) -> None:
    hydra_value(text)
    hydra_value("[" * 10_000 + text)


def resolved(text: str, **default: object) -> dict[str, object]:
    doc = load_yaml(text, "x.yaml")
    return {s.key: s.value for s in resolve(doc.settings, lambda key: default.get(key, UNKNOWN))[0]}


def reasons(text: str) -> dict[str, str]:
    return resolve(load_yaml(text, "x.yaml").settings)[1]


CASES = [
    "a: {b: 4}\nc: ${a.b}\n",
    "a: {b: 4, c: '${.b}', d: {e: '${..b}'}}\n",
    "n: 2\nt: x${n}y${n}\n",
    "a: {x: 1, y: [1, 2]}\nb: ${a}\nc: ${a.y}\n",
    "a: ${oc.select:z.z,7}\nb: ${oc.select:z}\nc: ${oc.select:a,1}\nd: ${oc.select:z,null}\n",
    "a: ${oc.select:z,{}}\nb: ${oc.select:z,[]}\nc: '${oc.select:z,\"~/x\"}'\n",
    "k: b\na: {b: 5}\nc: ${a.${k}}\n",
    "a: 1\nb: ${a}\nc: ${b}\nd: ['${c}', x]\n",
    "a: null\nb: ${a}\nc: ${oc.select:a,3}\n",
    "p: {q: '${oc.select:.z,false}', z: 3}\n",
]


@pytest.mark.parametrize("text", CASES)
def test_interpolation_agrees_with_omegaconf(text: str) -> None:
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    expected = OmegaConf.to_container(OmegaConf.create(text), resolve=True)

    def flat(data: dict[str, object], prefix: str = "") -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in data.items():
            out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
        return out

    assert resolved(text) == flat(expected)


@pytest.mark.upstream
def test_the_composed_verl_configs_resolve_as_omegaconf_resolves_them(upstream: Path) -> None:
    OmegaConf = pytest.importorskip("omegaconf").OmegaConf
    files = sorted(upstream.glob("verl-*/verl/trainer/config/_generated_ppo_megatron_trainer.yaml"))
    assert files
    for path in files:
        doc = load_yaml(path.read_text(encoding="utf-8"), path.name)
        ours, unknown = resolve(doc.settings)
        config = OmegaConf.load(path)
        assert all("???" in reason for reason in unknown.values())
        for setting in ours:
            theirs = OmegaConf.select(config, setting.key)
            if OmegaConf.is_config(theirs):
                theirs = OmegaConf.to_container(theirs, resolve=True)
            if isinstance(theirs, float):  # OmegaConf reads 1e-6 as a number, YAML 1.1 as text
                assert float(setting.value) == theirs, (path.name, setting)
            else:
                assert setting.value == theirs, (path.name, setting)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("a: ${b}", "a", "refers to b, which the launch does not set"),
        ("a: ${b}\nb: ${a}", "a", "refers to itself"),
        ("a: {b: '${a}'}", "a.b", "refers to itself"),
        ("a: ${oc.env:HOME}", "a", "the environment variable HOME"),
        ("a: ${oc.env:HOME}/y", "a", "the environment variable HOME"),
        ("a: ${eval:1+1}", "a", "the resolver eval is not evaluated"),
        ("a: ${b", "a", "not closed"),
        ("a: ???", "a", "must still be given"),
        ("a: {b: 1}\nc: x${a}", "c", "is used inside a text"),
    ],
)
def test_what_cannot_be_evaluated_is_unknown_with_its_reason(text: str, key: str, why: str) -> None:
    assert why in reasons(text)[key]


def test_a_key_that_is_absent_takes_upstreams_default_before_the_references_own() -> None:
    assert resolved("a: ${oc.select:b,1}\nc: ${b}", b=9) == {"a": 9, "c": 9}


def test_references_that_double_each_time_end_soon() -> None:
    text = "a0: xxxxxxxxxx\n" + "".join(f"a{i}: ${{a{i - 1}}}${{a{i - 1}}}\n" for i in range(1, 40))
    assert any("too long" in reason for reason in reasons(text).values())
    tree = "a0: {x: 1}\n" + "".join(f"a{i}: {{p: '${{a{i - 1}}}', q: '${{a{i - 1}}}'}}\n" for i in range(1, 30))
    assert any("too many" in reason for reason in reasons(tree).values())
    wide = "t:\n" + "".join(f"  k{i}: 1\n" for i in range(3000)) + "".join(f"r{i}: ${{t}}\n" for i in range(3000))
    assert any("too many" in reason for reason in reasons(wide).values())


def test_a_resolved_value_keeps_its_own_place() -> None:
    doc = load_yaml("a: 4\nb: ${a}\n", "x.yaml")
    setting = resolve(doc.settings)[0][1]
    assert isinstance(setting, Setting) and setting.location is not None and setting.location.line == 2
