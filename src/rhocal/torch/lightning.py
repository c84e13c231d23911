"""A Lightning callback that calibrates a model when its training ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.calibrators.registry import DEFAULT_METHOD
from rhocal.errors import InputError, MissingPackageError
from rhocal.torch.collect import Calibrated, calibrate, evaluating, plain_step

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise MissingPackageError("lightning", "rhocal.torch.lightning") from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.calibrators import Calibrator


class Calibrate(Callback):
    """Fits a calibrator on the validation data after ``trainer.fit``; ``calibrated`` is the model with it.

    With several processes each would fit on its own part of the data, so it refuses: load the checkpoint in one process and
    call ``rhocal.torch.calibrate``.

    Parameters
    ----------
    method, step, options
        As in ``rhocal.torch.calibrate``.
    """

    calibrated: Calibrated | None = None

    def __init__(
        self, method: str | Calibrator = DEFAULT_METHOD, *, step: Callable[..., Any] | None = None, **options: Any
    ) -> None:
        self.method, self.step, self.options = method, step, options

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Collect, fit, keep."""
        if trainer.world_size > 1:
            raise InputError(
                "rhocal.torch.lightning.Calibrate works in one process; call rhocal.torch.calibrate afterwards"
            )
        loaders = trainer.val_dataloaders
        if not loaders:
            raise InputError("there is no validation data to calibrate on; give trainer.fit a val_dataloader")
        loader = loaders[0] if isinstance(loaders, list | tuple) else loaders
        with evaluating(pl_module):
            self.calibrated = calibrate(pl_module, loader, self.method, step=self.step or plain_step, **self.options)
