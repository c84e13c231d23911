"""The scores shipped with the package, all of models that this project trained; ``shipped/README.md`` is their card.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("cal")
>>> logits.shape
(5000, 10)
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray

FILES = {
    "images": "images.npz",
    "table": "table.npz",
    "options": "options.npz",
    "cifar10": "cifar10-resnet18-w16-wd1e-4/logits.npz",
}
"""Name → file."""
STORY = ("images", "table", "options")
"""What ``rhocal demo`` shows."""


def demo_file(name: str = "images") -> Traversable:
    """Where a shipped file is."""
    if name not in FILES:
        raise InputError(f"name is one of {', '.join(FILES)}; got {name!r}")
    return files("rhocal").joinpath("data", "shipped", *FILES[name].split("/"))


def demo_logits(split: str = "cal", name: str = "images") -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Logits and labels of a shipped model: examples to try rhocal with.

    Parameters
    ----------
    split : {"cal", "test"}
        The calibration set, or the test set.
    name : str
        ``"images"``: an over-confident network, 10 classes, 5,000 and 5,000 images.
        ``"table"``: a classifier of generated payments, 2 classes, 4 % positive, 5,000 and 5,000 rows.
        ``"options"``: a small language model, 4 options, 3,000 and 3,000 questions.
        ``"cifar10"``: a network as the paper trains it, 10 classes, 5,000 and 10,000 images.

    Returns
    -------
    logits : ndarray of shape (n_samples, n_classes), float32
    labels : ndarray of shape (n_samples,)

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits("test", "table")
    >>> logits.shape
    (5000, 2)
    """
    if split not in {"cal", "test"}:
        raise InputError(f"split is cal or test; got {split!r}")
    with demo_file(name).open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        suffix = split if f"logits_{split}" in arrays else "val"
        return arrays[f"logits_{suffix}"].astype(np.float32), arrays[f"labels_{suffix}"].astype(np.int64)
