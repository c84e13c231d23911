/* Loops over samples rather than over the columns of a row: polynomials, sums. */

/* L and its derivatives in the scale from polynomials c (n_powers x n, lowest power first) of t = (log scale - centre) / log 2; the
 * centre is middle, plus each sample's own where there is one. Horner's rule on all derivatives at once. out is (order + 1) x n.
 * Beyond t = -edge and edge a curve goes on along its tangent, as far down as 0. These are the k samples from i on, side by side. */
INLINE void ring_from(const double *c, Py_ssize_t n_powers, Py_ssize_t i, Py_ssize_t k, const double *scale, const double *own,
                      double middle, double edge, int order, double *out, Py_ssize_t n)
{
    const double u = 1.442695040888963407;
    double v0[LANES] = {0}, v1[LANES] = {0}, v2[LANES] = {0}, v3[LANES] = {0}, centre[LANES], t[LANES], s[LANES];
    int beyond = 0;
    for (Py_ssize_t l = 0; l < k; l++) {
        s[l] = scale[i + l];
        centre[l] = middle + (own ? own[i + l] : 0);
    }
#pragma omp simd reduction(| : beyond)
    for (Py_ssize_t l = 0; l < k; l++) {
        t[l] = (log_double(s[l]) - centre[l]) * u;
        beyond |= t[l] > edge || t[l] < -edge;
    }
    if (beyond)
        for (Py_ssize_t l = 0; l < k; l++)
            if (t[l] > edge || t[l] < -edge) {
                t[l] = t[l] > 0 ? edge : -edge;
                s[l] = exp(centre[l] + t[l] / u);
            }
    for (Py_ssize_t q = n_powers - 1; q >= 0; q--) {
        const double *row = c + q * n + i;
        if (order < 2) {
#pragma omp simd
            for (Py_ssize_t l = 0; l < k; l++) {
                v1[l] = v1[l] * t[l] + v0[l];
                v0[l] = v0[l] * t[l] + row[l];
            }
        } else {
#pragma omp simd
            for (Py_ssize_t l = 0; l < k; l++) {
                v3[l] = v3[l] * t[l] + v2[l];
                v2[l] = v2[l] * t[l] + v1[l];
                v1[l] = v1[l] * t[l] + v0[l];
                v0[l] = v0[l] * t[l] + row[l];
            }
        }
    }
    /* From derivatives in x = log s to derivatives in s: s L1 = Lx, s^2 L2 = Lxx - Lx, s^3 L3 = Lxxx - 3 Lxx + 2 Lx. A rounding error
     * must not make L negative, which is a confidence above 1. */
#pragma omp simd
    for (Py_ssize_t l = 0; l < k; l++) {
        out[i + l] = v0[l] > 0 ? v0[l] : 0;
        out[n + i + l] = v1[l] * u / s[l];
    }
    if (order > 1)
        for (Py_ssize_t l = 0; l < k; l++) {
            const double once = v1[l] * u, twice = 2 * v2[l] * u * u, thrice = 6 * v3[l] * u * u * u;
            out[2 * n + i + l] = (twice - once) / s[l] / s[l];
            if (order > 2)
                out[3 * n + i + l] = (thrice - 3 * twice + 2 * once) / s[l] / s[l] / s[l];
        }
    if (beyond)
        for (Py_ssize_t l = 0; l < k; l++) {
            const double further = scale[i + l] - s[l];
            if (further == 0)
                continue;
            out[i + l] += out[n + i + l] * further;
            for (int d = 2; d <= order; d++)
                out[d * n + i + l] = 0;
            if (out[i + l] < 0)
                out[i + l] = out[n + i + l] = 0;
        }
}

CLONES static void ring(const double *c, Py_ssize_t n_powers, Py_ssize_t start, Py_ssize_t stop, const double *scale,
                        const double *own, double middle, double edge, int order, double *out, Py_ssize_t n)
{
    Py_ssize_t i = start;
    for (; i + LANES <= stop; i += LANES)
        ring_from(c, n_powers, i, LANES, scale, own, middle, edge, order, out, n);
    if (i < stop)
        ring_from(c, n_powers, i, stop - i, scale, own, middle, edge, order, out, n);
}

/* From sums of e, e d and e d^2 at five nodes (see moments) to polynomials: `matrix` (15 x 15) takes L, dL/dt and d2L/dt2 at the nodes,
 * with t = log2 of the scale, to coefficients. c is 15 x n and holds the sums before, the coefficients afterwards. */
CLONES static void interpolate(const double *matrix, const double *scales, Py_ssize_t start, Py_ssize_t stop, double *c,
                               Py_ssize_t n)
{
    const double log_two = 0.693147180559945309;
    double met[15][LANES] = {{0}};
    for (Py_ssize_t i = start; i < stop; i += LANES) {
        const int k = (int)MIN(stop - i, LANES);
        for (int q = 0; q < 15; q++)
            for (int l = 0; l < k; l++)
                met[q][l] = c[q * n + i + l];
        for (int node = 0; node < 5; node++) {
            const double s = scales[node];
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                double total = met[node][l], first = met[5 + node][l] * s / total, second = met[10 + node][l] * s * s / total;
                met[node][l] = log_double(total);
                met[5 + node][l] = first * log_two;
                met[10 + node][l] = (second + first - first * first) * log_two * log_two;
            }
        }
        for (int power = 0; power < 15; power++) {
            double sum[LANES] = {0};
            for (int q = 0; q < 15; q++) {
                const double share = matrix[15 * power + q];
#pragma omp simd
                for (int l = 0; l < LANES; l++)
                    sum[l] += share * met[q][l];
            }
            for (int l = 0; l < k; l++)
                c[power * n + i + l] = sum[l];
        }
    }
}

/* Sums for an objective of the scales s = exp(v) / mix with mix = (1 - w) r + w, of two numbers of every sample: the gap d = correct -
 * confidence, and its square plus the negative log-likelihood, with the shares of both; of each the value, the derivatives in v and w, and
 * the second ones in vv, vw and ww (12 numbers, times the sample's weight). In x = log s these are f, f_x, f_x q, f_xx, f_xx q and
 * (f_xx + f_x) q^2, with q = (r - 1) / mix. L comes from a ring (see above), or is given with its derivatives in s (n_powers = 0, c is
 * 3 x n). Returned is how many samples lie outside the ring: their sums mean nothing. */
#define GAP_SUMS 12

INLINE Py_ssize_t gaps_from(const double *c, Py_ssize_t n_powers, Py_ssize_t n, Py_ssize_t i, Py_ssize_t k, const double *r, double v,
                            double w, double middle, const double *label_gap, const double *correct, const double *weight,
                            double of_square, double of_nll, double acc[GAP_SUMS][LANES], double *confidence)
{
    const double u = 1.442695040888963407, whole = exp(v);
    double t[LANES], s[LANES], q[LANES], l0[LANES], l1[LANES], l2[LANES];
    int beyond = 0;
#pragma omp simd reduction(+ : beyond)
    for (int l = 0; l < k; l++) {
        double mix = (1 - w) * r[i + l] + w;
        mix = mix > SMALLEST_MIX ? mix : SMALLEST_MIX;
        const double inverse = 1 / mix;
        s[l] = whole * inverse;
        q[l] = (r[i + l] - 1) * inverse;
        t[l] = (v - log_double(mix) - middle) * u;
        beyond += t[l] > 1 || t[l] < -1;
        l0[l] = l1[l] = l2[l] = 0;
    }
    if (n_powers) {
        for (Py_ssize_t power = n_powers - 1; power >= 0; power--) {
            const double *row = c + power * n + i;
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
        const double p = exp_double(-l0[l]), d = correct[i + l] - p, dx = p * l1[l], dxx = p * (l2[l] - l1[l] * l1[l]);
        const double pull = s[l] * label_gap[i + l], o = weight[i + l], one = q[l], two = q[l] * q[l];
        const double x1 = o * dx, x2 = o * dxx, square = o * of_square * 2, nll = o * of_nll;
        const double y1 = square * d * dx + nll * (l1[l] - pull), y2 = square * (dx * dx + d * dxx) + nll * (l2[l] - pull);
        confidence[i + l] = p;
        acc[0][l] += o * d, acc[1][l] += x1, acc[2][l] += x1 * one;
        acc[3][l] += x2, acc[4][l] += x2 * one, acc[5][l] += (x2 + x1) * two;
        acc[6][l] += square / 2 * d * d + nll * (l0[l] - pull), acc[7][l] += y1, acc[8][l] += y1 * one;
        acc[9][l] += y2, acc[10][l] += y2 * one, acc[11][l] += (y2 + y1) * two;
    }
    return n_powers ? beyond : 0;
}

CLONES static Py_ssize_t gaps(const double *c, Py_ssize_t n_powers, Py_ssize_t n, Py_ssize_t start, Py_ssize_t stop,
                              const double *r, double v, double w, double middle, const double *label_gap,
                              const double *correct, const double *weight, double of_square, double of_nll, double *sums,
                              double *confidence)
{
    double acc[GAP_SUMS][LANES] = {{0}};
    Py_ssize_t i = start, beyond = 0;
    for (; i + LANES <= stop; i += LANES)
        beyond += gaps_from(c, n_powers, n, i, LANES, r, v, w, middle, label_gap, correct, weight, of_square, of_nll, acc,
                            confidence);
    if (i < stop)
        beyond += gaps_from(c, n_powers, n, i, stop - i, r, v, w, middle, label_gap, correct, weight, of_square, of_nll, acc,
                            confidence);
    for (int q = 0; q < GAP_SUMS; q++) {
        sums[q] = 0;
        for (int l = 0; l < LANES; l++)
            sums[q] += acc[q][l];
    }
    return beyond;
}

/* Without weights every sample counts 1. */
CLONES static void bin(const double *confidence, const double *correct, const double *weight, Py_ssize_t start, Py_ssize_t stop,
                       Py_ssize_t n_bins, double edge, double *sums)
{
    Py_ssize_t at[LANES];
    Bins bins = bins_for(sums, n_bins);
    for (Py_ssize_t i = start; i < stop; i += LANES) {
        const int k = (int)MIN(stop - i, LANES);
#pragma omp simd
        for (int l = 0; l < k; l++)
            at[l] = bin_of(confidence[i + l], n_bins, edge);
        for (int l = 0; l < k; l++)
            add_to_bin(&bins, l, at[l], confidence[i + l], correct[i + l], weight ? weight[i + l] : 1);
    }
    close_bins(&bins);
}

/* Sum of a b. */
CLONES static double dot(const double *a, const double *b, Py_ssize_t n)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (Py_ssize_t i = 0; i < n; i++)
        total += a[i] * b[i];
    return total;
}

/* Half precision to single: sign and digits to their places, 2^112 mends the exponent. Says whether all were finite. */
CLONES static int widen_half(const uint16_t *from, Py_ssize_t start, Py_ssize_t stop, uint32_t *to)
{
    uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
    for (Py_ssize_t i = start; i < stop; i++) {
        uint32_t h = from[i], size = h & 0x7fff;
        uint32_t bits = size << 13;
        float value;
        memcpy(&value, &bits, 4);
        value *= 5.192296858534828e33f;
        memcpy(&bits, &value, 4);
        to[i] = bits | (h & 0x8000) << 16;
        odd |= size >= 0x7c00;
    }
    return !odd;
}
