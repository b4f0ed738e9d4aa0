"""Named tuples for what every check imports: they do what typing's do."""

from __future__ import annotations

import pickle
import typing

import pytest

from megatron_hcp.ground.record import NamedTuple


class Ours(NamedTuple):
    """Of both kinds of fields."""

    name: str
    size: int = 2

    @property
    def double(self) -> int:
        return 2 * self.size


class Theirs(typing.NamedTuple):
    """Of both kinds of fields."""

    name: str
    size: int = 2

    @property
    def double(self) -> int:
        return 2 * self.size


def test_a_record_is_made_shown_changed_and_compared_as_typings_are() -> None:
    ours: typing.Any = Ours("a")
    theirs: typing.Any = Theirs("a")
    assert ours == theirs == Ours(name="a", size=2) and hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._replace(size=3) == theirs._replace(size=3) == ("a", 3)
    assert Ours._make(("b", 4)) == ("b", 4) and ours._asdict() == theirs._asdict()
    assert (Ours._fields, Ours._field_defaults, Ours.__doc__) == (
        Theirs._fields,
        Theirs._field_defaults,
        Theirs.__doc__,
    )
    assert (ours.name, ours.size, ours.double) == ("a", 2, 4)
    assert pickle.loads(pickle.dumps(ours)) == ours
    match ours:
        case Ours(name, size):
            assert (name, size) == ("a", 2)


@pytest.mark.parametrize("given", [{}, {"name": "a", "other": 1}])
def test_wrong_fields_are_refused(given: dict[str, typing.Any]) -> None:
    ours: typing.Any = Ours("a")
    with pytest.raises(TypeError, match="argument"):
        Ours(**given)
    with pytest.raises(ValueError, match="unexpected field names"):
        ours._replace(other=1)


def test_a_field_without_default_after_one_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="a field without default"):
        exec("class Wrong(NamedTuple):\n    a: int = 1\n    b: int\n", {"NamedTuple": NamedTuple, "__name__": __name__})
