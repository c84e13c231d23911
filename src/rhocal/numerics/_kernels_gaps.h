/* Sums over samples for an objective of the gap d = correct - confidence (see `gaps.py`).
 *
 * The scales are s = exp(v) / mix with mix = (1 - w) r + w, where r is one number a sample. Summed are d, and
 * square_share d^2 + nll_share NLL; of each the value f, its derivatives in v and w, and the second ones in vv, vw and ww,
 * times the weight of the sample: GAP_SUMS numbers. In x = log s these are f, f_x, f_x q, f_xx, f_xx q and
 * (f_xx + f_x) q^2, with q = (r - 1) / mix.
 */

enum { GAP_SUMS = 12 };

static const double smallest_mix = 1e-20; /* SMALLEST_DENOMINATOR of `gaps.py`, where its reason stands */

typedef struct {
    const In_double *curves; /* a ring (n_powers x n) around `center`; or, with n_powers = 0, L, L1 and L2 in s (3 x n) */
    Py_ssize_t n_powers, n;
    double center;
    const In_double *own_center; /* of every sample, added to the center; or NULL */
    const In_double *relative, *label_gap, *correct, *weight; /* of every sample */
    double v, w, square_share, nll_share;
} GapProblem;

/* The k <= LANES samples from i on; returned is how many lie outside the ring. */
INLINE Py_ssize_t gap_lanes(const GapProblem *problem, Py_ssize_t i, Py_ssize_t k, double sums[GAP_SUMS][LANES],
                            double *confidence)
{
    const double u = one_over_log_two, v = problem->v, w = problem->w, whole = exp(v);
    const In_double *c = problem->curves, *r = problem->relative;
    const Py_ssize_t n = problem->n, n_powers = problem->n_powers;
    double center[LANES], t[LANES], s[LANES], q[LANES], l0[LANES], l1[LANES], l2[LANES];
    int n_outside = 0;
    for (int l = 0; l < k; l++)
        center[l] = problem->center + (problem->own_center ? problem->own_center[i + l] : 0);
#pragma omp simd reduction(+ : n_outside)
    for (int l = 0; l < k; l++) {
        double mix = (1 - w) * r[i + l] + w;
        mix = mix > smallest_mix ? mix : smallest_mix;
        const double inverse = 1 / mix;
        s[l] = whole * inverse;
        q[l] = (r[i + l] - 1) * inverse;
        t[l] = (v - log_double(mix) - center[l]) * u;
        n_outside += t[l] > 1 || t[l] < -1;
        l0[l] = l1[l] = l2[l] = 0;
    }
    if (n_powers) {
        for (Py_ssize_t power = n_powers - 1; power >= 0; power--) {
            const In_double *row = c + power * n + i;
#pragma omp simd
            for (int l = 0; l < k; l++) {
                l2[l] = l2[l] * t[l] + l1[l];
                l1[l] = l1[l] * t[l] + l0[l];
                l0[l] = l0[l] * t[l] + row[l];
            }
        }
#pragma omp simd
        for (int l = 0; l < k; l++) {
            l0[l] = l0[l] > 0 ? l0[l] : 0;
            l1[l] *= u;
            l2[l] *= 2 * u * u;
        }
    } else {
#pragma omp simd
        for (int l = 0; l < k; l++) {
            l0[l] = c[i + l];
            l1[l] = c[n + i + l] * s[l];
            l2[l] = c[2 * n + i + l] * s[l] * s[l] + l1[l];
        }
    }
#pragma omp simd
    for (int l = 0; l < k; l++) {
        const double p = exp_double(-l0[l]), d = problem->correct[i + l] - p;
        const double dx = p * l1[l], dxx = p * (l2[l] - l1[l] * l1[l]);
        const double pull = s[l] * problem->label_gap[i + l], o = problem->weight[i + l], one = q[l], two = q[l] * q[l];
        const double x1 = o * dx, x2 = o * dxx, square = o * problem->square_share * 2, nll = o * problem->nll_share;
        const double y1 = square * d * dx + nll * (l1[l] - pull);
        const double y2 = square * (dx * dx + d * dxx) + nll * (l2[l] - pull);
        confidence[i + l] = p;
        sums[0][l] += o * d, sums[1][l] += x1, sums[2][l] += x1 * one;
        sums[3][l] += x2, sums[4][l] += x2 * one, sums[5][l] += (x2 + x1) * two;
        sums[6][l] += square / 2 * d * d + nll * (l0[l] - pull), sums[7][l] += y1, sums[8][l] += y1 * one;
        sums[9][l] += y2, sums[10][l] += y2 * one, sums[11][l] += (y2 + y1) * two;
    }
    return n_powers ? n_outside : 0;
}

/* `sums` has GAP_SUMS numbers. Returned is how many samples lie outside the ring: with any, the sums mean nothing. */
CLONES static Py_ssize_t sum_gaps(GapProblem problem, double *sums, double *confidence)
{
    double lanes[GAP_SUMS][LANES] = {{0}};
    Py_ssize_t i = 0, n_outside = 0;
    for (; i + LANES <= problem.n; i += LANES)
        n_outside += gap_lanes(&problem, i, LANES, lanes, confidence);
    if (i < problem.n)
        n_outside += gap_lanes(&problem, i, problem.n - i, lanes, confidence);
    for (int q = 0; q < GAP_SUMS; q++) {
        sums[q] = 0;
        for (int l = 0; l < LANES; l++)
            sums[q] += lanes[q][l];
    }
    return n_outside;
}
