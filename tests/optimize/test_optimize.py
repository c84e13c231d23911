"""The optimisers on functions whose minimum is known."""

import math

import numpy as np
import pytest

from rhocal import optimize
from rhocal.optimize.scalar import find_zero

FREE = [(-np.inf, np.inf)] * 2


def counting(fun):
    def counted(x):
        counted.n += 1
        return fun(x)

    counted.n = 0
    return counted


def rosenbrock(x):
    a, b = x
    value = (1 - a) ** 2 + 20 * (b - a * a) ** 2
    return value, np.array([-2 * (1 - a) - 80 * a * (b - a * a), 40 * (b - a * a)])


def dented(x):
    """A bowl that curves down away from its middle: 2 - exp(-|x - c|²/2) with c = (1, -0.5)."""
    away = x - np.array([1.0, -0.5])
    value = -np.exp(-away @ away / 2)
    return 2 + value, -value * away


@pytest.mark.parametrize("start", [(-1.0, 1.0), (0.0, 0.5), (2.0, 0.0)])
def test_few_in_a_bent_valley(start):
    fun = counting(rosenbrock)
    found, hessian = optimize.quasi_newton(fun, np.array(start), FREE)
    assert found.converged
    assert found.n_evaluations == fun.n < 80
    np.testing.assert_allclose(found.x, [1, 1], atol=1e-3)
    assert (np.linalg.eigvalsh(hessian) > 0).all()


@pytest.mark.parametrize("start", [(-1.0, 1.5), (2.5, 1.0), (1.0, -2.5)])
def test_few_from_where_the_function_curves_down(start):
    """Skipping updates there once left a Hessian of the wrong sign in place for good: 100 steps that crept."""
    found, _ = optimize.quasi_newton(counting(dented), np.array(start), FREE)
    assert found.converged
    assert found.n_evaluations < 40
    np.testing.assert_allclose(found.x, [1, -0.5], atol=1e-3)


def test_few_begins_with_a_hessian_that_is_not_positive():
    found, _ = optimize.quasi_newton(dented, np.array([0.5, 0.0]), FREE, np.array([[1.0, 3.0], [3.0, -1.0]]))
    assert found.converged
    np.testing.assert_allclose(found.x, [1, -0.5], atol=1e-3)


def test_few_stops_at_a_bound():
    found, _ = optimize.quasi_newton(rosenbrock, np.array([0.0, 0.0]), [(-1.0, 0.5), (-1.0, 1.0)])
    assert found.converged
    np.testing.assert_allclose(found.x, [0.5, 0.25], atol=1e-4)


def curved(fun, second):
    """A function of two numbers with its Hessian, as ``optimize.newton_2d`` takes it."""

    def both(a, b):
        both.n += 1
        value, gradient = fun(np.array([a, b]))
        return float(value), tuple(gradient.tolist()), second(a, b)

    both.n = 0
    return both


def bend(a, b):
    return 2 - 80 * b + 240 * a * a, -80 * a, 40.0


def dent(a, b):
    x, y = a - 1, b + 0.5
    height = np.exp(-(x * x + y * y) / 2)
    return height * (1 - x * x), -height * x * y, height * (1 - y * y)


@pytest.mark.parametrize("start", [(0.0, 0.0), (-1.0, 1.0), (2.0, -1.0)])
def test_two_in_a_bent_valley(start):
    fun = curved(rosenbrock, bend)
    found = optimize.newton_2d(fun, start, FREE)
    np.testing.assert_allclose(found.x, [1, 1], atol=1e-4)
    assert found.converged
    assert found.n_evaluations == fun.n < 30
    assert found.value == rosenbrock(found.x)[0]


@pytest.mark.parametrize("start", [(2.5, 1.0), (0.0, 1.5), (1.0, -0.5), (3.0, -0.5)])
def test_two_from_where_the_function_curves_down(start):
    found = optimize.newton_2d(curved(dented, dent), start, FREE)
    np.testing.assert_allclose(found.x, [1, -0.5], atol=1e-4)
    assert found.converged


def test_two_stops_at_bounds_and_leaves_what_is_held():
    found = optimize.newton_2d(curved(rosenbrock, bend), (0.0, 0.0), [(-1.0, 0.5), (-1.0, 1.0)])
    np.testing.assert_allclose(found.x, [0.5, 0.25], atol=1e-6)
    held = optimize.newton_2d(curved(rosenbrock, bend), (0.0, 0.3), [(-5.0, 5.0), (0.3, 0.3)])
    assert held.x[1] == 0.3
    np.testing.assert_allclose(rosenbrock(held.x)[1][0], 0, atol=1e-4)
    assert held.converged


def test_two_never_ends_above_its_start():
    wrong = curved(lambda x: (float(x @ x), -2 * x), lambda _a, _b: (2.0, 0.0, 2.0))  # a slope that leads up
    found = optimize.newton_2d(wrong, (1.0, 1.0), FREE)
    assert found.value <= 2
    assert not found.converged


def test_a_looser_tolerance_takes_fewer_newton_steps():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)

    def fun(x):
        f = a @ x
        p = 1 / (1 + np.exp(-f))
        return np.logaddexp(0, f).sum() - f @ b + x @ x / 2, a.T @ (p - b) + x

    def hessian(x):
        p = 1 / (1 + np.exp(-a @ x))
        return (a * (p * (1 - p))[:, None]).T @ a + np.eye(3)

    tight, loose = (optimize.convex_newton(fun, hessian, np.full(3, 2.0), tolerance) for tolerance in (1e-12, 1e-4))
    assert loose.converged
    assert loose.n_evaluations < tight.n_evaluations
    np.testing.assert_allclose(fun(tight.x)[1], 0, atol=1e-9)
    np.testing.assert_allclose(loose.value, tight.value, rtol=1e-6)


@pytest.mark.parametrize(
    ("fun", "low", "high", "root"),
    [
        (lambda x: math.cos(x) - x, 0.0, 1.0, 0.7390851332151607),
        (lambda x: x**3 - 2 * x - 5, 2.0, 3.0, 2.0945514815423265),
        (lambda x: x**9, -1.0, 4.0, 0.0),
        (lambda x: math.expm1(x) * 1e-200, -3.0, 400.0, 0.0),
        (lambda x: math.atan(1e6 * (x - 0.3)), -1e3, 1e3, 0.3),
        (lambda x: -1.0 if x < 2 else 1.0, 0.0, 3.0, 2.0),
        (lambda x: x - 1, 0.0, 1.0, 1.0),
    ],
    ids=["cosine", "cubic", "flat", "tiny", "steep", "jump", "at an end"],
)
def test_a_zero_between_two_signs(fun, low, high, root):
    """In few evaluations where the function is smooth, and never more than bisection needs several times over."""
    for a, b in ((low, high), (high, low)):
        x, n_evaluations = find_zero(fun, a, b)
        assert abs(x - root) < 1e-12
        assert n_evaluations < 110


def test_a_zero_needs_two_signs():
    with pytest.raises(ValueError, match="the same sign at 1 and at 2"):
        find_zero(lambda x: x, 1.0, 2.0)
