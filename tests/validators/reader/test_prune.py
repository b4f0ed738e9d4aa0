"""What no guard needs is left out of a program."""

from __future__ import annotations

import pytest

from megatron_hcp.validators.program import Unit
from megatron_hcp.validators.reader.prune import pruned


@pytest.mark.parametrize(("read", "kept"), [("A", True), ("B", False)])
def test_a_variable_that_is_set_stays_where_something_reads_it(read: str, kept: bool) -> None:
    lines = ("do setenv('A', '1')", f"check env('{read}', '0') == args.n\tno")
    units = {"start": Unit("start", "def", ("args",), "a.py", lines)}
    assert (lines[0] in pruned(units, ("start",))["start"].lines) == kept
