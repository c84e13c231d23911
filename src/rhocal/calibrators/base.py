"""The base class of calibrators.

It follows scikit-learn's protocol (``fit``, ``predict_proba``, ``get_params``, ``clone``) without importing it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from rhocal.calibrators import estimator
from rhocal.calibrators.exporting import exported_map, pure_function
from rhocal.calibrators.map import best_scale
from rhocal.calibrators.options import fitted_attributes
from rhocal.calibrators.policies.policy import PolicyAttribute, policy_of
from rhocal.calibrators.scoring import apply_map, validated_scores
from rhocal.calibrators.top_k import fit_top_k
from rhocal.data.arrays import is_dask, is_tensor
from rhocal.data.predictions import SMALLEST_PROB, Kind, Predictions
from rhocal.data.score_names import column_names
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import InputError, not_fitted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.calibrators.exporting import ApplyFn, Output
    from rhocal.calibrators.fitted_values import Constraint
    from rhocal.calibrators.folds import Fold
    from rhocal.calibrators.map import Map
    from rhocal.calibrators.online.calibration import OnlineCalibration
    from rhocal.calibrators.online.evidence import Update
    from rhocal.calibrators.policies.policy import Decisions
    from rhocal.calibrators.serving import CompiledCalibrator
    from rhocal.calibrators.weighting import Weighting
    from rhocal.numerics.special import Floats
    from rhocal.optimize import Solution
    from rhocal.profile.profile import Profile


class Calibrator(ABC):
    """A map from logits to calibrated logits, fitted on a calibration set.

    A family is a ``@dataclass(eq=False, repr=False)``: its options are the fields, its fitted numbers ``Fitted`` attributes.
    """

    name: ClassVar[str]
    """The family's name in artifacts and messages."""
    keeps_decision: ClassVar[bool]
    """Whether the predicted class can never change."""
    reads_probs: ClassVar[bool] = False
    """Whether a fit reads no more of the logits than double precision holds of their probabilities."""
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
    n_best_: int | None = None
    """How many of the largest logits of a sample its scale is computed from; None: all. Fits on ``rhocal.TopK`` set it."""
    positive_: Any = None
    """The name of the positive class of two, if it was stated."""
    _container: str | None = None
    columns_: tuple[str, ...] | None = None
    """The names of the columns of the table or data frame that it was fitted on."""
    label_shares_: NDArray[np.float64] | None = None
    """The mix of classes that its probabilities are for: that of the calibration set, or what ``rhocal.adapt`` set."""
    n_samples_: int | None = None
    """Size of the calibration set; with weights or clusters its effective size."""
    n_clusters_: int | None = None
    """Number of clusters of the calibration set, if it had any."""
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
    def has_class_maps(self) -> bool:
        """Whether classes have maps of their own: in the fitted map, or in one that a fit may find."""
        return True

    @property
    def fits_on(self) -> Literal["rows", "profile"]:
        """What a fit reads: rows of logits, or a profile of them."""
        return "rows"

    @estimator.unchanged_on_error
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
        """Fit on held-out logits and labels, never on the data the network was trained on; an earlier fit is replaced.

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
            )
            fit_top_k(self, logits, labels, sample_weight, classes, ignore_index, clusters)
            return self
        spec = InputSpec(kind, classes, ignore_index, class_axis, positive)
        fit(self, as_source(logits, labels, sample_weight, groups, clusters, spec=spec))
        self.columns_ = column_names(logits) or self.columns_
        return self

    def transform(self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None) -> Floats:
        """Calibrated logits, in the shape that came (binary scores become two columns).

        Of a torch tensor a torch tensor, computed on its device; of a Dask array a lazy one; of a ``TopK`` a calibrated one.
        """
        out = apply_map(self, logits, "logits", kind, class_axis, groups)
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
        return apply_map(self, logits, "probs", kind, class_axis, groups)

    def predict(
        self, logits: Any, *, kind: Kind | None = None, class_axis: int = -1, groups: Any = None
    ) -> NDArray[Any]:
        """The predicted class of every sample, as a value of ``classes_``; of a Dask array a lazy one."""
        if is_dask(logits):
            return apply_map(self, logits, "predicted", kind, class_axis, groups)
        if isinstance(logits, TopK):
            return self._fitted().classes_[logits.indices[:, 0]]
        data = validated_scores(self, logits, kind, class_axis, groups)
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
        policy = policy_of(self._fitted())
        if isinstance(logits, TopK):
            raise InputError("logits: decide needs the scores of every class; rhocal.TopK holds those of the k best")
        probs = self.map_.probs(validated_scores(self, logits, kind, class_axis, groups))
        return policy.decide(probs, self.classes_)

    def update(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        alpha: float | None = None,
        **spec: Any,
    ) -> Update:
        """Learn from a new batch of labeled samples: the map changes only if one that did not see the batch is better on it.

        Use ``update.calibrator`` from now on, and call its ``update`` with the next batch: ``cal`` itself stays as it is. See
        ``rhocal.OnlineCalibration``, which also saves what is remembered. ``half_life`` (10,000 samples) and ``alpha`` (0.05)
        can be stated with the first batch; ``spec`` is ``kind``, ``ignore_index``, ``class_axis`` and ``clusters``; a cluster
        counts as one sample. Where the map does not change, ``policy_`` stays; where it does, there is none.
        """
        from rhocal.calibrators.online.calibration import update_calibrator  # noqa: PLC0415 - it imports this module

        return update_calibrator(self._fitted(), logits, labels, sample_weight, half_life, alpha, spec)

    def with_choices(self) -> Calibrator:
        """The method with what cross-validation chose as options: fits on parts of the samples need not choose again."""
        return self

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
        return pure_function(self, output, xp)

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
            return DecisionModule(exported_map(self), policy_of(self._fitted()), output=output, class_axis=class_axis)
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

    def _fit_map_alone(self, data: Any, start: Map | None = None) -> tuple[Map, Solution]:
        """The same without the held-out scores of the solution, where ``_fit`` has them."""
        return self._fit(data, start)

    @abstractmethod
    def _map(self, *args: Any, **fitted: Any) -> Map:
        """The map of fitted numbers, which have the names of the ``Fitted`` attributes without the underscore at the end."""

    def _held_out_logits(self, data: Predictions, folds: Iterable[Fold]) -> Floats | None:
        """Calibrated logits of the samples of folds by fits without their fold, where these share work; None elsewhere."""
        return None

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        """The map of ``_new_map`` that does what a reference does, fitted on the same data; for guarded families."""
        raise NotImplementedError

    # Common steps --------------------------------------------------------------------------------------------------

    def _new_map(self, **fitted: Any) -> Map:
        """The map of fitted numbers, from which the ``Fitted`` attributes are read."""
        map_ = self._map(**fitted)
        keeps_decision = map_.keeps_decision or self.keeps_decision
        scale = map_.scale
        if self.n_best_ is not None and scale is not None:
            scale = partial(best_scale, self.n_best_, scale)
        return replace(
            map_,
            scale=scale,
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
