/* Rows of one type: included for double, for float, and for long rows of float, with
 *   REAL       the type of the logits
 *   VECTOR     how many columns are taken at a time
 *   NAME(x)    the name of a function for these
 *   EXP(x)     exp of a number up to 0
 *   SQRT(x)    square root
 *   HUGEST     a number whose double is infinite
 *   ALMOST_ONE some roundings below 1
 *
 * A row is walked through VECTOR columns at a time. Sums are kept in as many places, which become one at the end of the row, or of
 * PIECE columns: from there on they run in double. The last columns, if they do not fill a vector, are copied to one that goes on
 * with a filler; `kept` is then 1 for columns and 0 for fillers.
 */

typedef struct {
    Py_ssize_t m, whole; /* columns; how many of them fill vectors */
    REAL tail[VECTOR], mask[VECTOR];
} NAME(Shape);

INLINE NAME(Shape) NAME(shape)(Py_ssize_t m)
{
    NAME(Shape) shape = {.m = m, .whole = m / VECTOR * VECTOR};
    for (int l = 0; l < VECTOR; l++)
        shape.mask[l] = shape.whole + l < m;
    return shape;
}

INLINE void NAME(set_tail)(NAME(Shape) *shape, const REAL *row, REAL filler)
{
    for (int l = 0; l < VECTOR; l++)
        shape->tail[l] = shape->whole + l < shape->m ? row[shape->whole + l] : filler;
}

/* Take a step with each vector x of the piece that begins at column k; `kept` is NULL where all of it is. The tail is part of the last
 * piece. */
#define WALK(shape, row, k, STEP)                                                                                          \
    do {                                                                                                                   \
        const Py_ssize_t end = MIN((k) + PIECE, (shape).whole);                                                            \
        for (Py_ssize_t j = (k); j < end; j += VECTOR) {                                                                   \
            const REAL *const x = (row) + j, *const kept = NULL;                                                           \
            (void)kept;                                                                                                    \
            STEP;                                                                                                          \
        }                                                                                                                  \
        if (end == (shape).whole && end < (shape).m) {                                                                     \
            const REAL *const x = (shape).tail, *const kept = (shape).mask;                                                \
            (void)kept;                                                                                                    \
            STEP;                                                                                                          \
        }                                                                                                                  \
    } while (0)

#define PIECES(shape) for (Py_ssize_t k = 0; k == 0 || k < (shape).whole; k += PIECE)

INLINE REAL NAME(added)(const REAL *part)
{
    REAL half[VECTOR];
    memcpy(half, part, sizeof half);
    for (int width = VECTOR / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] += half[l + width];
    return half[0];
}

INLINE REAL NAME(highest)(const REAL *part)
{
    REAL half[VECTOR];
    memcpy(half, part, sizeof half);
    for (int width = VECTOR / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] = half[l] > half[l + width] ? half[l] : half[l + width];
    return half[0];
}

INLINE void NAME(step_largest)(const REAL *x, REAL high[VECTOR])
{
    EACH high[l] = x[l] > high[l] ? x[l] : high[l];
}

INLINE REAL NAME(largest)(NAME(Shape) *shape, const REAL *row)
{
    REAL high[VECTOR];
    const REAL first = row[0];
    NAME(set_tail)(shape, row, first);
    EACH high[l] = first;
    PIECES(*shape)
        WALK(*shape, row, k, NAME(step_largest)(x, high));
    return NAME(highest)(high);
}

/* The largest entry of every row, its column and the sum; returned is the smallest entry of all. */
INLINE void NAME(step_scan)(const REAL *x, const REAL *kept, REAL part[VECTOR], REAL high[VECTOR], REAL low[VECTOR])
{
    EACH {
        part[l] += kept ? x[l] * kept[l] : x[l];
        high[l] = x[l] > high[l] ? x[l] : high[l];
        low[l] = -x[l] > low[l] ? -x[l] : low[l];
    }
}

CLONES static double NAME(scan)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *column,
                                double *top, double *total)
{
    NAME(Shape) shape = NAME(shape)(m);
    REAL low[VECTOR];
    EACH low[l] = -z[start * m];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, first = row[0];
        REAL high[VECTOR];
        double whole = 0;
        NAME(set_tail)(&shape, row, first);
        EACH high[l] = first;
        PIECES(shape) {
            REAL part[VECTOR] = {0};
            WALK(shape, row, k, NAME(step_scan)(x, kept, part, high, low));
            whole += NAME(added)(part);
        }
        const REAL most = NAME(highest)(high);
        column[i] = TYPED(find)(row, m, most);
        top[i] = most;
        total[i] = whole;
    }
    return -NAME(highest)(low);
}

/* The same as bin_few for long rows. */
CLONES static int NAME(bin_rows)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const int64_t *label,
                                 Py_ssize_t n_bins, double edge, double tolerance, double *sums)
{
    NAME(Shape) shape = NAME(shape)(m);
    Bins bins = bins_for(sums, n_bins);
    REAL low[VECTOR] = {0};
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, first = row[0];
        REAL high[VECTOR];
        double total = 0;
        NAME(set_tail)(&shape, row, first);
        EACH high[l] = first;
        PIECES(shape) {
            REAL part[VECTOR] = {0};
            WALK(shape, row, k, NAME(step_scan)(x, kept, part, high, low));
            total += NAME(added)(part);
        }
        if (label[i] < 0 || label[i] >= m || !(total >= 1 - tolerance && total <= 1 + tolerance))
            return 0;
        const REAL top = NAME(highest)(high);
        const int right = row[label[i]] == top && TYPED(find)(row, m, top) == label[i]; /* of several the first is predicted */
        const double confidence = (double)top / total;
        add_to_bin(&bins, (int)(i % WAYS), bin_of(confidence, n_bins, edge), confidence, right, 1);
    }
    close_bins(&bins);
    return !(NAME(highest)(low) > 0);
}

/* The norms (sum of |z - centre|^r)^(1/r) for r = 1, 1.25, ..., 3: out is 9 x n. A fourth root is two square roots; the rest are
 * products. So that no power leaves the range of its type, the largest |z - centre| is taken out first. Where the mean and the largest
 * entry of every row are known (`total`, `top`), their distance serves: nothing is more than m - 1 times as far from the mean. */
INLINE void NAME(step_size)(const REAL *x, REAL middle, REAL high[VECTOR])
{
    EACH {
        REAL a = x[l] > middle ? x[l] - middle : middle - x[l];
        high[l] = a > high[l] ? a : high[l];
    }
}

INLINE void NAME(step_norms)(const REAL *x, REAL middle, REAL shrink, REAL s[9][VECTOR])
{
    EACH {
        REAL a = (x[l] > middle ? x[l] - middle : middle - x[l]) * shrink;
        REAL half = SQRT(a), quarter = SQRT(half), square = a * a;
        REAL b = a * quarter, c = a * half, d = c * quarter;
        s[0][l] += a;
        s[1][l] += b;
        s[2][l] += c;
        s[3][l] += d;
        s[4][l] += square;
        s[5][l] += a * b;
        s[6][l] += a * c;
        s[7][l] += a * d;
        s[8][l] += square * a;
    }
}

CLONES static void NAME(norms)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *total,
                               const double *top, double *out, Py_ssize_t n_rows)
{
    NAME(Shape) shape = NAME(shape)(m);
    double most[BLOCK];
    for (Py_ssize_t from = start; from < stop; from += BLOCK) {
        const Py_ssize_t n_here = MIN(stop - from, BLOCK);
        for (Py_ssize_t i = from; i < from + n_here; i++) {
            const REAL *row = z + i * m, middle = total ? (REAL)(total[i] / (double)m) : 0;
            REAL unit = total && m < MANY_COLUMNS ? (REAL)top[i] - middle : 0;
            NAME(set_tail)(&shape, row, middle);
            if (!(unit > 0)) {
                REAL high[VECTOR] = {0};
                PIECES(shape)
                    WALK(shape, row, k, NAME(step_size)(x, middle, high));
                unit = NAME(highest)(high);
            }
            REAL shrink = unit > 0 ? 1 / unit : 1;
            if (!(shrink <= HUGEST)) /* the unit is subnormal: its inverse would be infinite */
                shrink = 0;
            double sums[9] = {0};
            PIECES(shape) {
                REAL s[9][VECTOR] = {{0}};
                WALK(shape, row, k, NAME(step_norms)(x, middle, shrink, s));
                for (int q = 0; q < 9; q++)
                    sums[q] += NAME(added)(s[q]);
            }
            for (int q = 0; q < 9; q++)
                out[q * n_rows + i] = sums[q];
            most[i - from] = unit;
        }
        for (int q = 0; q < 9; q++) { /* the roots of a block of rows, side by side */
            double *found = out + q * n_rows + from;
            const double power = 1 / (1 + 0.25 * q);
#pragma omp simd
            for (Py_ssize_t r = 0; r < n_here; r++) { /* a sum is at least 1, unless all entries are 0 */
                double root = exp_double(log_double(found[r]) * power);
                found[r] = most[r] > 0 ? most[r] * root : 0;
            }
        }
    }
}

/* L = log sum exp(s (z - top)) of every row and its derivatives in s up to an order: out is (order + 1) x n. */
INLINE void NAME(step_first)(const REAL *x, const REAL *kept, REAL t, REAL s, REAL a[2][VECTOR])
{
    EACH {
        REAL d = x[l] - t, e = EXP(s * d);
        e = kept ? e * kept[l] : e;
        a[0][l] += e;
        a[1][l] += e * d;
    }
}

INLINE void NAME(step_third)(const REAL *x, const REAL *kept, REAL t, REAL s, REAL a[4][VECTOR])
{
    EACH {
        REAL d = x[l] - t, e = EXP(s * d);
        e = kept ? e * kept[l] : e;
        REAL ed = e * d, edd = ed * d;
        a[0][l] += e;
        a[1][l] += ed;
        a[2][l] += edd;
        a[3][l] += edd * d;
    }
}

CLONES static void NAME(curve)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                               const double *scale, int order, double *out, Py_ssize_t n_rows)
{
    NAME(Shape) shape = NAME(shape)(m);
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, t = (REAL)top[i], s = (REAL)scale[i];
        double e[4] = {0};
        NAME(set_tail)(&shape, row, t);
        PIECES(shape) {
            if (order < 2) {
                REAL a[2][VECTOR] = {{0}};
                WALK(shape, row, k, NAME(step_first)(x, kept, t, s, a));
                for (int q = 0; q < 2; q++)
                    e[q] += NAME(added)(a[q]);
            } else {
                REAL a[4][VECTOR] = {{0}};
                WALK(shape, row, k, NAME(step_third)(x, kept, t, s, a));
                for (int q = 0; q < 4; q++)
                    e[q] += NAME(added)(a[q]);
            }
        }
        double mean = e[1] / e[0], square = e[2] / e[0];
        /* L at the scale itself, not at the scale rounded to the type of the logits */
        out[i] = log_double(e[0]) + (scale[i] - (double)s) * mean;
        out[n_rows + i] = mean;
        if (order > 1)
            out[2 * n_rows + i] = square > mean * mean ? square - mean * mean : 0;
        if (order > 2)
            out[3 * n_rows + i] = e[3] / e[0] - 3 * mean * square + 2 * mean * mean * mean;
    }
}

/* Sums of e, e d, e d^2 with e = exp(s d), d = z - top, for five scales s, each sqrt(2) times the last: out is 3 x 5 x n.
 * Two exponentials: doubling s squares e. */
INLINE void NAME(step_moments)(const REAL *x, const REAL *kept, REAL t, REAL low, REAL high, REAL s[15][VECTOR])
{
    EACH {
        REAL d = x[l] - t, e = EXP(low * d), g = EXP(high * d);
        e = kept ? e * kept[l] : e;
        g = kept ? g * kept[l] : g;
        REAL ed = e * d, gd = g * d;
        s[0][l] += e, s[5][l] += ed, s[10][l] += ed * d;
        s[1][l] += g, s[6][l] += gd, s[11][l] += gd * d;
        e *= e, g *= g;
        ed = e * d, gd = g * d;
        s[2][l] += e, s[7][l] += ed, s[12][l] += ed * d;
        s[3][l] += g, s[8][l] += gd, s[13][l] += gd * d;
        e *= e;
        ed = e * d;
        s[4][l] += e, s[9][l] += ed, s[14][l] += ed * d;
    }
}

CLONES static void NAME(moments)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                 const double *scales, double *out, Py_ssize_t n_rows)
{
    const REAL low = (REAL)scales[0], high = (REAL)scales[1];
    NAME(Shape) shape = NAME(shape)(m);
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, t = (REAL)top[i];
        double sums[15] = {0};
        NAME(set_tail)(&shape, row, t);
        PIECES(shape) {
            REAL s[15][VECTOR] = {{0}};
            WALK(shape, row, k, NAME(step_moments)(x, kept, t, low, high, s));
            for (int q = 0; q < 15; q++)
                sums[q] += NAME(added)(s[q]);
        }
        for (int q = 0; q < 15; q++)
            out[q * n_rows + i] = sums[q];
    }
}

/* Around a scale s of every row: sums of e and e d at s/2, of e d^0 to e d^4 at s, of e and e d at 2 s: out is 9 x n. */
INLINE void NAME(step_moments_at)(const REAL *x, const REAL *kept, REAL t, REAL half, REAL s[9][VECTOR])
{
    EACH {
        REAL d = x[l] - t, e = EXP(half * d), square = d * d;
        e = kept ? e * kept[l] : e;
        s[0][l] += e, s[1][l] += e * d;
        e *= e;
        REAL ed = e * d, edd = e * square;
        s[2][l] += e, s[3][l] += ed, s[4][l] += edd, s[5][l] += ed * square, s[6][l] += edd * square;
        e *= e;
        s[7][l] += e, s[8][l] += e * d;
    }
}

CLONES static void NAME(moments_at)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                    const double *scale, double *out, Py_ssize_t n_rows)
{
    NAME(Shape) shape = NAME(shape)(m);
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, t = (REAL)top[i], half = (REAL)(scale[i] / 2);
        double sums[9] = {0};
        NAME(set_tail)(&shape, row, t);
        PIECES(shape) {
            REAL s[9][VECTOR] = {{0}};
            WALK(shape, row, k, NAME(step_moments_at)(x, kept, t, half, s));
            for (int q = 0; q < 9; q++)
                sums[q] += NAME(added)(s[q]);
        }
        for (int q = 0; q < 9; q++)
            out[q * n_rows + i] = sums[q];
    }
}

/* softmax(s z) of every row, s its own scale, or the same for all rows. The first of the largest entries of a row is so afterwards:
 * none before it becomes equal to it by rounding. */
INLINE void NAME(step_softmax)(const REAL *x, const REAL *kept, REAL t, REAL s, REAL *e, REAL part[VECTOR], REAL near[VECTOR])
{
    EACH {
        REAL power = EXP(s * (x[l] - t));
        power = kept ? power * kept[l] : power;
        e[l] = power;
        part[l] += power;
        near[l] += power > ALMOST_ONE ? (REAL)1 : (REAL)0;
    }
}

CLONES static void NAME(softmax)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *scale, int same,
                                 REAL *out)
{
    NAME(Shape) shape = NAME(shape)(m);
    REAL last[VECTOR];
    for (Py_ssize_t i = start; i < stop; i++) {
        const REAL *row = z + i * m, t = NAME(largest)(&shape, row), s = (REAL)scale[same ? 0 : i];
        REAL *p = out + i * m, near[VECTOR] = {0};
        double total = 0;
        PIECES(shape) {
            REAL part[VECTOR] = {0};
            WALK(shape, row, k, NAME(step_softmax)(x, kept, t, s, kept ? last : p + (x - row), part, near));
            total += NAME(added)(part);
        }
        const REAL share = (REAL)(1 / total);
        for (Py_ssize_t j = 0; j < shape.whole; j += VECTOR)
            EACH p[j + l] *= share;
        for (Py_ssize_t j = shape.whole; j < m; j++)
            p[j] = last[j - shape.whole] * share;
        if (NAME(added)(near) > 1)
            TYPED(keep_decision)(row, p, m, t);
    }
}

#undef WALK
#undef PIECES
