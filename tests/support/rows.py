"""Tables whose rows are one test, which names every row that fails: an item for each costs more than most rows."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(check: Callable[..., None], table: Iterable[tuple[Any, ...]]) -> None:
    """Calls `check` with the values of each row, then fails with those rows for which it failed."""
    table, failures = list(table), []
    assert table, "a table without a row proves nothing"
    for row in table:
        try:
            check(*row)
        except (Exception, pytest.fail.Exception):
            failures.append(f"{row}\n{traceback.format_exc(limit=-1)}")
    if failures:
        pytest.fail(f"{len(failures)} of {len(table)} rows fail:\n\n" + "\n".join(failures), pytrace=False)


def rows(names: str, table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but in one test. Fixtures are shared by the rows."""
    keys, table = names.split(", "), list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def on_each_row(*args: Any, **fixtures: Any) -> None:
            def check(*values: Any) -> None:
                test(*args, **fixtures, **dict(zip(keys, values, strict=True)))

            each(check, table if len(keys) > 1 else [(value,) for value in table])

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in keys]
        assert len(kept) + len(keys) == len(signature.parameters), f"{test.__name__} lacks one of {names}"
        on_each_row.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        on_each_row.rows = table  # type: ignore[attr-defined]
        return on_each_row

    return decorate
