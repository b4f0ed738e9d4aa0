"""`--ignore START001/GUARD`: a guard that no release has is an error that names a near one."""

from __future__ import annotations

import pytest

from megatron_hcp.ground.errors import HcpError
from megatron_hcp.rules.start.names import refuse_unknown_guards

BF16 = "START001/validate_args/bf16-c4ee"


@pytest.mark.parametrize("names", [BF16, f"HCP001,{BF16}", "TOPO", "HCP/1", ""])
def test_start001_a_guard_that_exists_passes(names: str) -> None:
    refuse_unknown_guards("--ignore", names)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("START001/validate_args/bf16-0000", "wanted START001/validate_args/bf16-c4ee"),
        ("START001/validate_arg/bf16-c4ee", "wanted START001/validate_args/bf16-c4ee"),
        ("START001/nope", "wanted one that hcp explain START001 lists"),
        ("START001/" + "x" * 5000, "wanted one that hcp explain START001 lists"),
    ],
)
def test_start001_a_guard_that_does_not_is_refused_and_the_nearest_named(name: str, near: str) -> None:
    with pytest.raises(HcpError, match="and no such guard") as refused:
        refuse_unknown_guards("--ignore", name)
    assert near in str(refused.value)
    assert len(str(refused.value)) < 400
