/* Rows of one type: included once for float and once for double, with
 *   REAL       the type of the logits
 *   NAME(x)    the name of a function for that type
 *   EXP(x)     exp of a number up to 0
 *   SQRT(x)    square root
 *   HUGEST     a number whose double is infinite
 *   ALMOST_ONE some roundings below 1
 * Sums run in REAL over pieces of PIECE columns, and in double over the pieces.
 */

#define PIECE 2048
#define GROUPS 64
#define MIN(a, b) ((a) < (b) ? (a) : (b))

INLINE REAL NAME(largest)(const REAL *row, Py_ssize_t m)
{
    REAL top = row[0];
#pragma omp simd reduction(max : top)
    for (Py_ssize_t j = 0; j < m; j++)
        top = row[j] > top ? row[j] : top;
    return top;
}

INLINE double NAME(sum)(const REAL *row, Py_ssize_t m)
{
    double total = 0;
    for (Py_ssize_t k = 0; k < m; k += PIECE) {
        const REAL *x = row + k;
        Py_ssize_t n = MIN(m - k, PIECE);
        REAL part = 0;
#pragma omp simd reduction(+ : part)
        for (Py_ssize_t j = 0; j < n; j++)
            part += x[j];
        total += part;
    }
    return total;
}

/* Column of the first entry that equals a value which is known to be there. */
INLINE Py_ssize_t NAME(find)(const REAL *row, Py_ssize_t m, REAL value)
{
    Py_ssize_t k = 0;
    for (; k + 64 <= m; k += 64) {
        int here = 0;
#pragma omp simd reduction(| : here)
        for (Py_ssize_t j = 0; j < 64; j++)
            here |= row[k + j] == value;
        if (here)
            break;
    }
    while (k < m - 1 && row[k] != value)
        k++;
    return k;
}

/* The same as scan below for rows too short to fill a vector: everything in one loop. */
static double NAME(scan_few)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *column, double *top,
                             double *total)
{
    REAL least = z[start * m];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        REAL high = row[0], sum = row[0];
        least = row[0] < least ? row[0] : least;
        Py_ssize_t at = 0;
        for (Py_ssize_t j = 1; j < m; j++) {
            REAL v = row[j];
            at = v > high ? j : at;
            high = v > high ? v : high;
            least = v < least ? v : least;
            sum += v;
        }
        column[i] = at;
        top[i] = high;
        total[i] = sum;
    }
    return least;
}

/* The largest entry of every row, its column and the sum; returned is the smallest entry of all. */
CLONES static double NAME(scan)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *column,
                                double *top, double *total)
{
    REAL least = z[start * m];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        REAL high = row[0];
        double whole = 0;
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL part = 0;
#pragma omp simd reduction(+ : part) reduction(max : high) reduction(min : least)
            for (Py_ssize_t j = 0; j < n; j++) {
                part += x[j];
                high = x[j] > high ? x[j] : high;
                least = x[j] < least ? x[j] : least;
            }
            whole += part;
        }
        column[i] = NAME(find)(row, m, high);
        top[i] = high;
        total[i] = whole;
    }
    return least;
}

/* Put a value among the largest found so far, which stand in falling order. */
INLINE void NAME(insert)(double *found, Py_ssize_t *n_found, Py_ssize_t k, REAL value)
{
    if (*n_found == k && !(value > found[k - 1]))
        return;
    Py_ssize_t at = *n_found < k ? (*n_found)++ : k - 1;
    for (; at > 0 && found[at - 1] < value; at--)
        found[at] = found[at - 1];
    found[at] = value;
}

/* The k largest entries of every row, largest first (n x k). The k-th largest of GROUPS maxima of every GROUPS-th column is a lower
 * bound for them: most pieces of a row hold nothing above it and are passed over. */
CLONES static void NAME(best)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k, double *out)
{
    REAL group[GROUPS];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        double *found = out + i * k;
        Py_ssize_t n_found = 0, j = 0;
        if (k <= GROUPS / 2 && m >= 4 * GROUPS) {
            memcpy(group, row, sizeof group);
            for (j = GROUPS; j + GROUPS <= m; j += GROUPS) {
#pragma omp simd
                for (Py_ssize_t l = 0; l < GROUPS; l++)
                    group[l] = row[j + l] > group[l] ? row[j + l] : group[l];
            }
            for (Py_ssize_t l = 0; l < GROUPS; l++)
                NAME(insert)(found, &n_found, k, group[l]);
            const REAL bound = (REAL)found[k - 1];
            n_found = 0;
            for (j = 0; j + GROUPS <= m; j += GROUPS) {
                int here = 0;
#pragma omp simd reduction(| : here)
                for (Py_ssize_t l = 0; l < GROUPS; l++)
                    here |= row[j + l] >= bound;
                if (here)
                    for (Py_ssize_t l = j; l < j + GROUPS; l++)
                        if (row[l] >= bound)
                            NAME(insert)(found, &n_found, k, row[l]);
            }
        }
        for (; j < m; j++)
            NAME(insert)(found, &n_found, k, row[j]);
    }
}

/* The norms (sum of |z - centre|^r)^(1/r) for r = 1, 1.25, ..., 3: out is 9 x n. The largest |z - centre| is taken out first. A fourth
 * root is two square roots; the rest are products. */
CLONES static void NAME(norms)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, int center, double *out,
                               Py_ssize_t n_rows)
{
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        REAL middle = center ? (REAL)(NAME(sum)(row, m) / m) : 0;
        REAL most = 0;
#pragma omp simd reduction(max : most)
        for (Py_ssize_t j = 0; j < m; j++) {
            REAL a = row[j] > middle ? row[j] - middle : middle - row[j];
            most = a > most ? a : most;
        }
        REAL shrink = most > 0 ? 1 / most : 1;
        if (!(shrink <= HUGEST)) /* most is subnormal: its inverse would be infinite */
            shrink = 0;
        double sums[9] = {0};
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0, s8 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7, s8)
            for (Py_ssize_t j = 0; j < n; j++) {
                REAL a = (x[j] > middle ? x[j] - middle : middle - x[j]) * shrink;
                REAL half = SQRT(a), quarter = SQRT(half), square = a * a;
                REAL b = a * quarter, c = a * half, d = c * quarter;
                s0 += a;
                s1 += b;
                s2 += c;
                s3 += d;
                s4 += square;
                s5 += a * b;
                s6 += a * c;
                s7 += a * d;
                s8 += square * a;
            }
            double parts[9] = {s0, s1, s2, s3, s4, s5, s6, s7, s8};
            for (int q = 0; q < 9; q++)
                sums[q] += parts[q];
        }
        double roots[9];
#pragma omp simd
        for (int q = 0; q < 9; q++) /* a sum is at least 1, unless all entries are 0 */
            roots[q] = exp_double(log_double(sums[q]) / (1 + 0.25 * q));
        for (int q = 0; q < 9; q++)
            out[q * n_rows + i] = most > 0 ? most * roots[q] : 0;
    }
}

/* L = log sum exp(s (z - top)) of every row and its derivatives in s up to an order: out is (order + 1) x n. */
CLONES static void NAME(curve)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                               const double *scale, int order, double *out, Py_ssize_t n_rows)
{
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        const REAL t = (REAL)top[i], s = (REAL)scale[i];
        double e0 = 0, e1 = 0, e2 = 0, e3 = 0;
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL a0 = 0, a1 = 0, a2 = 0, a3 = 0;
            if (order < 2) {
#pragma omp simd reduction(+ : a0, a1)
                for (Py_ssize_t j = 0; j < n; j++) {
                    REAL d = x[j] - t, e = EXP(s * d);
                    a0 += e;
                    a1 += e * d;
                }
            } else {
#pragma omp simd reduction(+ : a0, a1, a2, a3)
                for (Py_ssize_t j = 0; j < n; j++) {
                    REAL d = x[j] - t, e = EXP(s * d), ed = e * d, edd = ed * d;
                    a0 += e;
                    a1 += ed;
                    a2 += edd;
                    a3 += edd * d;
                }
            }
            e0 += a0, e1 += a1, e2 += a2, e3 += a3;
        }
        double mean = e1 / e0, square = e2 / e0;
        /* L at the scale itself, not at the scale rounded to the type of the logits */
        out[i] = log(e0) + (scale[i] - (double)s) * mean;
        out[n_rows + i] = mean;
        if (order > 1)
            out[2 * n_rows + i] = square > mean * mean ? square - mean * mean : 0;
        if (order > 2)
            out[3 * n_rows + i] = e3 / e0 - 3 * mean * square + 2 * mean * mean * mean;
    }
}

/* Sums of e, e d, e d^2 with e = exp(s d), d = z - top, for five scales s, each sqrt(2) times the last: out is 3 x 5 x n.
 * Two exponentials: doubling s squares e. */
CLONES static void NAME(moments)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                 const double *scales, double *out, Py_ssize_t n_rows)
{
    const REAL low = (REAL)scales[0], high = (REAL)scales[1];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        const REAL t = (REAL)top[i];
        double sums[15] = {0};
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL a0 = 0, a1 = 0, a2 = 0, b0 = 0, b1 = 0, b2 = 0, c0 = 0, c1 = 0, c2 = 0;
            REAL d0 = 0, d1 = 0, d2 = 0, f0 = 0, f1 = 0, f2 = 0;
#pragma omp simd reduction(+ : a0, a1, a2, b0, b1, b2, c0, c1, c2, d0, d1, d2, f0, f1, f2)
            for (Py_ssize_t j = 0; j < n; j++) {
                REAL d = x[j] - t, e = EXP(low * d), g = EXP(high * d);
                REAL ed = e * d, gd = g * d;
                a0 += e, a1 += ed, a2 += ed * d;
                b0 += g, b1 += gd, b2 += gd * d;
                e *= e, g *= g;
                ed = e * d, gd = g * d;
                c0 += e, c1 += ed, c2 += ed * d;
                d0 += g, d1 += gd, d2 += gd * d;
                e *= e;
                ed = e * d;
                f0 += e, f1 += ed, f2 += ed * d;
            }
            double parts[15] = {a0, b0, c0, d0, f0, a1, b1, c1, d1, f1, a2, b2, c2, d2, f2};
            for (int q = 0; q < 15; q++)
                sums[q] += parts[q];
        }
        for (int q = 0; q < 15; q++)
            out[q * n_rows + i] = sums[q];
    }
}

/* Around a scale s of every row: sums of e and e d at s/2, of e d^0 to e d^4 at s, of e and e d at 2 s: out is 9 x n. */
CLONES static void NAME(moments_at)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                    const double *scale, double *out, Py_ssize_t n_rows)
{
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        const REAL t = (REAL)top[i], half = (REAL)(scale[i] / 2);
        double sums[9] = {0};
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL a0 = 0, a1 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0, b4 = 0, c0 = 0, c1 = 0;
#pragma omp simd reduction(+ : a0, a1, b0, b1, b2, b3, b4, c0, c1)
            for (Py_ssize_t j = 0; j < n; j++) {
                REAL d = x[j] - t, e = EXP(half * d), square = d * d;
                a0 += e, a1 += e * d;
                e *= e;
                REAL ed = e * d, edd = e * square;
                b0 += e, b1 += ed, b2 += edd, b3 += ed * square, b4 += edd * square;
                e *= e;
                c0 += e, c1 += e * d;
            }
            double parts[9] = {a0, a1, b0, b1, b2, b3, b4, c0, c1};
            for (int q = 0; q < 9; q++)
                sums[q] += parts[q];
        }
        for (int q = 0; q < 9; q++)
            out[q * n_rows + i] = sums[q];
    }
}

/* softmax(s z) of every row, s its own scale. Says how many entries come so close to the largest that rounding may have made them
 * equal. */
CLONES static Py_ssize_t NAME(softmax)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *scale,
                                       REAL *out)
{
    Py_ssize_t close = 0;
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m;
        REAL *p = out + i * m;
        const REAL t = NAME(largest)(row, m), s = (REAL)scale[i];
        double total = 0;
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            const REAL *x = row + k;
            REAL *e = p + k;
            Py_ssize_t n = MIN(m - k, PIECE);
            REAL part = 0;
            int near = 0;
#pragma omp simd reduction(+ : part, near)
            for (Py_ssize_t j = 0; j < n; j++) {
                e[j] = EXP(s * (x[j] - t));
                part += e[j];
                near += e[j] > ALMOST_ONE;
            }
            total += part;
            close += near;
        }
        const REAL share = (REAL)(1 / total);
#pragma omp simd
        for (Py_ssize_t j = 0; j < m; j++)
            p[j] *= share;
    }
    return close - (stop - start);
}

#undef PIECE
#undef GROUPS
#undef MIN
