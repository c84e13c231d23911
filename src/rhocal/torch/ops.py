"""The operations of maps on tensors: any device, with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rhocal.numerics.ops import Ops, Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class TorchOps(Ops):
    """Operations of torch in one floating type."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.tiny, self.eps = float(torch.finfo(dtype).tiny), float(torch.finfo(dtype).eps)

    def max(self, x: Value) -> Value:
        return torch.amax(x, dim=-1, keepdim=True)

    def sum(self, x: Value) -> Value:
        return torch.sum(x, dim=-1, keepdim=True)

    def mean(self, x: Value) -> Value:
        return torch.mean(x, dim=-1, keepdim=True)

    def cumsum(self, x: Value) -> Value:
        return torch.cumsum(x, dim=-1)

    def sort(self, x: Value) -> Value:
        return torch.sort(x, dim=-1).values

    def top(self, x: Value, k: int) -> Value:
        return torch.topk(x, k, dim=-1).values

    def exp(self, x: Value) -> Value:
        return torch.exp(x)

    def log(self, x: Value) -> Value:
        return torch.log(x)

    def abs(self, x: Value) -> Value:
        return torch.abs(x)

    def sqrt(self, x: Value) -> Value:
        return torch.sqrt(x)

    def tanh(self, x: Value) -> Value:
        return torch.tanh(x)

    def power(self, x: Value, exponent: Value) -> Value:
        return torch.pow(x, exponent)

    def maximum(self, x: Value, y: Value) -> Value:
        return torch.maximum(x, y) if isinstance(y, torch.Tensor) else torch.clamp(x, min=y)

    def minimum(self, x: Value, y: Value) -> Value:
        return torch.minimum(x, y) if isinstance(y, torch.Tensor) else torch.clamp(x, max=y)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return torch.where(condition, self._number(x, condition), self._number(y, condition))

    def take(self, table: Value, index: Value) -> Value:
        return table[index]

    def take_in_rows(self, x: Value, index: Value) -> Value:
        return torch.gather(x, -1, index)

    def matmul(self, x: Value, weight: Value) -> Value:
        with torch.autocast(device_type=x.device.type, enabled=False):  # it would round both to half precision
            return torch.matmul(x, weight)

    def concat(self, parts: Sequence[Value]) -> Value:
        return torch.cat(list(parts), dim=-1)

    def column(self, x: Value, k: int) -> Value:
        return x[..., k : k + 1]

    def _number(self, x: Value, like: torch.Tensor) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            return x
        return torch.full((), x, dtype=self.dtype if isinstance(x, float) else torch.int64, device=like.device)
