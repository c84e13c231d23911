"""The only door to an optimiser. What comes back carries its evidence; nothing fails silently.

SciPy is imported when a fit begins, so that `rhocal --help` and applying a saved calibrator do not wait for it.
"""

from rhocal.solve.evidence import Curved, CurvedFunction, Minimum, ScalarFunction, Solution, VectorFunction
from rhocal.solve.many import FEW_PARAMETERS, ROUNDING, TOLERANCE, convex_newton, few, polish, smooth
from rhocal.solve.one import convex, newton, scan
from rhocal.solve.sampled import sgd
from rhocal.solve.special_cases import isotonic, logistic, quadratic, studentized_range
from rhocal.solve.two import two

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
    "few",
    "isotonic",
    "logistic",
    "newton",
    "polish",
    "quadratic",
    "scan",
    "sgd",
    "smooth",
    "studentized_range",
    "two",
]
