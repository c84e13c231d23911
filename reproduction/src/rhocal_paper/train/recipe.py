"""How a network is trained: the paper's numbers, each written once."""

from __future__ import annotations

from dataclasses import dataclass

from rhocal.errors import InputError
from rhocal_paper.train.adaptive import ADAPTIVE, validate_loss

CLIPS = ("gradient", "weights", "none")
KEEPS = ("last", "nll", "ece")


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent as in the paper (section Experiments, Baselines)."""

    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    """0 switches it off (Fig. 2 compares)."""
    clip: str = "gradient"
    """What is clipped: the gradient, the weights, or none of them. The paper says "weight clipping to Norm=3"."""
    clip_norm: float = 3.0
    """Gradients longer than this are shortened to it; or the incoming weights of each unit (Srivastava et al. 2014)."""
    milestones: tuple[float, ...] = (0.4, 0.8)
    """Shares of the epochs after which the learning rate falls."""
    decay: float = 0.1
    """What the learning rate is multiplied by at each."""
    loss: str = "cross-entropy"
    mixup: float = 0.0
    """α of the Beta distribution that images are blended with; 0 blends nothing."""
    share: float = 1.0
    """Share of the training images that is used, the same for every seed; the paper uses all."""
    augment: bool = True
    amp: bool = True
    """Mixed precision, on GPUs only."""
    keep: str = "last"
    """Which epoch's weights give the logits: the last, or the one with the lowest NLL or ECE on the calibration set."""
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
        self._validate_choices()

    def _validate_choices(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1; got {self.share}")
        if not all(0 < share <= 1 for share in self.milestones) or list(self.milestones) != sorted(self.milestones):
            raise InputError(f"milestones are shares of the epochs, in ascending order; got {self.milestones}")
        for name, known in (("clip", CLIPS), ("keep", KEEPS)):
            if getattr(self, name) not in known:
                raise InputError(f"{name} is one of {', '.join(known)}; got {getattr(self, name)!r}")
        validate_loss(self.loss)  # an unknown loss is an error now, not after the data is read
        if self.mixup and self.loss.partition(":")[0] in ADAPTIVE:
            raise InputError(f"mixup blends images of two labels, which loss {self.loss} does not take")

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
