"""The base classes of calibrators.

They follow scikit-learn's protocol (``fit``, ``predict_proba``, ``get_params``, ``clone``) without importing it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from rhocal.calibrators import estimator
from rhocal.calibrators.map import Map, calibrate
from rhocal.calibrators.options import fitted_attributes, validate_options
from rhocal.calibrators.policy import PolicyAttribute
from rhocal.calibrators.top_k import apply_top_k, fit_top_k
from rhocal.data.arrays import check_tensor, is_dask, is_tensor, restore_shape, unpack_lists
from rhocal.data.columns import check_frame, frame_columns, shown
from rhocal.data.labels import positive_column
from rhocal.data.predictions import SMALLEST_PROB, Kind, Predictions
from rhocal.data.scores import is_single_column
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import InputError, not_fitted
from rhocal.numerics.numpy_ops import ArrayOps
from rhocal.numerics.ops import Parameters
from rhocal.numerics.special import Floats
from rhocal.profile.profile import Profile
from rhocal.profile.top_k import profile_top_k

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.calibrators.fitted_values import Constraint
    from rhocal.calibrators.folds import Folds
    from rhocal.calibrators.online import OnlineCalibration
    from rhocal.calibrators.online_evidence import Update
    from rhocal.calibrators.policy import Decisions, Policy
    from rhocal.calibrators.serving import CompiledCalibrator
    from rhocal.numerics.special import Floats
    from rhocal.optimize import Solution


@dataclass(frozen=True)
class Weighting:
    """That a calibrator was fitted with importance weights, for another population than that of its calibration set."""

    origin: str
    """``estimated`` or ``given``."""
    n_samples: int
    effective_size: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        return (
            f"{self.origin} importance weights, {self.effective_size:,.0f} effective samples of {self.n_samples:,}: for "
            "another population than that of the calibration set"
        )


C = TypeVar("C", bound="Calibrator")
Output = Literal["probs", "logits"]
ApplyFn = Callable[[Parameters, Any], Any]


class Calibrator(ABC):
    """A map from logits to calibrated logits, fitted on a calibration set.

    A family is a ``@dataclass(eq=False, repr=False)``: its options are the fields, its fitted numbers ``Fitted`` attributes.
    """

    name: ClassVar[str]
    """The family's name in artifacts and messages."""
    keeps_decision: ClassVar[bool]
    """Whether the predicted class can never change."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """The fitted numbers and arrays, as attributes; what an artifact stores."""
    absent_in_old_artifacts: ClassVar[Mapping[str, Any]] = {}
    """Fitted numbers that artifacts of earlier versions lack, and what they were."""
    string_attributes: ClassVar[tuple[str, ...]] = ()
    """Fitted arrays of texts or whole numbers (names), as attributes; an artifact writes them out."""
    children: ClassVar[tuple[str, ...]] = ()
    """The fitted calibrators it is made of, as attributes (a calibrator or a list of them)."""

    constraints: ClassVar[tuple[Constraint, ...]] = ()
    """What holds between fitted values, beside what each of them declares; checked when artifacts are written and read."""

    takes_groups: ClassVar[bool] = False
    """Whether it looks at the domain of a sample (``groups``)."""

    is_portable: ClassVar[bool] = True
    """Whether torch, ONNX and ``apply_fn`` can carry out its map."""

    classes_: NDArray[Any]
    kind_: Kind
    solution_: Solution
    mask_gap_: float = np.inf
    """How far below the largest logit of its row an entry is a mask (see ``rhocal.numerics.masks``)."""
    smallest_prob_: float | None = None
    """What smaller probabilities are raised to before the logarithm, where scores are probabilities."""
    positive_: Any = None
    """The name of the positive class of two, if it was stated."""
    _container: str | None = None
    columns_: tuple[str, ...] | None = None
    """The names of the columns of the table or data frame that it was fitted on."""
    label_shares_: NDArray[np.float64] | None = None
    """The mix of classes that its probabilities are for: that of the calibration set, or what ``rhocal.adapt`` set."""
    n_samples_: int | None = None
    """Size of the calibration set; with weights its effective size."""
    weighting_: Weighting | None = None
    """The importance weights of the fit, if it had any (``rhocal.reweight``)."""
    online_: OnlineCalibration | None = None
    """What ``update`` remembers; not part of the artifact."""
    policy_ = PolicyAttribute()
    """What is decided from its probabilities; ``rhocal.decide`` makes one. A fit removes it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.parameters = fitted_attributes(cls, "number")
        cls.string_attributes = fitted_attributes(cls, "names")
        cls.children = fitted_attributes(cls, "calibrator")

    @property
    def label(self) -> str:
        """The name in tables and reports: the method of the registry with its options; of a chain the names of its stages."""
        from rhocal.calibrators.registry import method_name  # noqa: PLC0415 - it names families

        return method_name(self)

    @property
    def is_guarded(self) -> bool:
        """Whether it falls back where it is worse on held-out samples than the identity or temperature scaling."""
        return False

    @property
    def errors_before_fallback(self) -> float:
        """The standard errors by which a guarded method must be above a reference before it falls back."""
        return 1.0

    @property
    def fits_on(self) -> Literal["rows", "profile"]:
        """What a fit reads: rows of logits, or a profile of them."""
        return "rows"

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
        positive: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Fit on held-out logits and labels, never on the data the network was trained on.

        See ``rhocal.data.predictions`` for what is accepted; so are a ``rhocal.stream``, which brings its labels, Dask
        arrays, and for methods that scale ``rhocal.TopK``. ``kind`` is remembered and used by ``predict_proba`` too.
        ``groups``, the domain of each sample, is for families that know domains (``multi-domain``). ``positive`` is the
        positive class of two, by name or column number; scores of shape (n_samples,) are those of this class, which becomes
        ``classes_[1]``. ``clusters`` is what each sample belongs to (its question, its patient): cross-validation keeps the
        samples of a cluster in one fold, and standard errors count clusters.
        """
        from rhocal.calibrators.fitting import fit  # noqa: PLC0415 - it imports this module

        if isinstance(logits, TopK):
            refuse_for_top_k(
                kind=kind == "probs",
                class_axis=class_axis != -1,
                groups=groups is not None,
                positive=positive is not None,
                clusters=clusters is not None,
            )
            fit_top_k(self, logits, labels, sample_weight, classes, ignore_index)
            return self
        spec = InputSpec(kind, classes, ignore_index, class_axis, positive)
        fit(self, as_source(logits, labels, sample_weight, groups, clusters, spec=spec))
        self.columns_ = frame_columns(logits) or self.columns_
        return self

    def transform(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None) -> Floats:
        """Calibrated logits, in the shape that came (binary scores become two columns).

        Of a torch tensor a torch tensor, computed on its device; of a Dask array a lazy one; of a ``TopK`` a calibrated one.
        """
        out = self._apply(logits, "logits", kind, class_axis, groups)
        if self._container is None or is_tensor(logits) or is_dask(logits):
            return out
        from rhocal.sklearn import framed  # noqa: PLC0415 - scikit-learn's set_output was called

        return framed(out, self.get_feature_names_out(), getattr(logits, "index", None), self._container)

    def fit_transform(self, logits: Any, labels: Any, sample_weight: Any = None, **spec: Any) -> Floats:
        """Fit, and calibrate the same logits; ``spec`` is what ``fit`` takes."""
        fitted = self.fit(logits, labels, sample_weight, **spec)
        return fitted.transform(logits, class_axis=spec.get("class_axis", -1), groups=spec.get("groups"))

    def predict_proba(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> Floats:
        """Calibrated probabilities, in the shape that came (binary scores become two columns).

        Of a torch tensor a torch tensor, computed on its device; of a Dask array a lazy one; of a ``TopK`` those of the k best.
        """
        return self._apply(logits, "probs", kind, class_axis, groups)

    def predict(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> NDArray[Any]:
        """The predicted class of every sample, as a value of ``classes_``; of a Dask array a lazy one."""
        if is_dask(logits):
            return self._apply(logits, "predicted", kind, class_axis, groups)
        if isinstance(logits, TopK):
            return self._fitted().classes_[logits.indices[:, 0]]
        data = self._border(logits, kind, class_axis, groups)
        predicted = self.classes_[self.map_.predicted(data)]
        shape = np.shape(logits)
        if len(shape) > 2:
            return predicted.reshape([n for axis, n in enumerate(shape) if axis != class_axis % len(shape)])
        return predicted

    def decide(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None) -> Decisions:
        """The label, action and prediction set of every sample by the policy ``policy_``.

        ``rhocal.decide``, ``rhocal.minimize_cost`` and ``rhocal.decide_sets`` make policies; the last one has sets.
        Of scores with more than two axes the samples are in order of the others.
        """
        policy = self._policy()
        if isinstance(logits, TopK):
            raise InputError("logits: decide needs the scores of every class; rhocal.TopK holds those of the k best")
        probs = self.map_.probs(self._border(logits, kind, class_axis, groups))
        return policy.decide(probs, self.classes_)

    def _policy(self) -> Policy:
        policy = self._fitted().policy_
        if policy is None:
            raise InputError(
                f"this {type(self).__name__} has no policy; set policy_ to that of rhocal.decide(calibrator, logits, labels)"
            )
        policy.check(len(self.classes_))
        return policy

    def update(
        self, logits: Any, labels: Any = None, sample_weight: Any = None, *, half_life: float | None = None, **spec: Any
    ) -> Update:
        """Learn from a new batch of labeled samples: the map changes only if one that did not see the batch is better on it.

        Use ``update.calibrator`` from now on, and call its ``update`` with the next batch: ``cal`` itself stays as it is. See
        ``rhocal.OnlineCalibration``, which also saves what is remembered. ``half_life`` counts samples (10,000), and can be
        stated with the first batch; ``spec`` is ``kind``, ``ignore_index`` and ``class_axis``.
        """
        from rhocal.calibrators.online import OnlineCalibration  # noqa: PLC0415 - it imports this module

        online = self._fitted().online_ or OnlineCalibration.begin(
            self, **({} if half_life is None else {"half_life": half_life})
        )
        if half_life not in {None, online.half_life}:
            raise InputError(f"half_life: updates began with {online.half_life:g}; this cannot change later")
        return online.update(logits, labels, sample_weight, **spec)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted calibrator as one ``.safetensors`` file; ``rhocal.load`` reads it."""
        from rhocal.calibrators.artifact import save  # noqa: PLC0415 - artifacts know calibrators, not the other way round

        save(self, path)

    # Where models live ---------------------------------------------------------------------------------------------

    @property
    def map_(self) -> Map:
        """The fitted map as a value: its formula and its numbers."""
        map_: Map = vars(self._fitted())["map_"]
        return map_

    def apply_fn(self, *, output: Output = "probs", xp: Any = np) -> tuple[ApplyFn, dict[str, NDArray[Any]]]:
        """A pure function and its parameters: ``function(parameters, logits)`` gives calibrated probabilities or logits.

        ``xp`` is the array namespace it computes in, such as ``jax.numpy``. Logits have the classes on the last axis, two or
        more; beside their number nothing is validated, and a row with NaN gives NaN. Single precision stays single precision,
        except for maps of a class's probability (isotonic and the like), which distinguish 1 − 1e−9 from 1.
        """
        map_, probs = exported_map(self), wants_probs(output)
        if map_.is_wide and ArrayOps(xp).dtype != np.float64:
            raise InputError(
                f"{self.label} is computed in double precision, and {getattr(xp, '__name__', xp)} has single precision only; "
                "with JAX: jax.config.update('jax_enable_x64', True)",
                argument="xp",
            )

        def apply(parameters: Parameters, logits: Any) -> Any:
            came = xp.asarray(logits)
            if came.ndim == 0 or came.shape[-1] != map_.n_classes:
                raise InputError(
                    f"logits of shape {tuple(came.shape)} have the classes on the last axis, and the calibrator was fitted "
                    f"with {map_.n_classes} of them"
                )
            double = map_.is_wide or "float32" not in str(came.dtype)
            ops = ArrayOps(xp, np.float64 if double else np.float32)
            held = {**map_.parameters, **{name: ops.constant(value) for name, value in parameters.items()}}
            out = calibrate(ops, map_, held, ops.constant(came), probs=probs)
            return xp.asarray(out, dtype=came.dtype)

        return apply, map_.arrays

    def compiled(self) -> CompiledCalibrator:
        """``predict_proba`` prepared for requests of one or a few rows: a function of logits, fast for scale methods."""
        from rhocal.calibrators.serving import CompiledCalibrator  # noqa: PLC0415 - it imports this module

        return CompiledCalibrator(self._fitted())

    def to_torch(self, *, output: Output = "logits", class_axis: int = -1, decide: bool = False) -> Any:
        """The fitted map as a ``torch.nn.Module``: logits in, calibrated logits (or ``output="probs"``) out.

        With ``decide`` the module gives three tensors: these, the column that the policy decides, and whether it is automated;
        with prediction sets a fourth, whether each class is in the set.
        """
        from rhocal.torch import CalibratorModule, DecisionModule  # noqa: PLC0415 - torch is there when it is asked for

        if decide:
            return DecisionModule(exported_map(self), self._policy(), output=output, class_axis=class_axis)
        return CalibratorModule(exported_map(self), output=output, class_axis=class_axis, fitted=self)

    def to_onnx(self, path: str | PathLike[str], *, output: Output = "probs", opset: int | None = None) -> None:
        """Write the fitted map as an ONNX model: ``logits`` in, ``calibrated_probs`` or ``calibrated_logits`` out.

        With a policy it also gives ``decided``, the class that is decided, and ``action``: 1 to automate, 0 otherwise;
        with prediction sets also ``set``, whether each class is in it.
        """
        from rhocal.onnx import save_model  # noqa: PLC0415 - onnx is there when it is asked for

        save_model(self, path, output=output, opset=opset)

    # What scikit-learn calls ---------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002 - scikit-learn's signature
        """The options, as they were given; ``deep`` adds those of its stages as ``stage__option``."""
        return estimator.get_options(self, deep=deep)

    def set_params(self, **options: Any) -> Self:
        """Change options; they count from the next ``fit``."""
        estimator.set_options(self, options)
        return self

    def set_output(self, *, transform: str | None = None) -> Self:
        """What ``transform`` returns: ``"default"``, ``"pandas"`` or ``"polars"``; None leaves it as it is."""
        self._container = estimator.output_container(transform, self._container)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns of ``transform``."""
        return np.array([f"logit_{name}" for name in self._fitted().classes_], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """Number of columns, by the name scikit-learn uses."""
        return len(self._fitted().classes_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "solution_")

    def __sklearn_tags__(self) -> Any:
        from rhocal.sklearn import calibrator_tags  # noqa: PLC0415 - scikit-learn calls this

        return calibrator_tags()

    def __repr__(self) -> str:
        return estimator.text(self)

    def _repr_html_(self) -> str:
        return estimator.html_text(self)

    def _fitted(self) -> Self:
        if not self.__sklearn_is_fitted__():
            raise not_fitted(f"this {type(self).__name__} is not fitted yet; call fit(logits, labels) first")
        return self

    # What a family writes ------------------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, data: Any, start: Map | None = None) -> tuple[Map, Solution]:
        """The map of ``_new_map`` and the evidence. ``data`` are ``Predictions``; of a ``ScaleCalibrator`` a ``Profile``.

        ``start`` is the map of a fit on similar samples: the result is the same, sooner.
        """

    @abstractmethod
    def _map(self, *args: Any, **fitted: Any) -> Map:
        """The map of fitted numbers, which have the names of the ``Fitted`` attributes without the underscore at the end."""

    def _held_out_logits(self, data: Predictions, folds: Folds) -> Floats | None:
        """Calibrated logits of every sample by fits without its fold, where these share work with the fit; None elsewhere."""
        return None

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        """The map of ``_new_map`` that does what a reference does, fitted on the same data; for guarded families."""
        raise NotImplementedError

    # Common steps --------------------------------------------------------------------------------------------------

    def _new_map(self, **fitted: Any) -> Map:
        """The map of fitted numbers, from which the ``Fitted`` attributes are read."""
        map_ = self._map(**fitted)
        keeps_decision = map_.keeps_decision or self.keeps_decision
        return replace(
            map_,
            keeps_decision=keeps_decision,
            kind=self.kind_,
            n_classes=len(self.classes_),
            mask_gap=self.mask_gap_,
            smallest_prob=self.smallest_prob_ or SMALLEST_PROB,
            fitted=fitted,
        )

    def check_groups(self, groups: Any) -> None:
        """Raise an error for groups that the family does not know."""
        if groups is not None and not self.takes_groups:
            raise InputError(f"groups: {type(self).__name__} does not use groups; leave them out, or use multi-domain")

    def _apply(self, scores: Any, output: Any, kind: Kind | None, class_axis: int, groups: Any) -> Any:
        """Calibrated logits or probabilities in the shape of the scores; a tensor on its device, a lazy Dask array."""
        if isinstance(scores, TopK):
            refuse_for_top_k(kind=kind in {"logits", "probs"}, class_axis=class_axis != -1, groups=groups is not None)
            calibrated = apply_top_k(self._fitted(), scores)
            return np.exp(calibrated.log_probs) if output == "probs" else calibrated
        if is_dask(scores):
            from rhocal.dask.applying import apply_lazily  # noqa: PLC0415 - Dask is there if its arrays are

            return apply_lazily(self._fitted(), scores, output, kind, class_axis, groups)
        if is_tensor(scores):
            scores = check_tensor(scores, "logits")
            from rhocal.torch.device import calibrated_tensor  # noqa: PLC0415 - torch is imported if its tensors are

            self.check_groups(groups)
            return calibrated_tensor(self._fitted(), scores, output, kind or self.kind_, class_axis, groups)
        data = self._border(scores, kind, class_axis, groups)
        out = self.map_.probs(data) if output == "probs" else self.map_.logits(data)
        return restore_shape(out, scores, class_axis)

    def _border(self, logits: Any, kind: Kind | None, class_axis: int, groups: Any = None) -> Predictions:
        self.check_groups(groups)
        logits = unpack_lists(logits, "logits")
        classes = self._fitted().classes_
        n_classes = np.shape(logits)[class_axis] if np.ndim(logits) > 1 else 2
        if n_classes not in {len(classes), 1 if len(classes) == 2 else len(classes)}:
            raise InputError(
                f"logits have {n_classes} classes (shape {np.shape(logits)}), but this {type(self).__name__} was fitted "
                f"with {len(classes)}; a single sample has shape (1, {len(classes)})"
            )
        spec = InputSpec(kind or self.kind_, class_axis=class_axis)
        columns = frame_columns(logits)
        if columns is not None and self.columns_ is not None and set(columns) == set(self.columns_):
            logits = np.asarray(logits)[:, [columns.index(name) for name in self.columns_]]
            columns = self.columns_
        elif columns is not None:
            check_frame(columns, classes, self.columns_)
        if columns is not None:
            spec = replace(spec, classes=classes, columns=columns)
        if self.positive_ is not None and is_single_column(logits, class_axis):
            spec = replace(spec, classes=classes, positive=self.positive_)
        return Predictions.from_arrays(logits, groups=groups, spec=spec).in_order_of(classes)[0]


def calibrated_logits(calibrator: Calibrator, data: Predictions) -> Floats:
    """Calibrated logits of validated data, whose classes may stand in another order than those of the fit."""
    ordered, order = data.in_order_of(calibrator.classes_)
    if order is None:
        return calibrator.map_.logits(data)
    if data.positive is not None and calibrator.positive_ not in {None, data.positive}:
        raise InputError(
            f"positive={data.positive!r} is stated, but the calibrator was fitted on {shown(calibrator.classes_.tolist())} "
            f"with {calibrator.positive_!r} as the positive class; state that of the fit"
        )
    return calibrator.map_.logits(ordered)[:, np.argsort(order)]


def fit_validated(
    calibrator: C, data: Predictions | Profile, *, kind: Kind | None = None, start: Map | None = None
) -> C:
    """Fit on validated data. ``kind`` is what will go in afterwards (the default: what the data is).

    With ``start``, the map of a fit on similar samples, the result is the same, sooner.
    """
    validate_options(calibrator)
    if isinstance(data, Predictions):
        data = data.prepared()
    if isinstance(calibrator, ScaleCalibrator) and isinstance(data, Predictions):
        data = Profile.from_predictions(data)
    vars(calibrator).pop("policy_", None)  # it was certified for another map
    vars(calibrator).pop("weighting_", None)
    vars(calibrator).pop("online_", None)
    vars(calibrator).pop("solution_", None)  # if the fit fails, the calibrator is not fitted
    calibrator.classes_, calibrator.kind_ = data.classes, kind or data.kind
    calibrator.mask_gap_ = np.inf if data.mask_gap is None else data.mask_gap
    calibrator.smallest_prob_ = data.smallest_prob
    calibrator.label_shares_, calibrator.n_samples_ = label_shares(data), effective_size(data)
    map_, calibrator.solution_ = calibrator._fit(data, start)  # noqa: SLF001 - our own
    vars(calibrator)["map_"] = map_
    return calibrator


def label_shares(data: Predictions | Profile) -> NDArray[np.float64]:
    """The share of each class among the labels, by weight."""
    assert data.labels is not None
    counts = np.bincount(np.asarray(data.labels), data.weights, minlength=len(data.classes))
    return np.asarray(counts / counts.sum(), np.float64)


def effective_size(data: Predictions | Profile) -> int:
    """The number of samples; with weights (Σw)²/Σw², the number of equal weights with the same variance of a mean."""
    assert data.labels is not None
    if data.weights is None:
        return len(data.labels)
    weights = np.asarray(data.weights, np.float64)
    weights = weights / weights.max()  # the square of a large weight is no number
    return max(1, round(float(weights.sum() ** 2 / (weights @ weights))))


def exported_map(calibrator: Calibrator) -> Map:
    """The fitted map of a calibrator; an error if torch, ONNX and ``apply_fn`` cannot carry it out."""
    map_ = calibrator.map_
    if not calibrator.is_portable:
        from rhocal.calibrators import CALIBRATORS  # noqa: PLC0415 - the registry imports this module

        able = ", ".join(name for name, method in CALIBRATORS.items() if method.family.is_portable)
        with_so_many = f" with {map_.n_classes:,} classes" if type(calibrator).is_portable else ""
        raise InputError(
            f"{calibrator.label}{with_so_many} cannot be exported to torch, ONNX or a plain function; these can: {able}"
        )
    return replace(map_, single_column=single_column(calibrator))


def single_column(calibrator: Calibrator) -> int:
    """The column of the class that a single score belongs to: the positive class, if one was stated, else the second."""
    positive = calibrator.positive_
    return 1 if positive is None else positive_column(positive, calibrator.classes_)


class ScaleCalibrator(Calibrator):
    """Multiplies the logits of a sample by a positive number, its scale.

    The order of the classes of a sample never changes (Propositions 2 and 3), and the prediction is read off the raw
    logits, so that rounding cannot change it either.
    """

    keeps_decision = True

    searches_near_pilot: ClassVar[bool] = False
    """Whether a fit looks at scales near those that a fit on a share of the samples ends with, and at no others."""

    @property
    def fits_on(self) -> Literal["rows", "profile"]:
        return "profile"

    def fit_profile(self, profile: Profile) -> Self:
        """Fit on a profile of logits (``rhocal.load_profile``) instead of the logits themselves."""
        from rhocal.calibrators.guard import check  # noqa: PLC0415 - it imports this module

        fit_validated(self, profile)
        check(self, profile)
        return self

    def with_choices(self) -> ScaleCalibrator:
        """Unfitted, with what cross-validation chose as options: fits on parts of the samples need not choose again."""
        return self

    def scale(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> NDArray[np.float64]:
        """The number that multiplies each sample's logits; 1/scale is its temperature."""
        if isinstance(logits, TopK):
            return self.map_.scales(profile_top_k(logits, logits.indices[:, 0]))  # labels do not matter
        return self.map_.scales(self._border(logits, kind, class_axis, groups))


def wants_probs(output: str) -> bool:
    """Whether probabilities are asked for."""
    if output not in {"probs", "logits"}:
        raise InputError(f"output is probs or logits; got {output!r}")
    return output == "probs"
