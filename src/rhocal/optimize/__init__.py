"""The only package that calls an optimizer.

A solver takes a function with derivatives and returns a ``Minimum`` that states whether it converged. It depends on
neither samples nor classes; what a fit minimizes belongs in ``rhocal.objectives``. SciPy is imported when a solver is called,
so that `rhocal --help` and applying a saved calibrator do not load it.
"""

from rhocal.optimize.bivariate import newton_2d
from rhocal.optimize.multivariate import (
    MAX_NEWTON_PARAMETERS,
    ROUNDING,
    TOLERANCE,
    convex_newton,
    damped,
    lbfgs,
    polish,
    quasi_newton,
)
from rhocal.optimize.preconditioned import Precondition, preconditioned_lbfgs
from rhocal.optimize.scalar import convex, newton, scan
from rhocal.optimize.solution import (
    Curved,
    CurvedFunction,
    DecisionChange,
    HeldOutScores,
    Minimum,
    ScalarFunction,
    Solution,
    VectorFunction,
)
from rhocal.optimize.special_cases import isotonic, logistic, quadratic, studentized_range
from rhocal.optimize.stochastic import adam, has_converged, sgd

__all__ = [
    "MAX_NEWTON_PARAMETERS",
    "ROUNDING",
    "TOLERANCE",
    "Curved",
    "CurvedFunction",
    "DecisionChange",
    "HeldOutScores",
    "Minimum",
    "Precondition",
    "ScalarFunction",
    "Solution",
    "VectorFunction",
    "adam",
    "convex",
    "convex_newton",
    "damped",
    "has_converged",
    "isotonic",
    "lbfgs",
    "logistic",
    "newton",
    "newton_2d",
    "polish",
    "preconditioned_lbfgs",
    "quadratic",
    "quasi_newton",
    "scan",
    "sgd",
    "studentized_range",
]
