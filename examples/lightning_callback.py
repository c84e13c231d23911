"""A Lightning callback that calibrates when training ends.

python examples/lightning_callback.py
"""

import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rhocal.torch.lightning import Calibrate


class Net(pl.LightningModule):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.layers(x)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """Nothing to watch here."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), 1e-2)


torch.manual_seed(0)
x = torch.randn(1500, 20)
y = (x[:, :4] + torch.randn(1500, 4)).argmax(dim=1)
train, tune = DataLoader(TensorDataset(x[:500], y[:500]), 100), DataLoader(TensorDataset(x[500:], y[500:]), 500)

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
callback = Calibrate("temperature")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Lightning, about loaders without workers
    trainer = pl.Trainer(
        max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback],
    )  # fmt: skip
    trainer.fit(Net(), train, tune)
assert callback.calibrated is not None
print(f"temperature {callback.calibrated.fitted.temperature_:.3f}")
print(f"probabilities of shape {tuple(callback.calibrated.predict_proba(x[:3]).shape)}")
