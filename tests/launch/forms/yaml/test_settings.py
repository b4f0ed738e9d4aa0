"""YAML text to settings: values and places are PyYAML's, and hostile text is one clear line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.launch.forms.yaml.settings import MAX_CHARACTERS, MAX_VALUES, load_plain, load_yaml
from support.selection import examples

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def leaves(text: str) -> dict[str, object]:
    return {setting.key: setting.value for setting in load_yaml(text, "x.yaml").settings}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", 8),
        ("1.5", 1.5),
        ("1e-5", "1e-5"),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("2020-01-01", "2020-01-01"),
        ("[1, a, ~]", [1, "a", None]),
        ("{}", None),
        ("!!str 5", "5"),
        ("9" * 200, "9" * 200),
    ],
)
def test_scalars_have_the_types_of_yaml_1_1(text: str, value: object) -> None:
    assert leaves(f"a: {text}") == ({} if text == "{}" else {"a": value})


def test_leaves_are_dotted_and_lists_stay_whole() -> None:
    text = "model:\n  a: 1\n  b: [{c: 2}, 3]\ntrain: {x: {y: z}}\n'1': one\n"
    assert leaves(text) == {"model.a": 1, "model.b": [{"c": 2}, 3], "train.x.y": "z", "1": "one"}


def test_a_place_cuts_the_value_out_of_the_text() -> None:
    text = "model:\n  cp: 4   # four\n  sizes:\n  - 2\n  - 2\n\n  comm: 'a2a+p2p'\n  list: [ 1,\n    2 ]\n"
    lines = text.splitlines()
    cut = {}
    for setting in load_yaml(text, "x.yaml").settings:
        place = setting.location
        assert place is not None
        last = place.end_line - 1
        part = lines[place.line - 1 : last + 1]
        part[-1] = part[-1][: place.end_column - 1]
        part[0] = part[0][place.column - 1 :]
        cut[setting.key] = "\n".join(part)
    assert cut == {
        "model.cp": "4",
        "model.sizes": "- 2\n  - 2",
        "model.comm": "'a2a+p2p'",
        "model.list": "[ 1,\n    2 ]",
    }


def test_columns_count_characters_not_bytes() -> None:
    place = load_yaml("name: µ\n'µ': {a: 1}\n", "x.yaml").settings[1].location
    assert place is not None and place[1:] == (2, 10, 2, 11)


def test_a_mapping_knows_where_a_further_key_goes() -> None:
    doc = load_yaml("model:\n    a: 1\n    b: 2\ntrain: {x: 1}\ndist: {}\n", "x.yaml")
    assert doc.mappings["model"].location[1:] == (2, 5, 3, 9) and not doc.mappings["model"].is_flow
    assert doc.mappings["train"].is_flow and doc.mappings["dist"].is_empty


def test_merge_keys_and_aliases_are_expanded_as_pyyaml_does() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\nd: [*a]\ne:\n  <<: [{p: 1}, {p: 2, q: 3}]\n"
    assert load_yaml(text, "x.yaml").data == yaml.safe_load(text)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
CHAIN = "\n".join(f"a{i}: &a{i} {'[' * 50}*a{i - 1}{']' * 50}" for i in range(1, 30)).replace("*a0", "x")
"""No level of the text is deep; each alias adds 50 levels to the one before it."""
MERGES = "a: &a {" + ", ".join(f"k{i}: 1" for i in range(40_000)) + "}\nb: {<<: [" + "*a," * 20_000 + "]}"
"""Few values, few aliases; merged one by one it took three quarters of a minute."""


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3:1: 'a' is written twice, first in line 1;"),
        ("m:\n  k: 1\n  'k': 1\n", "x.yaml:3:3: 'k' is written twice, first in line 2;"),
        ("a: !!python/object/apply:os.system [ls]", "x.yaml:1:4: the tag !!python/object/apply:os.system;"),
        ("a: !!python/tuple [1]", "the tag !!python/tuple;"),
        ("a: !mine 1", "the tag !mine;"),
        ("!mine b: 1", "the tag !mine;"),
        ("a: !!binary aa==", "the tag !!binary;"),
        ("a: !!set {x}", "the tag !!set;"),
        (BOMB, "its aliases expand to more than"),
        (CHAIN, "its aliases expand deeper than"),
        (MERGES, "values up to here"),
        ("a: &a " + "x" * 1_000_000 + "\nb: [" + "*a," * 50 + "]", "its aliases expand to more than 5,000,000 char"),
        ("a: !<tag:%1b[2J> 1", r"the tag tag:\x1b[2J;"),
        ("a: [" + "1," * MAX_VALUES + "1]", "values up to here"),
        ("a: &x [*x]", "the alias *x refers to itself;"),
        ("a: *x", "the alias *x has no anchor before it;"),
        ("[" * 200_000, "nests more than"),
        ("a: " + "{b: " * 200_000, "nests more than"),
        ("a: 1\n---\nb: 1\n", "x.yaml:2: a second YAML document"),
        ("- a\n- b\n", "is a YAML list at its top"),
        ("just words", "is a YAML text at its top"),
        ("", "x.yaml is empty"),
        ("# nothing\n", "x.yaml is empty"),
        ("---\n", "x.yaml is empty"),
        ("a:\n\tb: 1\n", "x.yaml:2:1: the line is indented with a tab; wanted spaces"),
        ("a: [1\n", "x.yaml:2:1: did not find expected"),
        ("a: b: c\n", "x.yaml:1:5: mapping values are not allowed"),
        ("a: \x00", "control characters are not allowed"),
        ("a: \udcff", "not UTF-8 text"),
        ("? [a]\n: 1", "a key is a list or a mapping"),
        ("a:\n  <<: 1\n", "the merge key << has no mapping"),
        ("a" * (MAX_CHARACTERS + 1), "wanted a launch configuration of at most"),
    ],
)
def test_what_is_no_plain_yaml_mapping_is_one_line(text: str, said: str) -> None:
    with pytest.raises(HcpError) as error:
        load_yaml(text, "x.yaml")
    assert said in str(error.value) and "\n" not in str(error.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), plain, max_size=4), st.booleans())
@settings(max_examples=examples(quick=10, full=200))
def test_what_pyyaml_writes_comes_back(data: dict[str, object], flow: bool) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True)
    if data:
        assert load_yaml(text, "x.yaml").data == yaml.load(text, LOADER)


@given(st.text(max_size=60) | st.text("ab:-[]{}&*!<>|'\"#\n\t ,?%@`=~1.", max_size=60))
@settings(max_examples=examples(quick=10, full=500))
def test_any_text_is_read_as_pyyaml_reads_it_or_refused(text: str) -> None:
    try:
        doc = load_yaml(text, "x.yaml")
    except HcpError as error:
        assert "\n" not in str(error)
        return
    try:
        loaded = yaml.load(text, LOADER)
    except (ValueError, yaml.constructor.ConstructorError):
        return  # values that PyYAML itself trips over (a date 0000-00-00); we keep them as text
    assert isinstance(loaded, dict) and len(loaded) <= len(doc.data)


@given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), plain, max_size=4))
@settings(max_examples=examples(quick=10, full=200))
def test_plain_values_are_those_of_the_launch_loader(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data)
    assert load_plain(text, "x.yaml", "a site file") == load_yaml(text, "x.yaml").data == data


def test_a_refusal_says_what_the_file_should_be() -> None:
    with pytest.raises(HcpError, match=r"^x\.yaml is a YAML list at its top; wanted a site file: keys and values"):
        load_plain("[1]", "x.yaml", "a site file")


@pytest.mark.parametrize(
    "text", ["2001-99-99", "9" * 5000, "1:" * 3000 + "1", "!!bool maybe", "!!int x", "!!float x", "2001-01-01 99:99:99"]
)
def test_a_scalar_that_is_no_value_of_its_type_stays_text(text: str) -> None:
    assert load_plain(f"a: {text}", "x.yaml", "a card") == {"a": text.rpartition(" ")[2] if "!!" in text else text}


@pytest.mark.slow
def test_nothing_else_of_the_package_loads_yaml(root: Path) -> None:
    """One loader refuses what is hostile; a second one would have to be taught it again."""
    loaders = []
    for path in (root / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if "yaml" in names or module == "yaml":
                loaders.append(path.relative_to(root).as_posix())
    writer = "src/megatron_hcp/render/kubernetes/text.py"  # of manifests: it loads nothing
    assert set(loaders) == {"src/megatron_hcp/launch/forms/yaml/nodes.py", writer}
