"""Models of Hugging Face transformers with a calibrator: their arguments, outputs, loss and folders stay theirs."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from os import PathLike

CALIBRATOR_FILE = "calibrator.safetensors"
"""The calibrator in the folder that ``save_pretrained`` writes."""


def is_pretrained(model: nn.Module) -> bool:
    """Whether a model is one of transformers, without importing it."""
    return hasattr(model, "save_pretrained") and hasattr(model, "config")


class PretrainedMethods:
    """What a calibrated model of transformers has besides ``Calibrated``."""

    model: Any
    fitted: Any

    @property
    def config(self) -> Any:
        """The configuration of the model."""
        return self.model.config

    def save_pretrained(self, folder: str | PathLike[str], **options: Any) -> None:
        """Write the model as transformers does, and the calibrator beside it.

        ``Calibrated(AutoModel….from_pretrained(folder), rhocal.load(folder + "/calibrator.safetensors"))`` reads both.
        """
        self.model.save_pretrained(folder, **options)
        self.fitted.save(Path(folder) / CALIBRATOR_FILE)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return _new, (type(self).__mro__[1], type(self.model)), self.__dict__


def pretrained_class(base: Any, model_class: Any) -> Any:
    """A subclass for models of a class, with their arguments: ``Trainer`` drops columns that ``forward`` does not name."""
    return _class_of(base, model_class)


@cache
def _class_of(base: Any, model_class: Any) -> Any:
    def forward(self: Any, *inputs: Any, **keywords: Any) -> Any:
        return base.forward(self, *inputs, **keywords)

    forward.__signature__ = inspect.signature(model_class.forward)  # type: ignore[attr-defined]
    forward.__doc__ = base.forward.__doc__
    return type(base.__name__, (base, PretrainedMethods), {"forward": forward, "__module__": base.__module__})


def _new(base: Any, model_class: Any) -> Any:
    kind: Any = pretrained_class(base, model_class)
    return kind.__new__(kind)


def with_loss(output: Any, uncalibrated: Tensor, labels: Any) -> Any:
    """An output with calibrated logits, and their loss in place of that of the uncalibrated ones.

    It is left out where it is not the cross-entropy of the logits, which could not be computed again.
    """
    loss = output.get("loss") if isinstance(output, dict) else None
    if loss is not None:
        output["loss"] = _cross_entropy_like(loss, uncalibrated, output["logits"], labels)
    return output


def _cross_entropy_like(loss: Tensor, uncalibrated: Tensor, calibrated: Tensor, labels: Any) -> Tensor | None:
    if not isinstance(labels, Tensor) or labels.shape != uncalibrated.shape[:-1] or labels.is_floating_point():
        return None
    # One label for a row of logits; or, in language models, the next token.
    shifts = (0, 1) if labels.dim() > 1 else (0,)
    for shift in shifts:
        before, after = (_cross_entropy(logits, labels, shift) for logits in (uncalibrated, calibrated))
        if torch.allclose(loss.detach().float(), before, rtol=1e-3, atol=1e-6):
            return after.to(loss.dtype)
    return None


def _cross_entropy(logits: Tensor, labels: Tensor, shift: int) -> Tensor:
    if shift:
        logits, labels = logits[..., :-shift, :], labels[..., shift:]
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))
