"""L-BFGS with an approximate inverse of the Hessian."""

import numpy as np
import pytest

from rhocal import optimize


def quadratic(inverse_of):
    """½ xᵀHx − bᵀx with some inverse of H."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(12, 12))
    hessian, b = a @ a.T + np.diag(np.logspace(0, 4, 12)), rng.normal(size=12)
    inverse = inverse_of(hessian)

    def fun(x):
        flat = x.ravel()
        value = 10 + flat @ hessian @ flat / 2 - b @ flat
        return value, (hessian @ flat - b).reshape(x.shape), lambda v: (inverse @ v.ravel()).reshape(x.shape)

    return fun, np.linalg.solve(hessian, b)


@pytest.mark.parametrize(
    ("inverse_of", "n_evaluations"),
    [(np.linalg.inv, 3), (lambda h: np.diag(1 / np.diag(h)), 30), (lambda h: 3 * np.diag(1 / np.diag(h)), 40)],
    ids=["exact", "diagonal", "too long"],
)
def test_the_better_the_inverse_the_fewer_evaluations(inverse_of, n_evaluations):
    fun, exact = quadratic(inverse_of)
    minimum = optimize.preconditioned_lbfgs(fun, np.zeros((4, 3)), 1e-14)
    assert minimum.converged
    assert minimum.n_evaluations <= n_evaluations
    np.testing.assert_allclose(minimum.x.ravel(), exact, atol=1e-6)


def test_what_is_no_inverse_of_a_hessian_is_left():
    fun, exact = quadratic(lambda h: -np.linalg.inv(h))
    minimum = optimize.preconditioned_lbfgs(fun, np.zeros(12), 1e-14)
    assert minimum.converged
    np.testing.assert_allclose(minimum.x, exact, atol=1e-5)


def test_far_from_a_minimum_steps_are_shortened():
    """log(1 + eˣ) + log(1 + e⁻ˣ): Newton steps from 5 leave the region in which they lead down."""

    def fun(x):
        p = 1 / (1 + np.exp(-x))
        curvature = 2 * p * (1 - p)
        return float(np.logaddexp(0, x).sum() + np.logaddexp(0, -x).sum()), 2 * p - 1, lambda v: v / curvature

    minimum = optimize.preconditioned_lbfgs(fun, np.array([5.0, -4.0]))
    assert minimum.converged
    np.testing.assert_allclose(minimum.x, 0, atol=1e-4)


def test_at_a_minimum_nothing_is_done():
    minimum = optimize.preconditioned_lbfgs(lambda x: (1.0, np.zeros_like(x), lambda v: v), np.zeros(3))
    assert (minimum.converged, minimum.n_evaluations) == (True, 1)
