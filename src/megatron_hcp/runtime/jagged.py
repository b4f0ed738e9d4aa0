"""Rows of jagged nested tensors, by index: selected and joined without splitting a tensor row by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from megatron_hcp.core.shards import cu_seqlens_of
from megatron_hcp.ground.errors import HcpError


def is_jagged(value: object) -> bool:
    """Whether this is a nested tensor with layout=torch.jagged."""
    return isinstance(value, torch.Tensor) and value.is_nested and value.layout == torch.jagged


def lengths_of_rows(tensor: torch.Tensor) -> list[int]:
    """The length of each row of a jagged tensor, along its ragged dim; rows may lie apart (torch.nested.narrow)."""
    return _extents(tensor)[1].tolist()  # type: ignore[no-any-return]


def select(tensor: torch.Tensor, samples: Sequence[int]) -> torch.Tensor:
    """These rows of a jagged tensor, in this order: jagged with the same ragged dim, contiguous, differentiable."""
    starts, lengths = (extent.tolist() for extent in _extents(tensor))
    values, dim = tensor.values(), ragged_dim(tensor)
    rows = [values.narrow(dim - 1, starts[sample], lengths[sample]) for sample in samples]
    return _jagged(torch.cat(rows, dim - 1), cu_seqlens_of([lengths[sample] for sample in samples]), dim)


def join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The rows of all tensors, in order: plain where all are plain and their rows have one shape, else jagged.

    Raises:
        HcpError: rows that differ in more than their length.
    """
    if not any(tensor.is_nested for tensor in tensors) and len({tensor.shape[1:] for tensor in tensors}) == 1:
        return torch.cat(list(tensors))
    dim = next((ragged_dim(tensor) for tensor in tensors if tensor.is_nested), 1)
    shapes = {_row_shape(tensor, dim) for tensor in tensors}
    if len(shapes) > 1 or None in shapes:
        raise HcpError(
            f"rows of shapes {sorted({str(tuple(tensor.shape[1:])) for tensor in tensors})} differ", wanted="one"
        )
    parts = [_packed(tensor, dim) for tensor in tensors]
    lengths = [length for _, lengths in parts for length in lengths]
    return _jagged(torch.cat([values for values, _ in parts], dim - 1), cu_seqlens_of(lengths), dim)


def ragged_dim(tensor: torch.Tensor) -> int:
    """The dim that a jagged tensor's rows differ in, counting the batch dim: 1, or 2 for [n, 3, j]."""
    return int(tensor._ragged_idx)  # torch has no public name for it


def _extents(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(starts, lengths) of the rows within values(), int64 [n] each, on the CPU."""
    offsets, lengths = tensor.offsets().cpu().to(torch.int64), tensor.lengths()
    return offsets[:-1], offsets.diff() if lengths is None else lengths.cpu().to(torch.int64)


def _packed(tensor: torch.Tensor, dim: int) -> tuple[torch.Tensor, list[int]]:
    """(values without gaps, lengths of the rows)."""
    if not tensor.is_nested:
        return torch.cat(tensor.unbind(), dim - 1), [tensor.shape[dim]] * tensor.shape[0]
    if not tensor.is_contiguous():
        tensor = select(tensor, range(tensor.shape[0]))
    return tensor.values(), lengths_of_rows(tensor)


def _row_shape(tensor: torch.Tensor, dim: int) -> tuple[int, ...] | None:
    """The shape of a row without its ragged dim; None for a tensor that has no such dim, or another."""
    if tensor.dim() <= dim or (tensor.is_nested and ragged_dim(tensor) != dim):
        return None
    return tuple(size for place, size in enumerate(tensor.shape) if place not in (0, dim))


def _jagged(values: torch.Tensor, offsets: Sequence[int], dim: int) -> torch.Tensor:
    places = torch.tensor(offsets, dtype=torch.int64, device=values.device)
    return torch.nested.nested_tensor_from_jagged(values, offsets=places, jagged_dim=dim)
