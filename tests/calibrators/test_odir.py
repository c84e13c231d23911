"""The search for the ridge of matrix scaling: what its fits share."""

import numpy as np

from helpers import synthetic
from rhocal import NLL, MatrixScaling
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.predictions import Predictions
from rhocal.numerics.special import softmax
from rhocal.profile.profile import Profile


def test_the_hessian_of_one_ridge_serves_another():
    data = Predictions.from_arrays(*synthetic(300, 4))

    def problem(off_diagonal):
        ridge = Ridge(0.01, 0.03, off_diagonal)
        return LinearProblem(data.logits / 3, data, Profile.from_predictions(data), NLL(), ridge, 1e-4)

    other, own = problem(1.0), problem(0.01)
    hessian = other.hessian(other.minimum().x) - np.diag(2 * other.strengths.ravel())
    shared = own.minimum(precondition=own.inverse(hessian))
    assert shared.converged
    np.testing.assert_allclose(shared.x, own.minimum().x, atol=1e-5)


def test_held_out_fits_of_a_matrix_have_the_strengths_chosen():
    logits, labels = synthetic(400, 4)
    fitted = MatrixScaling().fit(logits, labels)
    data = Predictions.from_arrays(logits, labels)
    folds = list(Folds.from_profile(Profile.from_predictions(data), 4))[:2]
    outputs = fitted._held_out_logits(data, folds)
    for fold in folds:
        inside = fit_validated(fitted.with_choices(), data.take(fold.inside))
        np.testing.assert_allclose(
            softmax(outputs[fold.outside]), inside.predict_proba(logits[fold.outside]), atol=1e-5
        )
