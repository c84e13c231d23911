"""Arrays that end, or begin, at a page of memory that nobody may touch, in the compiled code as it is shipped.

A sanitizer keeps most loops of the kernels from being vectorized. Here one number that is read or written beyond an array ends
the process, which is counted; and every result has the bits of the same call with other arrays.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import warnings

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import fitted, hostile_logits
from tests.attack.top_k import SCALES

from rhocal.metrics import METRICS

PAGE = mmap.PAGESIZE
METHODS = (*SCALES, "vector", "isotonic", "histogram-binning", "ets", "svs")
N_BATCHES = 10


def run(rng_seed, seconds, methods=METHODS):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for rng in rounds(rng_seed, seconds):
            m = int(rng.choice([2, 3, 6, 20]))
            cal = fitted(str(rng.choice(methods)), m)
            for _ in range(N_BATCHES):
                dtype = rng.choice([np.float64, np.float32, np.float16])
                z = hostile_logits(rng, int(rng.integers(1, 70)), m, dtype, largest=6)
                attack_calls(counts, rng, cal, cal.compiled(), z)
    return counts


def attack_calls(counts, rng, cal, compiled, z):
    """The same calls with guarded and with ordinary arrays."""
    at_end = bool(rng.integers(2))
    labels, weights = rng.integers(0, z.shape[1], len(z)), rng.integers(1, 4, len(z)).astype(float)
    name = str(rng.choice(list(METRICS)))
    calls = {
        "predict_proba": lambda z, *_: cal.predict_proba(z),
        "transform": lambda z, *_: cal.transform(z),
        "predict": lambda z, *_: cal.predict(z),
        "a request": lambda z, *_: compiled(z[-1:]),
        "requests": lambda z, *_: compiled(z),
        name: lambda z, y, w: METRICS[name](z, y, sample_weight=w, kind="logits"),
    }
    for call, work in calls.items():
        with Guarded(z, at_end) as guarded, Guarded(labels, at_end) as codes, Guarded(weights, at_end) as counted:
            what = f"{call}, {cal.label}, {z.shape} {z.dtype}, guarded {'behind' if at_end else 'before'}"
            got = counts.attempt(what, lambda: np.array(work(guarded.array, codes.array, counted.array)))  # noqa: B023
        want = counts.attempt(what, lambda: np.array(work(z, labels, weights)))  # noqa: B023 - at once
        is_same = got is want if got is REFUSED or want is REFUSED else np.array_equal(got, want, equal_nan=True)
        counts.check(what, is_same)


class Guarded:
    """A copy of an array beside a page that must not be read or written."""

    def __init__(self, values, at_end):
        n_pages = -(-values.nbytes // PAGE)
        self.memory = mmap.mmap(-1, (n_pages + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.guards = [self.start, self.start + (n_pages + 1) * PAGE]
        offset = (n_pages + 1) * PAGE - values.nbytes if at_end else PAGE
        self.array = np.frombuffer(self.memory, values.dtype, values.size, offset).reshape(values.shape)
        self.array[...] = values

    def __enter__(self):
        self._protect(0)
        return self

    def __exit__(self, *_):
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        self.array = None

    def _protect(self, how):
        if sys.platform == "win32":
            return
        for guard in self.guards:
            if LIBRARY.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), how):
                raise OSError(ctypes.get_errno(), "mprotect")


LIBRARY = None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)
