"""Files of top-k data: ``top_log_probs`` or ``top_probs``, ``top_indices``, ``n_classes``, ``rest_log_mass``, and others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats import open_file
from rhocal.data.formats.base import read_all
from rhocal.data.top_k import TopK
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rhocal.data.formats.base import Names

VALUES = {"top_log_probs": "log_probs", "top_probs": "probs"}
"""Arrays of the k best, and what they hold."""

ENDINGS = (".npz", ".safetensors")


@dataclass(frozen=True, eq=False)
class TopKFile:
    """The k best classes of the samples of a file, and its other arrays."""

    path: Path
    top: TopK
    arrays: Mapping[str, Any]
    """Labels, weights, names of classes and whatever else stands beside the k best."""

    def per_sample(self, name: str) -> Any:
        """An array with one value for each sample."""
        if name not in self.arrays:
            raise FileError(f"{self.path}: has no array {name!r}; found {', '.join(self.arrays) or 'no other arrays'}")
        values = self.arrays[name]
        if np.shape(values) != (self.top.n_samples,):
            raise FileError(
                f"{self.path}: {name} holds one value for each of the {self.top.n_samples:,} samples; got shape "
                f"{np.shape(values)}"
            )
        return values


def read_top_k(path: Path, names: Names) -> TopKFile | None:
    """A file of the k best classes; None if it holds something else."""
    if path.suffix not in ENDINGS or not path.is_file():
        return None
    file = open_file(path, names)
    name = next((name for name in VALUES if name in file.arrays), None)
    if name is None or names.logits in file.arrays:
        return None
    missing = [needed for needed in ("top_indices", "n_classes") if needed not in file.arrays]
    if missing:
        raise FileError(f"{path}: has {name} without {' and '.join(missing)}; found {', '.join(file.describe())}")
    arrays = {key: read_all(array, path) for key, array in file.arrays.items()}
    n_classes = np.asarray(arrays["n_classes"]).reshape(-1)
    if len(n_classes) != 1 or n_classes.dtype.kind not in "iu":
        raise FileError(f"{path}: n_classes must be one whole number; got {n_classes.tolist()[:4]}")
    try:
        rest = arrays.get("rest_log_mass")
        top = TopK.from_arrays(arrays[name], arrays["top_indices"], rest, int(n_classes[0]), kind=VALUES[name])
    except InputError as error:
        raise error.at(str(path)) from error
    used = {*VALUES, "top_indices", "n_classes", "rest_log_mass"}
    return TopKFile(path, top, {key: array for key, array in arrays.items() if key not in used})
