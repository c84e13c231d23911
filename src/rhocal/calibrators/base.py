"""The common face of all calibrators.

They speak scikit-learn's protocol (``fit``, ``predict_proba``, ``get_params``, ``clone``) without importing it.
Calibrators return calibrated *logits*; softmax happens once, at the door.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rhocal.errors import InputError, NotFittedError
from rhocal.passes import ArrayPasses
from rhocal.predictions import Kind, Predictions, predictions
from rhocal.profile import Profile
from rhocal.special import Floats, exp_normal, over_blocks, row_argmax, row_blocks, row_max, row_sum, softmax

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.solve import Solution


class Calibrator(ABC):
    """A map from logits to calibrated logits, fitted on a tune set."""

    name: ClassVar[str]
    """The family's name in the table of methods and in artifacts."""
    keeps_decision: ClassVar[bool]
    """Whether the predicted class can never change."""
    parameters: ClassVar[tuple[str, ...]]
    """The fitted numbers and arrays, as attributes; what an artifact stores."""

    words: ClassVar[tuple[str, ...]] = ()
    """Fitted arrays of texts or whole numbers (names), as attributes; an artifact writes them out."""

    takes_groups: ClassVar[bool] = False
    """Whether it looks at the domain of a sample (``groups``)."""

    children: ClassVar[tuple[str, ...]] = ()
    """The fitted calibrators it is made of, as attributes."""

    classes_: NDArray[Any]
    kind_: Kind
    solution_: Solution

    def fit(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        classes: Any = None,
        kind: Kind = "logits",
        ignore_index: int | None = None,
        class_axis: int = -1,
        groups: Any = None,
    ) -> Self:
        """Fit on held-out logits and labels, never on the data the network was trained on.

        See ``rhocal.predictions`` for what is accepted; so are a ``rhocal.stream``, which brings its labels, and Dask
        arrays. ``kind`` is remembered and used by ``predict_proba`` too. ``groups``, the domain of each sample, is for
        families that know domains (``multi-domain``).
        """
        self._refuse(groups)
        if not _in_memory(logits):
            if groups is not None or class_axis != -1 or (sample_weight is not None and not _is_dask(logits)):
                raise InputError(
                    "a stream takes no groups, sample_weight or class_axis: its blocks have shape (n_samples, n_classes), "
                    "with sample weights as their third part"
                )
            said = {"kind": kind, "classes": classes, "ignore_index": ignore_index}
            return self._fit_elsewhere(logits, labels, sample_weight, said)
        data = predictions(
            logits,
            _required(labels),
            sample_weight=sample_weight,
            classes=classes,
            kind=kind,
            ignore_index=ignore_index,
            class_axis=class_axis,
            groups=groups,
        )
        return self.fit_checked(data, kind)

    def _fit_elsewhere(self, logits: Any, labels: Any, sample_weight: Any, said: dict[str, Any]) -> Self:
        """Fit on a stream of blocks, or on a Dask array."""
        from rhocal import out_of_core  # noqa: PLC0415 - streams know calibrators, not the other way round

        if _is_dask(logits):
            from rhocal.dask import fit as fit_dask  # noqa: PLC0415 - Dask is there if its arrays are

            fit_dask(self, logits, _required(labels), sample_weight, said)
        elif labels is not None:
            raise InputError("labels: the blocks of a stream bring their own; leave labels out")
        else:
            out_of_core.fit(self, logits, said)
        return self

    def transform(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None) -> Floats:
        """Calibrated logits, in the shape that came (binary scores become two columns)."""
        data = self._border(logits, kind, class_axis, groups)
        return _in_shape(self._transform_of(data), logits, class_axis)

    def predict_proba(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> Floats:
        """Calibrated probabilities, in the shape that came (binary scores become two columns)."""
        if _is_dask(logits):
            from rhocal.dask import predict_proba  # noqa: PLC0415 - Dask is there if its arrays are

            return predict_proba(self._fitted(), logits, kind=kind)
        data = self._border(logits, kind, class_axis, groups)
        return _in_shape(self._probs_of(data), logits, class_axis)

    def predict(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> NDArray[Any]:
        """The predicted class of every sample, as a value of ``classes_``."""
        data = self._border(logits, kind, class_axis, groups)
        predicted = self.classes_[self.predicted_checked(data.logits)]
        shape = np.shape(logits)
        if len(shape) > 2:
            return predicted.reshape([n for axis, n in enumerate(shape) if axis != class_axis % len(shape)])
        return predicted

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted calibrator as one ``.safetensors`` file; ``rhocal.load`` reads it."""
        from rhocal.artifact import save  # noqa: PLC0415 - artifacts know calibrators, not the other way round

        save(self, path)

    # Behind the border: for calibrators made of others ----------------------------------------------------------------

    def fit_checked(self, data: Predictions, kind: Kind) -> Self:
        """Fit on data that has passed the border."""
        self.solution_ = self._fit(data)
        self.classes_, self.kind_ = data.classes, kind
        return self

    def transform_checked(self, logits: Floats) -> Floats:
        """Calibrated logits of checked logits."""
        return self._transform(logits)

    def probs_checked(self, logits: Floats) -> Floats:
        """Probabilities of checked logits."""
        return self._probs(logits)

    def predicted_checked(self, logits: Floats) -> NDArray[np.intp]:
        """Column of the predicted class of checked logits."""
        return self._predicted(logits)

    # What a family writes ------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, data: Predictions) -> Solution:
        """Set the attributes named in ``parameters``."""

    @abstractmethod
    def _transform(self, logits: Floats) -> Floats:
        """Calibrated logits of checked logits, in a new array."""

    def _transform_of(self, data: Predictions) -> Floats:
        """Calibrated logits; a family that takes groups finds them here."""
        return self.transform_checked(data.logits)

    def _probs_of(self, data: Predictions) -> Floats:
        return self.probs_checked(data.logits)

    def _probs(self, logits: Floats) -> Floats:
        return softmax(self._transform(logits))

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return row_argmax(self._transform(logits))

    # scikit-learn's protocol ---------------------------------------------------------------------------------------

    @classmethod
    def _option_names(cls) -> list[str]:
        if cls.__init__ is object.__init__:
            return []
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - scikit-learn's signature
        """The options, as they were given."""
        return {name: getattr(self, name) for name in self._option_names()}

    def set_params(self, **options: Any) -> Self:
        """Change options; they count from the next ``fit``."""
        known = self._option_names()
        for name, value in options.items():
            if name not in known:
                raise InputError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(known) or 'none'}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}" for name, value in self.get_params().items() if not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solution_")

    def __sklearn_tags__(self) -> Any:
        from rhocal.sklearn import calibrator_tags  # noqa: PLC0415 - scikit-learn asks, so it is there

        return calibrator_tags()

    # Common steps --------------------------------------------------------------------------------------------------

    @property
    def n_features_in_(self) -> int:
        """Number of columns, by the name scikit-learn uses."""
        return len(self._fitted().classes_)

    def _fitted(self) -> Self:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit(logits, labels) first")
        return self

    def _refuse(self, groups: Any) -> None:
        if groups is not None and not self.takes_groups:
            raise InputError(f"groups: {type(self).__name__} knows no domains; leave groups out, or use multi-domain")

    def _border(self, logits: Any, kind: Kind | None, class_axis: int, groups: Any = None) -> Predictions:
        self._refuse(groups)
        classes = self._fitted().classes_
        n_classes = np.shape(logits)[class_axis] if np.ndim(logits) > 1 else 2
        if n_classes not in {len(classes), 1 if len(classes) == 2 else len(classes)}:
            raise InputError(
                f"logits have {n_classes} classes (shape {np.shape(logits)}), but this {type(self).__name__} was fitted "
                f"with {len(classes)}; a single sample has shape (1, {len(classes)})"
            )
        return predictions(logits, kind=kind or self.kind_, class_axis=class_axis, groups=groups)


class ScaleCalibrator(Calibrator):
    """Multiplies the logits of a sample by a positive number, its scale.

    The order of the classes of a sample never changes (Propositions 2 and 3), and the prediction is read off the raw
    logits, so that rounding cannot change it either.
    """

    keeps_decision = True

    guided: ClassVar[bool] = False
    """Whether a fit looks at scales near those that a fit on a share of the samples ends with, and at no others."""

    def fit_profile(self, profile: Profile) -> Self:
        """Fit on a profile of logits (``rhocal.load_profile``) instead of the logits themselves."""
        self.solution_ = self._fit_profile(profile)
        self.classes_, self.kind_ = profile.classes, profile.kind
        return self

    def _fit(self, data: Predictions) -> Solution:
        return self._fit_profile(Profile.of(data))

    def _fit_profile(self, profile: Profile) -> Solution:  # noqa: ARG002
        """Set the attributes named in ``parameters``."""
        raise InputError(f"{type(self).__name__} cannot be fitted on a profile; it needs the logits themselves")

    @abstractmethod
    def _scale(self, logits: Floats) -> NDArray[np.float64]:
        """The scale of every sample."""

    def scale_of(self, profile: Profile) -> NDArray[np.float64]:
        """The scale of every sample of a profile."""
        assert isinstance(profile.passes, ArrayPasses), "families that are guided read scales off the profile"
        return self._scale(profile.passes.logits)

    def scale(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1) -> NDArray[np.float64]:
        """The number that multiplies each sample's logits; 1/scale is its temperature."""
        return self._scale(self._border(logits, kind, class_axis).logits)

    def _transform(self, logits: Floats) -> Floats:
        return scaled(logits, lambda rows: self._scale(logits[rows]))

    def _probs(self, logits: Floats) -> Floats:
        return scaled_probs(logits, lambda rows: self._scale(logits[rows]))

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return row_argmax(logits)


def scaled(logits: Floats, scale_of: Callable[[slice], NDArray[np.float64]]) -> Floats:
    """Every sample's logits times its scale, block by block."""
    out = np.empty_like(logits)
    for rows in row_blocks(*logits.shape):
        block = logits[rows]
        np.multiply(block, scale_of(rows).astype(block.dtype)[:, None], out=out[rows])
        keep_decision(out[rows], block)
    return out


def scaled_probs(logits: Floats, scale_of: Callable[[slice], NDArray[np.float64]]) -> Floats:
    """Softmax of every sample's logits times its scale, block by block."""
    out = np.empty_like(logits)
    almost = 1 - 8 * np.finfo(logits.dtype).eps

    def work(rows: slice) -> None:
        block, p = logits[rows], out[rows]
        # The maximum goes first: scaled logits of 1e30 would overflow their differences otherwise.
        np.subtract(block, row_max(block)[:, None], out=p)
        scale = scale_of(rows).astype(p.dtype)
        p *= scale[0] if (scale == scale[0]).all() else scale[:, None]
        exp_normal(p)
        # The top class is at exactly 1. Only others that come close to it could be rounded to the same.
        close = np.count_nonzero(p > almost) > len(p)
        p /= row_sum(p)[:, None]
        if close:
            keep_decision(p, block)

    over_blocks(logits.shape, work)
    return out


def keep_decision(out: Floats, logits: Floats) -> None:
    """Where rounding made two classes equal, lift the one that was ahead (and its ties) by the smallest step there is."""
    top = row_argmax(logits)
    rounded = np.flatnonzero(row_argmax(out) != top)
    if len(rounded):
        block, chosen = logits[rounded], out[rounded]
        lifted = np.nextafter(chosen.max(axis=1, keepdims=True), np.asarray(np.inf, out.dtype))
        out[rounded] = np.where(block == block.max(axis=1, keepdims=True), lifted, chosen)


def _is_dask(logits: Any) -> bool:
    """Whether it is a Dask array, without importing Dask."""
    return type(logits).__module__.split(".")[0] == "dask"


def _in_memory(logits: Any) -> bool:
    return not _is_dask(logits) and type(logits).__module__ != "rhocal.streams"


def _required(labels: Any) -> Any:
    if labels is None:
        raise InputError("labels are missing; a fit needs one label for each sample")
    return labels


def _in_shape(out: Floats, came: Any, class_axis: int) -> Floats:
    shape = np.shape(came)
    if len(shape) <= 2 and class_axis % max(len(shape), 1) == len(shape) - 1:
        return out
    axis = class_axis % len(shape)
    rest = [n for i, n in enumerate(shape) if i != axis]
    return np.moveaxis(out.reshape([*rest, out.shape[1]]), -1, axis)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))
