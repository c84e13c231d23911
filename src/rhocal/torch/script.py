"""Maps for ``torch.jit.script``, which cannot read their formulas: traces of both precisions behind a forward that it can."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.torch.decisions import DecisionModule
    from rhocal.torch.module import CalibratorModule


class TracedRows(nn.Module):
    """Traces of a module in both precisions, and rows of classes out of logits of any shape."""

    def __init__(self, module: CalibratorModule | DecisionModule, parts: Sequence[CalibratorModule]) -> None:
        super().__init__()
        first = parts[0]
        self.n_classes, self.class_axis = first.map_.n_classes, first.class_axis
        self.probs = parts[-1].output == "probs"
        device = next((buffer.device for buffer in module.buffers()), torch.device("cpu"))
        axis = self.class_axis
        try:
            for part in (module, *parts):
                part.class_axis = -1
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # of the tracer, that sizes become constants: the number of classes is one
                rows = torch.zeros(2, self.n_classes, device=device)
                self.single_rows = torch.jit.trace(module, rows, check_trace=False)  # type: ignore[no-untyped-call]
                has_double = device.type != "mps"
                wide = rows.double() if has_double else rows
                self.double_rows = torch.jit.trace(module, wide, check_trace=False)  # type: ignore[no-untyped-call]
        finally:
            for part in (module, *parts):
                part.class_axis = axis

    def moved(self, logits: Tensor) -> Tensor:
        """Logits with the classes on the last axis."""
        n_columns = 1 if logits.dim() == 1 else logits.size(self.class_axis)
        if n_columns == 1 and self.n_classes == 2:
            raise ValueError("a scripted calibrator takes a column for each of the two classes, not one score")
        if n_columns != self.n_classes:
            raise ValueError("logits have another number of classes than the calibrator was fitted with")
        return logits.movedim(self.class_axis, -1)

    def scores(self, out: Tensor, logits: Tensor, moved: Tensor) -> Tensor:
        """Calibrated rows in the type and the shape of the logits."""
        if not self.probs and logits.is_floating_point():
            if logits.dtype == torch.float16:
                out = out.clamp(min=-65504.0)
            out = out.to(logits.dtype)
        return out.reshape(moved.shape).movedim(-1, self.class_axis)


class ScriptableCalibrator(TracedRows):
    """A calibrator for ``torch.jit.script``, with the input and output of ``CalibratorModule``."""

    def __init__(self, module: CalibratorModule) -> None:
        super().__init__(module, [module])

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrate."""
        moved = self.moved(logits)
        table = moved.reshape(-1, self.n_classes)
        is_double = logits.dtype == torch.float64
        out = self.double_rows(table) if is_double else self.single_rows(table.to(torch.float32))
        return self.scores(out, logits, moved)


class ScriptableDecisions(TracedRows):
    """A calibrator with a policy for ``torch.jit.script``, with the input and output of ``DecisionModule``."""

    def __init__(self, module: DecisionModule) -> None:
        super().__init__(module, [module.probs] if module.logits is None else [module.probs, module.logits])

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Calibrate and decide."""
        moved = self.moved(logits)
        table = moved.reshape(-1, self.n_classes)
        is_double = logits.dtype == torch.float64
        out, column, automated = self.double_rows(table) if is_double else self.single_rows(table.to(torch.float32))
        shape = moved.shape[:-1]
        return self.scores(out, logits, moved), column.reshape(shape), automated.reshape(shape)


class ScriptableSets(ScriptableDecisions):
    """The same with prediction sets."""

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Calibrate and decide."""
        moved = self.moved(logits)
        table = moved.reshape(-1, self.n_classes)
        is_double = logits.dtype == torch.float64
        out, column, automated, included = (
            self.double_rows(table) if is_double else self.single_rows(table.to(torch.float32))
        )
        shape = moved.shape[:-1]
        sets = included.reshape(moved.shape).movedim(-1, self.class_axis)
        return self.scores(out, logits, moved), column.reshape(shape), automated.reshape(shape), sets


class ScriptableModel(nn.Module):
    """A model with its calibrator for ``torch.jit.script``: one tensor in, calibrated logits out."""

    def __init__(self, model: nn.Module, calibrator: CalibratorModule, *, get_logits: Any = None) -> None:
        super().__init__()
        by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        arguments = inspect.signature(model.forward).parameters.values()
        needed = [one.name for one in arguments if one.default is one.empty and one.kind in by_name]
        if get_logits is not None or len(needed) > 1:
            reason = "get_logits is set" if get_logits is not None else f"the model takes {', '.join(needed)}"
            raise InputError(
                f"torch.jit.script compiles a calibrated model that takes one tensor and returns logits; here {reason}. "
                "Script a module of your own that calls the model and then cal.to_torch(), or use torch.export"
            )
        self.model, self.calibrator = model, ScriptableCalibrator(calibrator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Calibrated logits."""
        return self.calibrator(self.model(inputs))
