"""Properties of the logits themselves: their amplitude, and the divergence between two distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import log_softmax, rho_norms
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from rhocal.numerics.special import Floats, Vector


def amplitudes(logits: Floats, *, center: bool) -> Vector:
    """‖z‖₂ / m of every row (paper, Fig. 2)."""
    return np.asarray(rho_norms(logits, [2.0], center=center)[:, 0] / logits.shape[1])


def divergences(g: Floats, s: Floats) -> Vector:
    """KL(g‖s) = Σ_j g_j (log g_j − log s_j) of every row, from logits."""
    out = np.empty(len(g))
    for rows in row_blocks(*g.shape):
        log_g, log_s = (log_softmax(z[rows].astype(np.float64)) for z in (g, s))
        out[rows] = np.einsum("ij,ij->i", np.exp(log_g), log_g - log_s)
    return out
