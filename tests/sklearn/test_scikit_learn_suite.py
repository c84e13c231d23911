"""scikit-learn's own tests of ``CalibratedClassifierCV``, run with our class in its place.

Only names are mapped: those of the methods, and the inverse temperature, which scikit-learn calls ``beta_``.
"""

import inspect
from functools import partial
from itertools import product
from types import CodeType, FunctionType

import pytest
import sklearn

from rhocal.calibrators import calibrator
from rhocal.sklearn import CalibratedClassifier

theirs = pytest.importorskip(
    "sklearn.tests.test_calibration", reason="this scikit-learn is installed without its tests"
)
if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
    pytest.skip("names and numbers below are those of the tests of scikit-learn 1.9", allow_module_level=True)

METHODS = {"sigmoid": "platt", "isotonic": "isotonic", "temperature": "temperature"}

N_CASES = 88
"""Tests with their parameters; another number means that scikit-learn's tests have changed and must be looked at again."""

ARRAY_API = "arrays of other libraries are converted to NumPy: the fitted temperature is a Python number"

OTHER_INTERFACE = {
    "test_temperature_scaling_array_api_compliance": ARRAY_API,
    "test_temperature_scaling_array_api_with_str_y_estimator_not_prefit": ARRAY_API,
}
"""Tests that are not run."""

DIFFERENCES = {
    "test_calibration_default_estimator": "our default is logistic regression, whose scores are logits; theirs is LinearSVC",
    "test_calibration_ensemble_false-isotonic": "our isotonic map never gives exactly 0 or 1 (rule of succession), and is "
    "piecewise linear in the probability where theirs is in the margin",
}
"""Tests that fail, and why. One that passes after all is an error."""

INEXACT_REFERENCES = {"test_calibration_ensemble_false-temperature": 1e-6}
"""Relative tolerances where a reference is less exact than the 1e-7 of its test. Their minimizer uses values alone: it knows
``beta_`` to about the root of the precision (1.1e-8), and log-odds of 7 multiply that: above 1e-7 or not, by the machine."""


class Adapter(CalibratedClassifier):
    """Our class with scikit-learn's signature and names."""

    def __init__(self, estimator=None, *, method="sigmoid", cv=None, n_jobs=None, ensemble="auto"):
        super().__init__(estimator, method, cv=cv, n_jobs=n_jobs, ensemble=ensemble)

    def _unfitted_calibrator(self):
        return calibrator(METHODS.get(self.method, self.method))

    def fit(self, X, y, sample_weight=None, **params):  # noqa: N803
        super().fit(X, y, sample_weight, **params)
        for fitted in (fitted for member in self.calibrated_classifiers_ for fitted in member.calibrators):
            if self.method == "temperature":
                fitted.beta_ = 1 / fitted.temperature_
        return self


def uses_the_class(code):
    return "CalibratedClassifierCV" in code.co_names or any(
        uses_the_class(part) for part in code.co_consts if isinstance(part, CodeType)
    )


def cases_of(name, test):
    """A case for each combination of the parameters of a test."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    tables = []
    for mark in marks:
        names, values = mark.args
        names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
        tables.append([dict(zip(names, [value] if len(names) == 1 else value, strict=True)) for value in values])
    for k, rows in enumerate(product(*tables)):
        arguments = {key: value for row in rows for key, value in row.items()}
        words = [str(value) if isinstance(value, str | bool | int) else key for key, value in arguments.items()]
        case = "-".join([name, *words, *([str(k)] if words else [])])
        why = next((why for part, why in DIFFERENCES.items() if case.startswith(part)), None)
        marked = [] if why is None else [pytest.mark.xfail(strict=True, reason=why)]
        yield pytest.param(test, arguments, id=case, marks=marked)


TESTS = {
    name: test
    for name, test in vars(theirs).items()
    if name.startswith("test_") and isinstance(test, FunctionType) and uses_the_class(test.__code__)
}
CASES = [case for name, test in TESTS.items() if name not in OTHER_INTERFACE for case in cases_of(name, test)]

data, dict_data, dict_data_pipeline = theirs.data, theirs.dict_data, theirs.dict_data_pipeline


@pytest.fixture
def global_random_seed():
    return 42  # scikit-learn's own default


@pytest.mark.parametrize(("test", "arguments"), CASES)
@pytest.mark.filterwarnings("default")
def test_theirs(test, arguments, request, monkeypatch):
    monkeypatch.setattr(theirs, "CalibratedClassifierCV", Adapter)
    case = request.node.callspec.id
    for tolerance in (tolerance for name, tolerance in INEXACT_REFERENCES.items() if case.startswith(name)):
        monkeypatch.setattr(theirs, "assert_allclose", partial(theirs.assert_allclose, rtol=tolerance))
    fixtures = [name for name in inspect.signature(test).parameters if name not in arguments]
    test(**arguments, **{name: request.getfixturevalue(name) for name in fixtures})


def test_the_lists_are_those_of_their_tests():
    assert len(CASES) == N_CASES
    assert set(OTHER_INTERFACE) <= set(TESTS)
    ids = [case.id for case in CASES]
    assert all(any(case.startswith(name) for case in ids) for name in (*DIFFERENCES, *INEXACT_REFERENCES))
