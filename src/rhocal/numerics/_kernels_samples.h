/* Loops over samples instead of columns: sums of products, half precision, and the polynomials of a curve table.
 *
 * A ring of the table (see `curve_table.py`) has one polynomial a sample: its L as a function of
 * t = (log scale - center) / log 2, exact enough for |t| <= 1.
 */

static const double one_over_log_two = 1.442695040888963407, log_two = 0.693147180559945309;

typedef struct {
    const In_double *c;          /* coefficients (n_powers x n), lowest power first */
    Py_ssize_t n_powers, n;
    double center;            /* in log scale; */
    const In_double *own_center; /* of every sample, added to `center`; or NULL */
    double edge;              /* beyond |t| = edge a curve continues along its tangent, down to 0 */
} Ring;

/* L and its derivatives in the scale, up to an order (1 to 3), of the k <= LANES samples from i on; out is (order + 1) x n.
 * Horner's rule on all derivatives at once. */
INLINE void ring_lanes(const Ring *ring, Py_ssize_t i, Py_ssize_t k, const In_double *scale, int order, double *out)
{
    const Py_ssize_t n = ring->n;
    const double u = one_over_log_two, edge = ring->edge;
    double v0[LANES] = {0}, v1[LANES] = {0}, v2[LANES] = {0}, v3[LANES] = {0}, center[LANES], t[LANES], s[LANES];
    int is_beyond = 0;
    for (Py_ssize_t l = 0; l < k; l++) {
        s[l] = scale[i + l];
        center[l] = ring->center + (ring->own_center ? ring->own_center[i + l] : 0);
    }
#pragma omp simd reduction(| : is_beyond)
    for (Py_ssize_t l = 0; l < k; l++) {
        t[l] = (log_double(s[l]) - center[l]) * u;
        is_beyond |= t[l] > edge || t[l] < -edge;
    }
    if (is_beyond)
        for (Py_ssize_t l = 0; l < k; l++)
            if (t[l] > edge || t[l] < -edge) {
                t[l] = t[l] > 0 ? edge : -edge;
                s[l] = exp(center[l] + t[l] / u);
            }
    for (Py_ssize_t q = ring->n_powers - 1; q >= 0; q--) {
        const In_double *row = ring->c + q * n + i;
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
    /* From derivatives in x = log s to derivatives in s: s L1 = Lx, s^2 L2 = Lxx - Lx, s^3 L3 = Lxxx - 3 Lxx + 2 Lx. A
     * rounding error must not make L negative, which is a confidence above 1. */
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
    if (is_beyond)
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

CLONES static void evaluate_ring(Ring ring, Range samples, const In_double *scale, int order, double *out)
{
    Py_ssize_t i = samples.start;
    for (; i + LANES <= samples.stop; i += LANES)
        ring_lanes(&ring, i, LANES, scale, order, out);
    if (i < samples.stop)
        ring_lanes(&ring, i, samples.stop - i, scale, order, out);
}

/* From sums of e, e d and e d^2 at five nodes (see moments) to polynomials: `matrix` (15 x 15) takes L, dL/dt and d2L/dt2 at
 * the nodes to coefficients. c is 15 x n and holds the sums before, the coefficients afterwards. */
CLONES static void interpolate(const In_double *matrix, const In_double *scales, Range samples, double *c, Py_ssize_t n)
{
    double met[15][LANES] = {{0}};
    for (Py_ssize_t i = samples.start; i < samples.stop; i += LANES) {
        const int k = (int)min_size(samples.stop - i, LANES);
        for (int q = 0; q < 15; q++)
            for (int l = 0; l < k; l++)
                met[q][l] = c[q * n + i + l];
        for (int node = 0; node < 5; node++) {
            const double s = scales[node];
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                double total = met[node][l], first = met[5 + node][l] * s / total;
                double second = met[10 + node][l] * s * s / total;
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

/* Sum of a b. */
CLONES static double dot(const In_double *a, const In_double *b, Py_ssize_t n)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (Py_ssize_t i = 0; i < n; i++)
        total += a[i] * b[i];
    return total;
}

/* Half precision to single: sign and digits to their places; times 2^112, which corrects the exponent. Returned is whether
 * all are finite. */
CLONES static int widen_half(const In_half *half, Range entries, uint32_t *out)
{
    uint32_t not_finite = 0;
#pragma omp simd reduction(| : not_finite)
    for (Py_ssize_t i = entries.start; i < entries.stop; i++) {
        uint32_t h = half[i], size = h & 0x7fff;
        uint32_t bits = size << 13;
        float value;
        memcpy(&value, &bits, 4);
        value *= 5.192296858534828e33f;
        memcpy(&bits, &value, 4);
        out[i] = bits | (h & 0x8000) << 16;
        not_finite |= size >= 0x7c00;
    }
    return !not_finite;
}

/* The non-increasing sequence nearest to the values of every row, in place. Entries with equal keys (which lie side by side)
 * get one value. A block of pooled entries is a mean in `values` and a number of entries in `sizes`; both lie at the begin of the
 * row until the blocks are written out, from the last one on. */
CLONES static void pool_rows(double *values, Py_ssize_t m, Range rows, const In_double *keys, Py_ssize_t *sizes)
{
    for (Py_ssize_t row = rows.start; row < rows.stop; row++) {
        double *v = values + row * m;
        const In_double *key = keys + row * m;
        Py_ssize_t *size = sizes + row * m, n_blocks = 0, i = 0;
        while (i < m) {
            const Py_ssize_t begin = i;
            double mean = v[i++];
            for (; i < m && key[i] == key[begin]; i++)
                mean += v[i];
            Py_ssize_t n = i - begin;
            mean /= (double)n;
            while (n_blocks > 0 && v[n_blocks - 1] < mean) {
                n_blocks--;
                mean = (mean * (double)n + v[n_blocks] * (double)size[n_blocks]) / (double)(n + size[n_blocks]);
                n += size[n_blocks];
            }
            v[n_blocks] = mean;
            size[n_blocks++] = n;
        }
        i = m;
        while (n_blocks-- > 0) {
            const double mean = v[n_blocks];
            for (Py_ssize_t n = size[n_blocks]; n > 0; n--)
                v[--i] = mean;
        }
    }
}

/* ---- Digits ---------------------------------------------------------------------------------------------------- */

enum { DROPPED_DIGITS = 10 }; /* of the 53 binary digits of a double */

static const double smallest_normal = 2.2250738585072014e-308;

/* x with 43 binary digits, halves to the even neighbor. The last bits of a normal number are those of its digits; others stay:
 * infinity and NaN have none, and a subnormal number has more bits than digits. */
INLINE double round_normal(double x)
{
    const double size = fabs(x);
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t is_odd = (bits >> DROPPED_DIGITS) & 1, below_half = (1 << (DROPPED_DIGITS - 1)) - 1;
    const int64_t rounded = (bits + below_half + is_odd) & ~(int64_t)((1 << DROPPED_DIGITS) - 1);
    bits = size >= smallest_normal && size < INFINITY ? rounded : bits;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static double round_subnormal(double x)
{
    int exponent;
    const double unit = ldexp(1.0, 53 - DROPPED_DIGITS);
    const double digits = rint(frexp(x, &exponent) * unit) / unit;
    return ldexp(digits, exponent);
}

CLONES static void round_digits(double *values, Range samples)
{
    int has_subnormal = 0;
#pragma omp simd reduction(| : has_subnormal)
    for (Py_ssize_t i = samples.start; i < samples.stop; i++) {
        has_subnormal |= fabs(values[i]) < smallest_normal;
        values[i] = round_normal(values[i]);
    }
    for (Py_ssize_t i = samples.start; has_subnormal && i < samples.stop; i++)
        if (fabs(values[i]) < smallest_normal)
            values[i] = round_subnormal(values[i]);
}
