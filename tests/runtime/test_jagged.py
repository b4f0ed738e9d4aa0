"""Rows of jagged tensors, selected and joined without taking the tensor apart."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from megatron_hcp.ground.errors import HcpError  # noqa: E402
from megatron_hcp.runtime.jagged import join, lengths_of_rows, select  # noqa: E402

pytestmark = pytest.mark.torch


def rows_of(*lengths: int) -> list[Any]:
    return [torch.arange(length) + 100 * number for number, length in enumerate(lengths)]


def narrowed() -> Any:
    """Rows of 3 and 4 in a buffer with 10 places for each: jagged, but not contiguous."""
    return torch.nested.narrow(
        torch.arange(20).reshape(2, 10), 1, torch.tensor([0, 5]), torch.tensor([3, 4]), layout=torch.jagged
    )


def positions(*lengths: int) -> Any:
    """[n, 3, j]: three position ids for each token, as a multimodal model has."""
    values = torch.arange(3 * sum(lengths)).reshape(3, sum(lengths))
    offsets = torch.tensor([sum(lengths[:number]) for number in range(len(lengths) + 1)])
    return torch.nested.nested_tensor_from_jagged(values, offsets=offsets, jagged_dim=2)


def equal(found: Any, wanted: list[Any]) -> bool:
    return len(found.unbind()) == len(wanted) and all(map(torch.equal, found.unbind(), wanted))


def test_lengths_are_those_of_the_rows_also_where_they_lie_apart() -> None:
    assert lengths_of_rows(torch.nested.nested_tensor(rows_of(3, 1, 4), layout=torch.jagged)) == [3, 1, 4]
    assert lengths_of_rows(narrowed()) == [3, 4]
    assert lengths_of_rows(positions(5, 2, 6)) == [5, 2, 6]


@pytest.mark.parametrize("samples", [[2, 0], [1], [0, 1, 2], [1, 1]])
def test_selected_rows_are_those_of_the_tensor_in_the_order_asked_for(samples: list[int]) -> None:
    for tensor in (
        torch.nested.nested_tensor(rows_of(3, 1, 4), layout=torch.jagged),
        torch.nested.nested_tensor([torch.randn(n, 2, 2) for n in (3, 1, 4)], layout=torch.jagged),
        positions(5, 2, 6),
    ):
        rows = tensor.unbind()
        found = select(tensor, samples)
        assert equal(found, [rows[sample] for sample in samples])
        assert found._ragged_idx == tensor._ragged_idx
        assert found.dtype == tensor.dtype


def test_rows_that_lie_apart_are_selected_without_what_lies_between() -> None:
    assert equal(select(narrowed(), [1, 0]), [torch.tensor([15, 16, 17, 18]), torch.tensor([0, 1, 2])])


def test_an_empty_row_stays_a_row() -> None:
    tensor = torch.nested.nested_tensor(rows_of(3, 0, 2), layout=torch.jagged)
    assert [len(row) for row in select(tensor, [1, 2]).unbind()] == [0, 2]


def test_gradients_pass_through_a_selection() -> None:
    values = torch.ones(6, requires_grad=True)
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets=torch.tensor([0, 2, 6]))
    select(tensor, [1]).values().sum().backward()
    assert values.grad.tolist() == [0, 0, 1, 1, 1, 1]


def test_joined_tensors_have_the_rows_of_all_in_order() -> None:
    first, second = positions(5, 2), positions(1, 6)
    joined = join([first, second])
    assert equal(joined, [*first.unbind(), *second.unbind()])
    assert joined._ragged_idx == 2
    plain = join([torch.zeros(2, 4, 5), torch.ones(1, 4, 5)])
    assert plain.shape == (3, 4, 5) and not plain.is_nested


def test_plain_tensors_whose_rows_differ_in_length_are_joined_as_jagged() -> None:
    joined = join([torch.zeros(2, 4), torch.ones(1, 3)])
    assert equal(joined, [torch.zeros(4), torch.zeros(4), torch.ones(3)])


def test_jagged_and_plain_tensors_are_joined_as_jagged() -> None:
    joined = join([torch.nested.nested_tensor(rows_of(2, 3), layout=torch.jagged), torch.tensor([[7, 8, 9, 9]])])
    assert equal(joined, [*rows_of(2, 3), torch.tensor([7, 8, 9, 9])])


@pytest.mark.parametrize(
    "parts",
    [
        [torch.zeros(2, 4), torch.zeros(2, 4, 5)],
        [torch.zeros(2), torch.zeros(2, 4)],
        [positions(2, 3), torch.zeros(1, 4, 5)],
    ],
    ids=["dims", "scalars and rows", "sizes"],
)
def test_tensors_whose_rows_differ_in_more_than_a_length_are_refused(parts: list[Any]) -> None:
    with pytest.raises(HcpError, match="differ"):
        join(parts)
