# Types of the compiled passes (`_kernels.c`), whose docstrings explain them. `kernels.py` is their only caller.
#
# Every array is C-contiguous and of exactly this type, and sizes that belong together are equal; anything else is a TypeError
# or a ValueError. `start` and `stop` are a range of rows, or, where there is one number a sample, of samples.

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Vector: TypeAlias = NDArray[np.float64]
_Logits: TypeAlias = NDArray[np.float32] | NDArray[np.float64]

INTERFACE: int

def ends(z: _Logits, start: int, stop: int, /) -> tuple[bool, float, float]: ...
def scan(z: _Logits, start: int, stop: int, column: NDArray[np.intp], top: _Vector, total: _Vector, /) -> float: ...
def largest(z: _Logits, start: int, stop: int, out: _Vector, /) -> None: ...
def bin_rows(
    probs: _Logits,
    start: int,
    stop: int,
    labels: NDArray[np.int64],
    edge: float,
    tolerance: float,
    sums: _Vector,
    /,
) -> bool: ...
def norms(z: _Logits, start: int, stop: int, total: _Vector | None, top: _Vector | None, out: _Vector, /) -> None: ...
def curve(
    z: _Logits, start: int, stop: int, top: _Vector, scale: _Vector, times: _Vector | None, out: _Vector, /
) -> None: ...
def moments(
    z: _Logits, start: int, stop: int, top: _Vector, scales: _Vector, times: _Vector | None, out: _Vector, /
) -> None: ...
def moments_at(
    z: _Logits, start: int, stop: int, top: _Vector, scale: _Vector, times: _Vector | None, out: _Vector, /
) -> None: ...
def softmax(z: _Logits, start: int, stop: int, scale: _Vector, out: _Logits, /) -> None: ...
def bins(
    confidence: _Vector,
    start: int,
    stop: int,
    correct: _Vector,
    weights: _Vector | None,
    edge: float,
    sums: _Vector,
    /,
) -> None: ...
def intervals(edges: _Vector, values: _Vector, start: int, stop: int, counts: _Vector, largest: _Vector, /) -> None: ...
def lines(scores: _Vector, start: int, stop: int, knots: _Vector, values: _Vector, out: _Vector, /) -> None: ...
def digits(values: _Vector, start: int, stop: int, /) -> None: ...
def ring(
    c: _Vector,
    start: int,
    stop: int,
    scale: _Vector,
    center: float,
    own_center: _Vector | None,
    edge: float,
    out: _Vector,
    /,
) -> None: ...
def interpolate(c: _Vector, start: int, stop: int, matrix: _Vector, scales: _Vector, /) -> None: ...
def gaps(
    curves: _Vector,
    center: float | None,
    own_center: _Vector | None,
    relative: _Vector,
    v: float,
    w: float,
    label_gap: _Vector,
    correct: _Vector,
    weights: _Vector,
    square_share: float,
    nll_share: float,
    sums: _Vector,
    confidence: _Vector,
    /,
) -> int: ...
def dot(a: _Vector, b: _Vector, /) -> float: ...
def widen(half: NDArray[np.float16], start: int, stop: int, out: NDArray[np.float32], /) -> bool: ...
def draws(
    levels: _Vector,
    top: _Vector,
    index: NDArray[np.int64],
    place: NDArray[np.int64],
    scale: _Vector | None,
    sums: _Vector,
    start: int,
    stop: int,
    /,
) -> bool: ...
def pool(values: _Vector, start: int, stop: int, keys: _Vector, sizes: NDArray[np.intp], /) -> None: ...
def class_sums(
    x: _Logits,
    start: int,
    stop: int,
    weights: _Vector,
    slope: _Vector,
    bias: _Vector,
    is_curvature: float,
    scratch: _Logits,
    out: _Vector,
    /,
) -> float: ...
