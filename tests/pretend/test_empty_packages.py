"""What a package that is found empty answers to code that only looks at it."""

from __future__ import annotations

from megatron_hcp.proofs.te_cpu.absent import empty_module


def test_no_value_is_an_instance_of_an_empty_packages_class() -> None:
    arrays = empty_module("cupy")
    assert not isinstance(1, arrays.ndarray) and not isinstance(1, (arrays.ndarray, str))
