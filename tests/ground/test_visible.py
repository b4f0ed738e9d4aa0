"""Text from outside cannot act on what prints it."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from megatron_hcp.ground.visible import visible


@example("\x1b\x9b\n\u202e\u2028\udc80\ue000")
@given(st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Lu", "Nd", "Po"))))
def test_nothing_but_printable_characters_comes_out(text: str) -> None:
    assert {unicodedata.category(letter) for letter in visible(text)}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_what_a_person_writes_stays(text: str) -> None:
    assert visible(text) == text


def test_every_kind_of_escape_is_written_out() -> None:
    assert visible("a\nb\tc\x1b[2J\x9b\u202e\U000e0001\udc80") == r"a\nb\tc\x1b[2J\x9b\u202e\U000e0001\udc80"
