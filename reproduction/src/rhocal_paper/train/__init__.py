"""Training networks as the paper did (``pip install 'rhocal[train]'``): images in, a file of logits out.

>>> from pathlib import Path
>>> from rhocal_paper.train import Model, Recipe, load, train
>>> data = load("cifar10", Path("data"))                                   # doctest: +SKIP
>>> train(data, Model("resnet18", width=16), Recipe(epochs=30), Path("run"))  # doctest: +SKIP
"""

from __future__ import annotations

from rhocal.errors import MissingExtraError

try:
    import torch  # noqa: F401 - asked here once, so that the message is one
except ImportError as error:
    raise MissingExtraError("torch", "train", "rhocal_paper.train") from error

from rhocal_paper.train.data import Dataset, Images, load
from rhocal_paper.train.job import Job
from rhocal_paper.train.losses import LOSSES, loss
from rhocal_paper.train.networks import NETWORKS, n_parameters, network
from rhocal_paper.train.recipe import PAPER, Recipe
from rhocal_paper.train.run import Model, train

__all__ = [
    "LOSSES", "NETWORKS", "PAPER", "Dataset", "Images", "Job", "Model", "Recipe", "load", "loss", "n_parameters",
    "network", "train",
]  # fmt: skip
