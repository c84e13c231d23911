"""The container of scores: arrays in memory, tensors on a device, Dask arrays; and the shape in which results go back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np

from rhocal.errors import InputError, SuspiciousInputWarning, warn
from rhocal.numerics.special import Floats, scan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.spec import Kind
    from rhocal.numerics.kernels import Scan
    from rhocal.numerics.special import Vector

HOST_DEVICES = {"cpu"}
"""Devices whose tensors share their memory with NumPy arrays."""


class DeviceScores(Protocol):
    """A matrix of scores on a device. Validation and fits of scales run there; a few numbers per sample come to the host."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples and of classes."""

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: NDArray[Any] | slice) -> Self: ...

    def scan(self) -> Scan:
        """Largest score, its column, and sum of every row."""

    def gather(self, columns: NDArray[np.intp]) -> Vector:
        """The score of one column for each sample."""

    def exp(self) -> Self:
        """Exp of the scores, none above e."""

    def finite_masks(self) -> Self:
        """The lowest finite number in place of −∞."""

    def as_logits(self, kind: Kind, smallest_prob: float | None = None) -> Self:
        """As ``Predictions.logits``, on the device."""

    def passes(self) -> Any:
        """``rhocal.profile.passes.Passes`` over the scores, which are logits."""

    def to_host(self) -> Any:
        """The scores in memory, in their own type."""


Scores: TypeAlias = Floats | DeviceScores
"""A matrix of scores, in memory or on a device."""


def on_device(scores: Any, class_axis: int) -> tuple[DeviceScores, str] | None:
    """Scores that are on a device other than the host, as a matrix, and the name of their type. None for all others.

    Binary scores with one column are one number for each sample: those are copied to the host.
    """
    if not is_tensor(scores) or scores.device.type in HOST_DEVICES:
        return None
    if not -scores.dim() <= class_axis < scores.dim() or scores.dim() < 2 or scores.shape[class_axis] < 2:
        return None
    from rhocal.torch.device import TensorScores  # noqa: PLC0415 - torch is imported if its tensors are

    table: DeviceScores = TensorScores.from_tensor(scores, class_axis)
    return table, str(scores.dtype).removeprefix("torch.")


def scan_scores(scores: Scores) -> Scan:
    """Largest score, its column, and sum of every row."""
    return scan(scores) if isinstance(scores, np.ndarray) else scores.scan()


def is_tensor(values: Any) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    return type(values).__module__.partition(".")[0] == "torch" and hasattr(values, "detach")


def check_tensor(values: Any, name: str) -> Any:
    """A tensor whose numbers NumPy can read, or anything that is no tensor; an error for other tensors."""
    if not is_tensor(values):
        return values
    kind = str(values.dtype).removeprefix("torch.")
    problem = (
        "has no data (device meta)" if values.device.type == "meta"
        else "is a nested tensor" if values.is_nested
        else "is sparse; pass to_dense()" if str(values.layout) != "torch.strided"
        else f"is quantized ({kind}); pass dequantize()" if values.is_quantized
        else f"has type {kind}; pass float()" if kind.startswith(("float8", "float4", "complex", "bits", "uint1", "int1"))
        and kind not in {"uint16", "int16"}
        else ""
    )  # fmt: skip
    if problem:
        raise InputError(f"{name} {problem}")
    return values.resolve_neg() if values.is_neg() else values


LIST_LIBRARIES = frozenset({"pandas", "polars", "pyarrow"})

READING_METHODS = ("toPandas", "df", "collect", "to_pandas")
"""What frames call the method that reads their rows into memory."""


def check_frame_in_memory(values: Any, name: str) -> None:
    """Raise an error for a frame whose rows are not in memory: a lazy frame, or the result of a query."""
    kind = type(values)
    if not hasattr(kind, "columns") or hasattr(kind, "__array__"):
        return
    reading = next((method for method in READING_METHODS if hasattr(kind, method)), None)
    remedy = f"pass what its {reading}() returns" if reading else "pass a data frame or an array"
    raise InputError(
        f"{name}: the rows of a {kind.__name__} ({kind.__module__.partition('.')[0]}) are not in memory; {remedy}"
    )


def check_containers(scores: Any, labels: Any, weights: Any, groups: Any, name: str) -> tuple[Any, Any, Any, Any]:
    """Scores as ``unpack_lists`` gives them, and what stands beside them as ``check_tensor`` does."""
    beside = (labels, "labels"), (weights, "sample_weight"), (groups, "groups")
    for values, argument in beside:
        _suspect_index(scores, values, name, argument)
    return unpack_lists(scores, name), *(check_tensor(values, argument) for values, argument in beside)


def _suspect_index(scores: Any, values: Any, name: str, argument: str) -> None:
    """Warn if both have the same index (pandas) in another order: one of them may have been shuffled alone."""
    ours: Any = getattr(scores, "index", None)
    theirs: Any = getattr(values, "index", None)
    if any(type(index).__module__.partition(".")[0] != "pandas" for index in (ours, theirs)):
        return
    if (ours.nlevels, ours.dtype) != (theirs.nlevels, theirs.dtype):  # pandas may refuse to compare them
        return
    if len(ours) == len(theirs) and not ours.equals(theirs) and ours.isin(theirs).all() and theirs.isin(ours).all():
        warn(
            f"the index of {argument} is that of {name} in another order, and rows are matched by position. If rows of "
            f"equal index belong together, pass {argument}.reindex({name}.index), else {argument}.to_numpy()",
            SuspiciousInputWarning,
        )


def unpack_lists(values: Any, name: str) -> Any:
    """Scores as ``check_tensor`` passes them; a column of lists, one for each sample, becomes a matrix."""
    values = check_tensor(values, name)
    check_frame_in_memory(values, name)
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if type(values).__module__.partition(".")[0] not in LIST_LIBRARIES or (len(shape) == 2 and shape[1] != 1):
        return values
    array = np.asarray(values)
    if array.dtype.kind != "O":
        return array if len(shape) < array.ndim == 2 else values  # lists of a fixed size
    lengths = [len(row) if isinstance(row, list | tuple | np.ndarray) else None for row in array.reshape(-1)]
    if not lengths or set(lengths) == {None}:  # numbers that are stored as objects
        return values
    if len(set(lengths)) > 1:
        row = next(k for k, length in enumerate(lengths) if length != lengths[0])
        held = ["is no list" if lengths[k] is None else f"has {lengths[k]} numbers" for k in (0, row)]
        raise InputError(
            f"{name}: in the column of lists row 0 {held[0]} and row {row} {held[1]}; pass one for each class"
        )
    return np.stack([np.asarray(row) for row in array.reshape(-1)])


def is_dask(logits: Any) -> bool:
    """Whether it is a Dask array, without importing Dask."""
    return type(logits).__module__.split(".")[0] == "dask"


def restore_shape(out: Floats, scores: Any, class_axis: int) -> Floats:
    """Rows of results in the shape in which the logits came."""
    shape = np.shape(scores)
    if len(shape) <= 2 and class_axis % max(len(shape), 1) == len(shape) - 1:
        return out
    axis = class_axis % len(shape)
    rest = [n for i, n in enumerate(shape) if i != axis]
    return np.moveaxis(out.reshape([*rest, out.shape[1]]), -1, axis)
