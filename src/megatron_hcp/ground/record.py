"""`NamedTuple` for the modules that every check imports: the same class, made in less than half the time of typing's.

typing compiles each annotation, although nothing here reads them: of the 70 classes that a check of a script makes,
that took 3 of its 75 ms. Elsewhere `typing.NamedTuple` is as good.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Maker(type):
        """Makes a named tuple of a class body, as typing does."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body[field] for field in fields if field in body]
            assert not defaults or list(fields)[-len(defaults)] in body, f"{name}: a field without default after one"
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key not in fields and key not in _MADE:
                    setattr(made, key, value)
            return made

    _MADE = ("__module__", "__dict__", "__weakref__", "__slots__")

    class NamedTuple(metaclass=_Maker):
        """See typing.NamedTuple."""
