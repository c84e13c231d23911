"""A classifier with calibrated probabilities around any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from rhocal.calibrators import Calibrator, calibrator
from rhocal.errors import InputError
from rhocal.sklearn.scores import scores_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with a calibrator behind it.

    Parameters
    ----------
    estimator
        The classifier; logistic regression if not given. Its ``decision_function`` is taken as logits if it has a column for
        each class, else its ``predict_proba``.
    method
        The name of a method, or a calibrator (its options are then ``method__objective`` and so on).
    cv
        A number of folds or a splitter: the calibrator is fitted on samples that the classifier was not trained on.
        ``"prefit"``: the classifier is fitted already, and all data given to ``fit`` is for the calibrator.
    ensemble
        True: a classifier and a calibrator for each fold, whose probabilities are averaged. False: one calibrator, fitted on
        the scores of all folds, behind one classifier fitted on all data. ``"auto"``: False for a ``FrozenEstimator``, else
        True.
    n_jobs
        Folds that are fitted at the same time.

    Attributes
    ----------
    classes_
        The labels.
    pairs_
        The fitted classifiers, each with its calibrator.
    """

    def __init__(
        self,
        estimator: Any = None,
        method: str | Calibrator = "rho-norm",
        *,
        cv: Any = 5,
        ensemble: bool | str = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.ensemble = ensemble
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **params: Any) -> Self:  # noqa: N803
        """Fit classifier and calibrator; ``groups`` go to the splitter, ``params`` to the classifier's ``fit``."""
        X, y = indexable(X, y)  # noqa: N806
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        unfitted = self._unfitted_calibrator()
        if self.ensemble not in {True, False, "auto"}:
            raise InputError(f"ensemble is True, False or 'auto'; got {self.ensemble!r}")
        estimator = LogisticRegression() if self.estimator is None else self.estimator
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                raise InputError(f"cv is a number of folds, a splitter or 'prefit'; got {self.cv!r}")
            check_is_fitted(estimator, attributes=["classes_"])
            self.classes_ = np.asarray(estimator.classes_)
            fitted = self._calibrated(clone(unfitted), estimator, X, y, sample_weight)
            self.pairs_ = [(estimator, fitted)]
        else:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise InputError(
                    f"y must hold at least 2 classes; got {len(self.classes_)} class: {self.classes_.tolist()}"
                )
            routed = self._routed(estimator, sample_weight, groups, params)
            self._fit_folds(estimator, unfitted, X, y, sample_weight, routed)
        first = self.pairs_[0][0]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Calibrated probabilities, a column for each of ``classes_``."""
        check_is_fitted(self)
        total = np.zeros((1, len(self.classes_)))
        for estimator, fitted in self.pairs_:
            scores, kind = scores_of(estimator, X, self.classes_)
            total = total + fitted.predict_proba(scores, kind=kind)
        return total / len(self.pairs_)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class with the largest calibrated probability."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    # The steps of a fit --------------------------------------------------------------------------------------------

    def _unfitted_calibrator(self) -> Calibrator:
        if isinstance(self.method, Calibrator):
            return self.method
        if not isinstance(self.method, str):
            raise InputError(f"method is the name of a method or a calibrator; got {self.method!r}")
        return calibrator(self.method)

    def _fit_folds(
        self,
        estimator: Any,
        unfitted: Calibrator,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        routed: Bunch,
    ) -> None:
        cv = check_cv(self.cv, y, classifier=True)
        least = min(np.unique(y, return_counts=True)[1])
        if isinstance(self.cv, int) and least < self.cv:
            raise ValueError(
                f"Requesting {self.cv}-fold cross-validation but provided less than {self.cv} examples for at least one "
                "class; use fewer folds, or cv='prefit' with data of its own"
            )
        folds = list(cv.split(X, y, **routed.splitter.split))
        together = isinstance(estimator, FrozenEstimator) if self.ensemble == "auto" else not self.ensemble
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_fitted)(clone(estimator), X, y, inside, routed.estimator.fit) for inside, _ in folds
        )
        if not together:
            self.pairs_ = [
                (model, self._calibrated(clone(unfitted), model, X, y, sample_weight, outside))
                for model, (_, outside) in zip(models, folds, strict=True)
            ]
            return
        outside = np.concatenate([outside for _, outside in folds])
        parts = [
            scores_of(model, _safe_indexing(X, rows), self.classes_)
            for model, (_, rows) in zip(models, folds, strict=True)
        ]
        scores = np.concatenate([part for part, _ in parts])
        weight = None if sample_weight is None else sample_weight[outside]
        fitted = clone(unfitted).fit(scores, self._codes(y[outside]), weight, kind=parts[0][1])
        whole = _fitted(clone(estimator), X, y, None, routed.estimator.fit)
        self.pairs_ = [(whole, fitted)]

    def _calibrated(
        self,
        unfitted: Calibrator,
        estimator: Any,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        rows: Any = None,
    ) -> Calibrator:
        """A calibrator fitted on some of the samples."""
        part = X if rows is None else _safe_indexing(X, rows)
        scores, kind = scores_of(estimator, part, self.classes_)
        labels = y if rows is None else y[rows]
        weight = None if sample_weight is None else sample_weight if rows is None else sample_weight[rows]
        return unfitted.fit(scores, self._codes(labels), weight, kind=kind)

    def _codes(self, labels: Any) -> NDArray[np.intp]:
        codes = np.searchsorted(self.classes_, labels)
        if (np.append(self.classes_, self.classes_[-1:])[codes] != labels).any():
            raise ValueError("y holds labels that the prefitted classifier does not know")
        return codes

    def _routed(self, estimator: Any, sample_weight: Any, groups: Any, params: dict[str, Any]) -> Bunch:
        """What goes to the classifier's fit and what to the splitter."""
        from sklearn import get_config  # noqa: PLC0415 - the configuration of this call

        if get_config()["enable_metadata_routing"]:
            given = {"sample_weight": sample_weight, "groups": groups, **params}
            return process_routing(self, "fit", **{key: value for key, value in given.items() if value is not None})
        fit = dict(params)
        if sample_weight is not None and has_fit_parameter(estimator, "sample_weight"):
            fit["sample_weight"] = sample_weight
        split = {} if groups is None else {"groups": groups}
        return Bunch(estimator=Bunch(fit=fit), splitter=Bunch(split=split))

    # scikit-learn's protocol ---------------------------------------------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Who takes which metadata."""
        estimator = LogisticRegression() if self.estimator is None else self.estimator
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        cv = check_cv(5 if isinstance(self.cv, str) else self.cv, classifier=True)
        return router.add(splitter=cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator)
        tags.input_tags.sparse, tags.input_tags.pairwise = inner.input_tags.sparse, inner.input_tags.pairwise
        return tags


def _fitted(estimator: Any, X: Any, y: Any, rows: Any, params: dict[str, Any]) -> Any:  # noqa: N803
    """A classifier fitted on some of the samples (all by default), with their metadata."""
    if rows is None:
        return estimator.fit(X, y, **params)
    n = len(y)
    own = {key: _safe_indexing(value, rows) if _per_sample(value, n) else value for key, value in params.items()}
    return estimator.fit(_safe_indexing(X, rows), y[rows], **own)


def _per_sample(value: Any, n: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n
