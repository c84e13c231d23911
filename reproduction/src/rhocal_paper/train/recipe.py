"""How a network is trained: the paper's numbers, each written once."""

from __future__ import annotations

from dataclasses import dataclass

from rhocal.errors import InputError
from rhocal_paper.train.losses import loss


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent as in the paper (section Experiments, Baselines)."""

    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    """0 switches it off (Fig. 2 compares)."""
    clip_norm: float = 3.0
    """Gradients longer than this are shortened to it."""
    milestones: tuple[float, ...] = (0.4, 0.8)
    """Shares of the epochs after which the learning rate falls."""
    decay: float = 0.1
    """What the learning rate is multiplied by at each."""
    loss: str = "cross-entropy"
    mixup: float = 0.0
    """α of the Beta distribution that images are blended with; 0 blends nothing."""
    augment: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}; got {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)}")
        for name in ("momentum", "weight_decay", "mixup"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative; got {getattr(self, name)}")
        loss(self.loss)  # an unknown loss is an error now, not after the data is read

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0.

        >>> recipe = Recipe(epochs=10)
        >>> [round(recipe.rate(epoch), 4) for epoch in (0, 3, 4, 7, 8)]
        [0.1, 0.1, 0.01, 0.01, 0.001]
        """
        passed = sum(epoch >= share * self.epochs for share in self.milestones)
        return self.learning_rate * self.decay**passed


PAPER: dict[str, Recipe] = {"tiny-imagenet": Recipe(learning_rate=0.01, batch_size=64)}
"""Where the paper departs from ``Recipe()``, by the name of the data."""
