"""The only door to an optimiser. What comes back carries its evidence; nothing fails silently.

SciPy is imported when a fit begins, so that `rhocal --help` and applying a saved calibrator do not wait for it.
"""

from rhocal.optimize.bivariate import newton_2d
from rhocal.optimize.multivariate import FEW_PARAMETERS, ROUNDING, TOLERANCE, convex_newton, lbfgs, polish, quasi_newton
from rhocal.optimize.scalar import convex, newton, scan
from rhocal.optimize.solution import Curved, CurvedFunction, Minimum, ScalarFunction, Solution, VectorFunction
from rhocal.optimize.special_cases import isotonic, logistic, quadratic, studentized_range
from rhocal.optimize.stochastic import sgd

__all__ = [
    "FEW_PARAMETERS",
    "ROUNDING",
    "TOLERANCE",
    "Curved",
    "CurvedFunction",
    "Minimum",
    "ScalarFunction",
    "Solution",
    "VectorFunction",
    "convex",
    "convex_newton",
    "isotonic",
    "lbfgs",
    "logistic",
    "newton",
    "newton_2d",
    "polish",
    "quadratic",
    "quasi_newton",
    "scan",
    "sgd",
    "studentized_range",
]
