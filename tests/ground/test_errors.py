"""An error's line, part by part."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import ErrorParts, HcpError, parts_of


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("found a; wanted b; do c", ErrorParts("a", "b", "do c", None)),
        (
            "x.sh does not exist; wanted a launch; check; now",
            ErrorParts("x.sh does not exist", "a launch", "check; now", None),
        ),
        ("cannot write x: No space; name a file", ErrorParts("cannot write x: No space", "", "name a file", None)),
        ("No such option: --nope", ErrorParts("No such option: --nope", "", "", None)),
        ("--cp 3: wanted 1, 2 or 4", ErrorParts("--cp 3", "1, 2 or 4", "", None)),
        ("a b.yaml:3:5: found x; wanted y; z", ErrorParts("x", "y", "z", ("a b.yaml", 3, 5))),
        ("a.yaml:3: found x; wanted y; z", ErrorParts("x", "y", "z", ("a.yaml", 3, None))),
        ("order :00: wanted y", ErrorParts("order :00", "y", "", None)),
        (f"order :{'9' * 5000}: wanted y", ErrorParts(f"order :{'9' * 5000}", "y", "", None)),
        ("found x: 3:5: odd", ErrorParts("x: 3:5: odd", "", "", None)),
    ],
)
def test_a_line_has_its_parts(line: str, parts: ErrorParts) -> None:
    assert parts_of(line) == HcpError(line).parts == parts


def test_an_error_is_one_line() -> None:
    assert str(HcpError("found a\n  b; wanted\tc")) == "found a b; wanted c"
