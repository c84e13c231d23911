"""A classifier with calibrated probabilities around any other."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from rhocal.calibrators import Calibrator, calibrator
from rhocal.calibrators.decisions import warn_of_changes, with_decision_kept
from rhocal.calibrators.registry import DEFAULT_METHOD
from rhocal.errors import DecisionWarning, InputError, SuspiciousInputWarning, counted, warn
from rhocal.sklearn.features import check_column_order
from rhocal.sklearn.members import HeldOut, Member, fit_member, hold_out, pool

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with a calibrator behind it.

    Parameters
    ----------
    estimator
        The classifier; logistic regression if not given. Its ``decision_function`` is taken as logits if it has a column for
        each class, else the logarithm of its ``predict_proba``.
    method
        The name of a method, or a calibrator (its options are then ``method__objective`` and so on).
    cv
        A number of folds or a splitter: the calibrator is fitted on samples that the classifier was not trained on.
        ``"prefit"``: the classifier is fitted already, and all data given to ``fit`` is for the calibrator.
    ensemble
        True: a classifier and a calibrator for each fold, whose probabilities are averaged. False: one calibrator, fitted on
        the scores of all folds, behind one classifier fitted on all data. ``"auto"``: False for a ``FrozenEstimator``, else
        True.
    keep_decision
        Whether the calibrator must keep the predicted class of its classifier: ``auto`` tries no other method, and a method
        that may change it is an error. The mean of several classifiers (``ensemble``) has a class of its own.
    n_jobs
        Folds that are fitted at the same time.

    Attributes
    ----------
    classes_
        The labels.
    calibrated_classifiers_
        The fitted classifiers, each with its calibrator: ``estimator``, ``calibrators`` (a list of one), ``predict_proba``.
    """

    def __init__(
        self,
        estimator: Any = None,
        method: str | Calibrator = DEFAULT_METHOD,
        *,
        cv: Any = 5,
        ensemble: bool | str = "auto",
        keep_decision: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.keep_decision = keep_decision
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **params: Any) -> Self:  # noqa: N803
        """Fit classifier and calibrator; ``groups`` go to the splitter, ``params`` to the classifier's ``fit``.

        Samples of a group may depend on each other: they are the clusters of the calibrator's own cross-validation.
        """
        X, y = indexable(X, y)  # noqa: N806
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        codes = group_codes(groups, len(y))
        unfitted = self._unfitted_calibrator()
        if self.ensemble not in {True, False, "auto"}:
            raise InputError(f"ensemble is True, False or 'auto'; got {self.ensemble!r}")
        estimator = self._unfitted_estimator()
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(f"cv is a number of folds, a splitter or 'prefit'; got {self.cv!r}")
        is_frozen = isinstance(estimator, FrozenEstimator) and self.ensemble is not True
        if isinstance(self.cv, str) or is_frozen:
            check_is_fitted(estimator, attributes=["classes_"])
            check_column_order(estimator, X)
            self.classes_ = np.asarray(estimator.classes_)
            held_out = hold_out(estimator, X, y, sample_weight, None, self.classes_, codes)
            self.calibrated_classifiers_ = [fit_member(clone(unfitted), held_out, self.classes_)]
        else:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise InputError(
                    f"y must hold at least 2 classes; got {len(self.classes_)} class: {self.classes_.tolist()}"
                )
            routed = self._routed(estimator, sample_weight, groups, params)
            self._fit_folds(estimator, unfitted, X, y, sample_weight, routed, codes)
        first = self.calibrated_classifiers_[0].estimator
        if hasattr(first, "n_features_in_"):
            self.n_features_in_ = first.n_features_in_
        _check_feature_names(self, X, reset=True)  # not those of the classifier: LightGBM makes some up
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Calibrated probabilities, a column for each of ``classes_``."""
        check_is_fitted(self)
        check_column_order(self, X)
        members = self.calibrated_classifiers_
        total = members[0].predict_proba(X)
        for member in members[1:]:
            total = total + member.predict_proba(X)
        return total / len(members)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class with the largest calibrated probability."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def to_onnx(self, path: str | PathLike[str], X: Any = None, *, opset: int | None = None) -> None:  # noqa: N803
        """Write classifier and calibrator as one ONNX model: features in, ``label`` and ``probabilities`` out.

        ``X`` has rows to read the types of the columns from; by default all features are numbers, in one matrix of float32.
        The model is compared with ``predict_proba`` in onnxruntime before it is written.
        """
        from rhocal.onnx.scikit_learn import save_classifier  # noqa: PLC0415 - onnx is there when it is asked for

        check_is_fitted(self)
        save_classifier(self, path, X, opset=opset)

    # The steps of a fit --------------------------------------------------------------------------------------------

    def _unfitted_estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _unfitted_calibrator(self) -> Calibrator:
        if not isinstance(self.method, str | Calibrator):
            raise InputError(f"method is the name of a method or a calibrator; got {self.method!r}")
        unfitted = calibrator(self.method) if isinstance(self.method, str) else self.method
        return with_decision_kept(clone(unfitted)) if self.keep_decision else unfitted

    def _fit_folds(
        self,
        estimator: Any,
        unfitted: Calibrator,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        routed: Bunch,
        groups: NDArray[np.intp] | None,
    ) -> None:
        cv = check_cv(self.cv, y, classifier=True)
        self._check_folds(cv, y)
        params, classes = routed.estimator.fit, self.classes_
        folds = list(cv.split(X, y, **routed.splitter.split))
        parallel = Parallel(n_jobs=self.n_jobs)
        if self.ensemble:  # True or "auto"
            self.calibrated_classifiers_ = parallel(
                delayed(_fit_fold)(
                    clone(estimator), X, y, sample_weight, fold, params, classes, groups, clone(unfitted)
                )
                for fold in folds
            )
            self._warn_of_changes()
            return
        parts = parallel(
            delayed(_fit_fold)(clone(estimator), X, y, sample_weight, fold, params, classes, groups) for fold in folds
        )
        fitted = clone(unfitted).fit(**pool(parts, len(classes)))
        whole = _fit_estimator(clone(estimator), X, y, None, params)
        self.calibrated_classifiers_ = [Member(whole, fitted, classes, max(part.smallest for part in parts))]

    def _warn_of_changes(self) -> None:
        """One warning for all folds if predictions change."""
        fitted = [member.calibrator for member in self.calibrated_classifiers_]
        changes = [one.solution_.decisions for one in fitted if one.solution_.decisions is not None]
        n_changed = sum(change.n_changed for change in changes)
        if n_changed:
            n = sum(change.n_samples for change in changes)
            warn_of_changes(fitted[0], f"changes {n_changed:,} of {n:,} predictions on {len(changes)} held-out folds")

    def _check_folds(self, cv: Any, y: Any) -> None:
        """Refuse folds that cannot hold every class."""
        if isinstance(cv, LeaveOneOut):
            raise InputError(
                "LeaveOneOut cross-validation does not leave a sample of every class for the calibrator; use StratifiedKFold"
            )
        n_folds = getattr(cv, "n_splits", 0)
        counts = np.unique(y, return_counts=True)[1]
        if counts.min() < n_folds:
            raise InputError(
                f"Requesting {n_folds}-fold cross-validation but provided less than {n_folds} examples for at least one "
                f"class, {self.classes_[counts.argmin()].item()!r} ({counts.min()}); use fewer folds, or cv='prefit' with "
                "data of its own"
            )

    def _routed(self, estimator: Any, sample_weight: Any, groups: Any, params: dict[str, Any]) -> Bunch:
        """What goes to the classifier's fit and what to the splitter."""
        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": sample_weight, "groups": groups, **params}
            return process_routing(self, "fit", **{key: value for key, value in given.items() if value is not None})
        fit = dict(params)
        if sample_weight is not None:
            if has_fit_parameter(estimator, "sample_weight"):
                fit["sample_weight"] = sample_weight
            elif not any(name.endswith("__sample_weight") for name in params):
                warn(
                    f"fit of {type(estimator).__name__} takes no sample_weight, so that only the calibrator is fitted with "
                    "it; to a step of a pipeline pass it as <step>__sample_weight",
                    SuspiciousInputWarning,
                )
        split = {} if groups is None else {"groups": groups}
        return Bunch(estimator=Bunch(fit=fit), splitter=Bunch(split=split))

    # scikit-learn's protocol ---------------------------------------------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Who takes which metadata."""
        estimator = self._unfitted_estimator()
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        cv = check_cv(5 if isinstance(self.cv, str) else self.cv, classifier=True)
        return router.add(splitter=cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._unfitted_estimator())
        tags.input_tags.sparse, tags.input_tags.pairwise = inner.input_tags.sparse, inner.input_tags.pairwise
        return tags


def _fit_fold(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    weight: Any,
    fold: tuple[Any, Any],
    params: dict[str, Any],
    classes: NDArray[Any],
    groups: NDArray[np.intp] | None,
    unfitted: Calibrator | None = None,
) -> Member | HeldOut:
    """A classifier fitted on a training fold, with the scores of the held-out fold or a calibrator fitted on them."""
    training, rows = fold
    held_out = hold_out(_fit_estimator(estimator, X, y, training, params), X, y, weight, rows, classes, groups)
    if unfitted is None:
        return held_out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecisionWarning)  # one for all folds follows
        return fit_member(unfitted, held_out, classes)


def group_codes(groups: Any, n_samples: int) -> NDArray[np.intp] | None:
    """The group of each sample as a number."""
    if groups is None:
        return None
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    if codes.shape != (n_samples,):
        raise InputError(
            f"groups has one value for each of the {counted(n_samples, 'sample')}; got shape {np.shape(groups)}"
        )
    return np.asarray(codes, np.intp)


def _fit_estimator(estimator: Any, X: Any, y: Any, rows: Any, params: dict[str, Any]) -> Any:  # noqa: N803
    """A classifier fitted on some of the samples (None: all), with their metadata."""
    if rows is None:
        return estimator.fit(X, y, **params)
    n = len(y)
    own = {key: _safe_indexing(value, rows) if _per_sample(value, n) else value for key, value in params.items()}
    return estimator.fit(_safe_indexing(X, rows), y[rows], **own)


def _per_sample(value: Any, n: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n
