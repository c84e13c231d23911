"""Objectives as losses: every name in ``rhocal.objectives``, with gradients to the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rhocal.data.labels.per_sample import check_sample_shape
from rhocal.data.scores import sample_shape
from rhocal.errors import InputError
from rhocal.objectives import Objective, objective
from rhocal.profile.statistics import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class CalibrationLoss(nn.Module):
    """An objective of a mini-batch: ``CalibrationLoss("sce + 0.01*kl")``, ``"sb-ece"``, ``"avuc"``, ``"nll + soft-ece"``.

    The statistics of the samples are taken where the logits are, in single precision at least. The objective itself, a
    few numbers a sample, is the one that fits minimize: value and slope. ``sce`` is that of the batch as one bin, as in the
    paper's Algorithm 1.

    Parameters
    ----------
    objective
        A name, a sum of names, or an ``Objective``.
    ignore_index
        Samples with this label are left out.
    """

    def __init__(self, objective_: str | Objective, *, ignore_index: int = -100) -> None:
        super().__init__()
        self.objective, self.ignore_index = objective(objective_).on_batch(), ignore_index

    def forward(self, logits: Tensor, labels: Tensor, base: Tensor | None = None) -> Tensor:
        """The loss of logits (…, n_classes); ``base`` are those of the uncalibrated network, for ``kl``."""
        check_sample_shape(labels.shape, "labels", sample_shape(logits.shape, -1), "logits")
        z, y = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        kept = y != self.ignore_index
        z, y = z[kept], y[kept]
        if not len(y):
            return logits.sum() * 0
        original = None if base is None else base.reshape(-1, base.shape[-1])[kept]
        values = statistics(z, y, self.objective.needs, original)
        right = (z.detach().argmax(dim=-1) == y).double().cpu().numpy()
        facts = Facts(right, np.full(len(y), 1 / len(y)), z.shape[-1])
        loss: Tensor = _Evaluated.apply(self.objective, facts, tuple(values), *values.values())  # type: ignore[no-untyped-call]
        return loss

    def extra_repr(self) -> str:
        return repr(str(self.objective))


def statistics(z: Tensor, labels: Tensor, needs: Collection[str], base: Tensor | None) -> dict[str, Tensor]:
    """What objectives see of a sample (``rhocal.profile.statistics``), with gradients."""
    log_p = torch.log_softmax(z.to(torch.promote_types(z.dtype, torch.float32)), dim=-1)
    p = log_p.exp()
    with_base = {"kl_to_base", "kl_from_base"} & set(needs)
    if with_base and base is None:
        raise InputError("this objective has a kl term: pass base=, the logits of the network as it was")
    log_s = torch.log_softmax((z if base is None else base).detach().to(log_p.dtype), dim=-1)
    formulas: dict[str, Callable[[], Tensor]] = {
        "log_label": lambda: log_p.gather(-1, labels[:, None])[:, 0],
        "mean_log": lambda: log_p.mean(dim=-1),
        "confidence": lambda: p.amax(dim=-1),
        "entropy": lambda: -(p * log_p).sum(dim=-1),
        "sum_squares": lambda: (p * p).sum(dim=-1),
        "kl_to_base": lambda: (p * (log_p - log_s)).sum(dim=-1),
        "kl_from_base": lambda: (log_s.exp() * (log_s - log_p)).sum(dim=-1),
    }
    return {name: formulas[name]() for name in sorted(needs)}


class _Evaluated(torch.autograd.Function):
    """An objective's own value and slope."""

    @staticmethod
    def forward(ctx: Any, target: Objective, facts: Facts, names: tuple[str, ...], *values: Tensor) -> Tensor:
        arrays = {name: value.detach().double().cpu().numpy() for name, value in zip(names, values, strict=True)}
        value, slopes = target.prepare(arrays, facts).evaluate(arrays, facts)
        ctx.save_for_backward(
            *(
                torch.as_tensor(slopes[name]).to(value_.device, value_.dtype)
                for name, value_ in zip(names, values, strict=True)
            )
        )
        return values[0].new_tensor(value)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return (None, None, None, *(outer[0] * slope for slope in ctx.saved_tensors))
