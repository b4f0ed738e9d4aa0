"""`NamedTuple` for the modules that every check imports: the same class, made in a quarter of the time of typing's.

typing compiles each annotation, although nothing here reads them, and collections compiles a constructor and makes
five methods for every class: of the 90 classes that a check of a script makes, that took 5 of its 80 ms. Elsewhere
`typing.NamedTuple` is as good.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Maker(type):
        """Makes a named tuple of a class body, as typing does."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.pop("__annotations__"))
            defaults = {field: body[field] for field in fields if field in body}
            assert fields[len(fields) - len(defaults) :] == (*defaults,), f"{name}: a field without default after one"
            getters = {field: _tuplegetter(place, None) for place, field in enumerate(fields)}
            made = {"__slots__": (), "_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            return type(name, (_Record,), {**body, **made, **getters})

    @cache
    def _constructor(count: int) -> Any:
        """A constructor of that many fields: compiling it takes forty times as long as naming the fields of a copy."""
        names = ", ".join(f"_{place}" for place in range(count))
        return eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__, "__builtins__": {}})

    class NamedTuple(metaclass=_Maker):
        """See typing.NamedTuple."""

    class _Record(tuple):
        """What the named tuples share: the methods that collections gives each of its own."""

        __slots__ = ()

        def __new__(cls, /, *given: Any, **named: Any) -> tuple[Any, ...]:
            """Makes the first one of its class, and the constructor of the others."""
            like = _constructor(len(cls._fields))
            code = like.__code__.replace(co_varnames=("_cls", *cls._fields))
            new = type(like)(code, like.__globals__, "__new__", (*cls._field_defaults.values(),))
            new.__qualname__ = f"{cls.__name__}.__new__"
            cls.__new__ = staticmethod(new)
            return new(cls, *given, **named)

        @classmethod
        def _make(cls, values: Any) -> tuple[Any, ...]:
            return cls(*values)

        def _replace(self, /, **changed: Any) -> tuple[Any, ...]:
            made = tuple.__new__(type(self), map(changed.pop, self._fields, self))
            if changed:
                raise ValueError(f"Got unexpected field names: {list(changed)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)
