"""A calibrator with its policy as a module: calibrated scores, the column that is decided, and whether it is automated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rhocal.calibrators.exporting import wants_probs
from rhocal.calibrators.policies.policy import decide_rows
from rhocal.torch.module import CalibratorModule, ExactBuffers
from rhocal.torch.ops import TorchOps

if TYPE_CHECKING:
    from rhocal.calibrators.map import Map
    from rhocal.calibrators.policies.policy import Policy


class DecisionModule(ExactBuffers):
    """Logits in; calibrated logits or probabilities, the column that is decided and whether it is automated out.

    With prediction sets a fourth tensor holds whether each class is in the set, in the shape of the scores. Decisions have the
    shape of the logits without the axis of the classes. They are made from probabilities in at least single
    precision, like those of ``Calibrator.decide``.
    """

    def __init__(self, map_: Map, policy: Policy, *, output: str = "logits", class_axis: int = -1) -> None:
        super().__init__()
        self._gives_probs = wants_probs(output)
        self.policy, self.class_axis = policy, class_axis
        self.probs = CalibratorModule(map_, output="probs", class_axis=class_axis)
        self.logits = None if self._gives_probs else CalibratorModule(map_, output="logits", class_axis=class_axis)
        numbers = {**policy.arrays, "order": np.arange(map_.n_classes, dtype=np.float64)}
        self.names = tuple(numbers)
        for name, value in numbers.items():
            self.register_buffer(f"policy_{name}", torch.from_numpy(np.array(value, np.float64)))

    def forward(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Calibrate and decide."""
        probs = self.probs(logits)
        out = probs if self.logits is None else self.logits(logits)
        p = probs.movedim(self.class_axis, -1) if logits.dim() > 1 else probs
        dtype = torch.float64 if p.device.type != "mps" else torch.float32
        held = {name: self.get_buffer(f"policy_{name}").to(dtype) for name in self.names}
        column, automated, included = decide_rows(TorchOps(dtype), self.policy, held, p.to(dtype))
        decided = out, column[..., 0].long(), automated[..., 0] > 0
        if included is None:
            return decided
        return *decided, (included > 0).movedim(-1, self.class_axis) if logits.dim() > 1 else included > 0

    def __prepare_scriptable__(self) -> nn.Module:
        """What ``torch.jit.script`` compiles in the place of this module."""
        from rhocal.torch.script import ScriptableDecisions, ScriptableSets  # noqa: PLC0415 - they are about this module

        return ScriptableDecisions(self) if self.policy.sets is None else ScriptableSets(self)
