"""Metrics of the table as ``torchmetrics.Metric``: the same sums as states, so they add over batches and processes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rhocal.data.labels.per_sample import check_sample_shape
from rhocal.data.scores import sample_shape
from rhocal.errors import InputError, MissingExtraError
from rhocal.metrics import METRICS

try:
    import torchmetrics
except ImportError as error:
    raise MissingExtraError("torchmetrics", "torchmetrics", "rhocal.torch.metrics") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from rhocal.data.predictions import Kind


class CalibrationMetric(torchmetrics.Metric):  # type: ignore[misc]
    """A metric of ``rhocal.metrics`` that streams, by its name: ``CalibrationMetric("ece", num_classes=10, n_bins=15)``.

    The state is one vector of sums, of a size that does not grow with the data; processes add theirs.

    Parameters
    ----------
    name
        In the table of metrics; ``rhocal metrics`` lists those that stream.
    num_classes
        Of the predictions.
    kind
        ``"logits"`` or ``"probs"``.
    class_axis, ignore_index
        As in ``torch.nn.CrossEntropyLoss``: 1 for (N, C, H, W); labels to leave out.
    sketch
        Approximate metrics that need all samples at once in fixed memory.
    """

    full_state_update = False
    is_differentiable = False
    sums: Tensor

    def __init__(
        self,
        name: str = "ece",
        *,
        num_classes: int,
        kind: Kind = "logits",
        class_axis: int = -1,
        ignore_index: int | None = -100,
        sketch: bool = False,
        **options: Any,
    ) -> None:
        own = {key: options.pop(key) for key in list(options) if key in TORCHMETRICS}
        super().__init__(**own)
        if name not in METRICS:
            raise InputError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
        self.metric, self.kind, self.class_axis, self.ignore_index = METRICS[name], kind, class_axis, ignore_index
        self.options = {**options, "sketch": sketch}
        self._like = self.metric.of(np.full((1, num_classes), 1 / num_classes), [0], **self.options)
        size = sum(leaf.size for leaf in leaves(self._like))
        self.add_state("sums", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool | None:
        """Whether a larger value is better, for torchmetrics."""
        return {"higher": True, "lower": False}.get(self.metric.better)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch."""
        z = preds if preds.dim() == 1 else preds.movedim(self.class_axis, -1).reshape(-1, preds.size(self.class_axis))
        check_sample_shape(target.shape, "target", sample_shape(preds.shape, self.class_axis), "preds")
        y = target.reshape(-1)
        if self.ignore_index is not None:
            kept = y != self.ignore_index
            z, y = z[kept], y[kept]
        if len(y):
            state = self.metric.of(z, y, kind=self.kind, **self.options)
            flat = np.concatenate([leaf.ravel() for leaf in leaves(state)])
            self.sums = self.sums + torch.from_numpy(flat).to(self.sums.device, self.sums.dtype)

    def compute(self) -> Tensor:
        """The value over all batches."""
        state, _ = rebuilt(self._like, self.sums.double().cpu().numpy())
        return torch.tensor(state.value, dtype=torch.float32, device=self.sums.device)

    def set_dtype(self, dst_type: Any) -> Any:  # noqa: ARG002
        """Sums stay in double precision: a million samples do not fit into half."""
        return self


TORCHMETRICS = {"compute_on_cpu", "dist_sync_on_step", "process_group", "dist_sync_fn", "sync_on_compute"}
"""Options that are torchmetrics' own."""


def leaves(state: Any) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """The numbers of a state of sums, in a fixed order; whole numbers (of bins) are not sums."""
    if is_dataclass(state):
        for field in fields(state):
            yield from leaves(getattr(state, field.name))
    elif isinstance(state, tuple):
        for one in state:
            yield from leaves(one)
    elif isinstance(state, float | np.floating) or (isinstance(state, np.ndarray) and state.dtype.kind == "f"):
        yield np.asarray(state, dtype=np.float64)


def rebuilt(like: Any, flat: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Any, Any]:
    """A state with these numbers in the places of ``leaves``, and the numbers left over."""
    if is_dataclass(like) and not isinstance(like, type):
        parts = {}
        for field in fields(like):
            parts[field.name], flat = rebuilt(getattr(like, field.name), flat)
        return replace(like, **parts), flat
    if isinstance(like, tuple):
        members = []
        for member in like:
            part, flat = rebuilt(member, flat)
            members.append(part)
        return tuple(members), flat
    if isinstance(like, np.ndarray) and like.dtype.kind == "f":
        return flat[: like.size].reshape(like.shape), flat[like.size :]
    if isinstance(like, float | np.floating):
        return float(flat[0]), flat[1:]
    return like, flat
