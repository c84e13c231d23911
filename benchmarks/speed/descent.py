"""What the compiled descent saves of a full rho-norm fit: python benchmarks/speed/descent.py [--repeats 101].

The same fit runs with the compiled descent (`_kernels_descent.h`) and with the descent in Python (`solve.two` over the compiled
sums of `gaps`), one after the other in turn, so that both meet the same load of the machine. Printed are the medians and the
share of a fit that the compiled descent saves, and the largest difference of a fitted number.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

import rhocal
from rhocal import solve
from rhocal.calibrators.gaps import GapObjective
from rhocal.calibrators.rho_search import Search

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPES = ((5_000, 10), (5_000, 100), (25_000, 100), (25_000, 1_000))
SMALL = 1_000_000
Arrays = tuple[np.ndarray[Any, np.dtype[np.float32]], np.ndarray[Any, np.dtype[np.int64]]]


def data(n: int, m: int) -> Arrays:
    """Over-confident logits whose labels are drawn from the true distribution (as in `speed.py`)."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(n, m)).astype(np.float32) * 1.5
    p = np.exp(truth)
    p /= p.sum(axis=1, keepdims=True)
    return 2.5 * truth, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


def descend_in_python(
    gaps: GapObjective,
    start: tuple[float, float],
    bounds: Sequence[tuple[float, float]],
    tolerance: float = solve.TOLERANCE,
) -> solve.Minimum:
    """What `GapObjective.descend` does where the compiled descent is not available."""
    return solve.two(gaps, start, bounds, tolerance)


def timed_fit(arrays: Arrays, *, compiled: bool) -> tuple[float, tuple[float, float, float]]:
    """Seconds of one full fit, and the fitted rho, gamma and beta."""
    with ExitStack() as patches:
        if not compiled:
            patches.enter_context(patch.object(Search, "down", None))
            patches.enter_context(patch.object(GapObjective, "descend", descend_in_python))
        start = time.perf_counter()
        calibrator = rhocal.RhoNormScaling().fit(*arrays)
        seconds = time.perf_counter() - start
    return seconds, (calibrator.rho_, calibrator.gamma_, calibrator.beta_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats", type=int, default=31, help="fits of each kind on large data; ten times as many on small"
    )
    args = parser.parse_args()
    print("shape            compiled    Python      saved   largest difference")
    for n, m in SHAPES:
        arrays = data(n, m)
        for compiled in (True, False):
            timed_fit(arrays, compiled=compiled)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        fitted = {}
        for k in range(args.repeats * (10 if n * m <= SMALL else 1)):
            for compiled in (True, False) if k % 2 else (False, True):
                value, fitted[compiled] = timed_fit(arrays, compiled=compiled)
                seconds[compiled].append(value)
        ours, other = np.median(seconds[True]), np.median(seconds[False])
        apart = np.abs(np.subtract(fitted[True], fitted[False])).max()
        print(f"{n:,} × {m:<6,} {1e3 * ours:8.2f} ms {1e3 * other:8.2f} ms {1 - ours / other:7.1%}   {apart:.1e}")


if __name__ == "__main__":
    main()
