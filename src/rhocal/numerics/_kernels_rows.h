/* Passes over blocks of rows (see `_kernels_blocks.h`): included for float and for double, with
 *   EXP(x)       exp of a number up to 0
 *   QUARTER(x)   fourth root
 *   HUGEST       a number whose double is infinite
 *   ALMOST_ONE   some roundings below 1
 */

/* The largest entry of every row of a block, its column and the sum; `low` becomes the smallest entry seen so far, changed in sign. */
INLINE void TYPED(step_look)(const REAL *x, const REAL *kept, REAL part[WIDTH], REAL high[WIDTH], REAL low[WIDTH])
{
    EACH {
        part[l] += kept ? x[l] * kept[l] : x[l];
        high[l] = x[l] > high[l] ? x[l] : high[l];
        low[l] = -x[l] > low[l] ? -x[l] : low[l];
    }
}

INLINE void TYPED(look)(const TYPED(Block) *block, REAL low[WIDTH], Py_ssize_t column[WIDTH], REAL top[WIDTH], double total[WIDTH])
{
    EACH total[l] = 0;
    if (block->m < LONG) {
        int32_t at[WIDTH] = {0};
        EACH top[l] = block->side[0][l];
        SIDE_PIECES(*block) {
            REAL part[WIDTH] = {0};
            WALK_SIDE(*block, k, {
                EACH at[l] = x[l] > top[l] ? (int32_t)c : at[l];
                TYPED(step_look)(x, kept, part, top, low);
            })
            EACH total[l] += part[l];
        }
        EACH column[l] = at[l];
        return;
    }
    for (int r = 0; r < block->n; r++) {
        REAL high[WIDTH];
        EACH high[l] = block->row[r][0];
        ROW_PIECES(*block) {
            REAL part[WIDTH] = {0};
            WALK_ROW(*block, r, k, TYPED(step_look)(x, kept, part, high, low));
            total[r] += TYPED(added)(part);
        }
        top[r] = TYPED(highest)(high);
        column[r] = TYPED(find)(block->row[r], block->m, top[r]);
    }
}

/* The largest entry of every row, its column and the sum; returned is the smallest entry of all. */
CLONES static double TYPED(scan)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *column, double *top,
                                 double *total)
{
    TYPED(Block) block;
    REAL low[WIDTH], high[WIDTH];
    Py_ssize_t at[WIDTH];
    double sum[WIDTH];
    EACH low[l] = -z[start * m];
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        TYPED(open)(&block, z, m, i, stop);
        TYPED(look)(&block, low, at, high, sum);
        for (int l = 0; l < block.n; l++)
            column[i + l] = at[l], top[i + l] = high[l], total[i + l] = sum[l];
    }
    return -TYPED(highest)(low);
}

/* From probabilities and labels to the bins of confidence (see add_to_bin), without a number a sample in between. Says whether all is as
 * it should be: labels are columns, no entry is negative, every row sums to 1 within the tolerance. */
CLONES static int TYPED(bin_rows)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const int64_t *label,
                                  Py_ssize_t n_bins, double edge, double tolerance, double *sums)
{
    TYPED(Block) block;
    REAL low[WIDTH] = {0}, high[WIDTH];
    Py_ssize_t column[WIDTH], at_bin[WIDTH];
    double total[WIDTH], confidence[WIDTH];
    int odd = 0;
    Bins bins = bins_for(sums, n_bins);
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        TYPED(open)(&block, z, m, i, stop);
        TYPED(look)(&block, low, column, high, total);
#pragma omp simd reduction(| : odd)
        for (int l = 0; l < WIDTH; l++) {
            odd |= !(total[l] >= 1 - tolerance && total[l] <= 1 + tolerance); /* also if it is not a number */
            confidence[l] = (double)high[l] / total[l];
            at_bin[l] = bin_of(confidence[l], n_bins, edge);
        }
        for (int l = 0; l < block.n; l++) {
            odd |= label[i + l] < 0 || label[i + l] >= m;
            add_to_bin(&bins, l, at_bin[l], confidence[l], label[i + l] == column[l], 1);
        }
        if (odd)
            return 0;
    }
    close_bins(&bins);
    return !(TYPED(highest)(low) > 0);
}

/* The norms (sum of |z - centre|^r)^(1/r) for r = 1, 1.25, ..., 3: out is 9 x n. All powers are products of fourth roots. So that none
 * leaves the range of its type, the largest |z - centre| is taken out first. Where the mean and the largest entry of every row are known
 * (`total`, `top`), their distance serves: nothing is more than m - 1 times as far from the mean. */
INLINE void TYPED(step_size)(const REAL *x, REAL middle[WIDTH], REAL high[WIDTH])
{
    EACH {
        REAL a = x[l] > middle[l] ? x[l] - middle[l] : middle[l] - x[l];
        high[l] = a > high[l] ? a : high[l];
    }
}

INLINE void TYPED(sizes)(const TYPED(Block) *block, REAL middle[WIDTH], REAL size[WIDTH])
{
    EACH size[l] = 0;
    if (block->m < LONG) {
        SIDE_PIECES(*block)
            WALK_SIDE(*block, k, TYPED(step_size)(x, middle, size))
        return;
    }
    for (int r = 0; r < block->n; r++) {
        REAL same[WIDTH], high[WIDTH] = {0};
        EACH same[l] = middle[r];
        ROW_PIECES(*block)
            WALK_ROW(*block, r, k, TYPED(step_size)(x, same, high));
        size[r] = TYPED(highest)(high);
    }
}

INLINE void TYPED(step_norms)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL s[9][WIDTH])
{
    EACH {
        REAL d = x[l] - pairs->t[l], a = (d > 0 ? d : -d) * pairs->s[l];
        a = kept ? a * kept[l] : a;
        REAL quarter = QUARTER(a), half = quarter * quarter, square = a * a;
        REAL b = a * quarter, c = a * half, e = c * quarter;
        s[0][l] += a;
        s[1][l] += b;
        s[2][l] += c;
        s[3][l] += e;
        s[4][l] += square;
        s[5][l] += a * b;
        s[6][l] += a * c;
        s[7][l] += a * e;
        s[8][l] += square * a;
    }
}

CLONES static void TYPED(norms)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *total,
                                const double *top, double *out, Py_ssize_t n_rows)
{
    TYPED(Block) block;
    TYPED(Pairs) both; /* the middle of a row, and what its entries are multiplied by */
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        REAL unit[WIDTH];
        double sums[9][WIDTH] = {{0}};
        int known = total && m < MANY_COLUMNS;
        TYPED(open)(&block, z, m, i, stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + MIN(l, block.n - 1);
            both.t[l] = total ? (REAL)(total[row] / (double)m) : 0;
            unit[l] = known ? (REAL)top[row] - both.t[l] : 0;
        }
        for (int l = 0; l < WIDTH; l++)
            known &= unit[l] > 0;
        if (!known)
            TYPED(sizes)(&block, both.t, unit);
        EACH {
            const REAL shrink = unit[l] > 0 ? 1 / unit[l] : 1;
            both.s[l] = shrink <= HUGEST ? shrink : 0; /* the unit is subnormal: its inverse would be infinite */
        }
        SUMS(9, sums, block, both, TYPED(step_norms)(x, kept, pairs, a));
        for (int q = 0; q < 9; q++) {
            const double power = 1 / (1 + 0.25 * q);
            EACH { /* a sum is at least 1, unless all entries are 0 */
                const double root = exp_double(log_double(sums[q][l]) * power);
                sums[q][l] = unit[l] > 0 ? unit[l] * root : 0;
            }
        }
        TYPED(put)(&block, sums, 9, out + i, n_rows);
    }
}

/* L = log sum exp(s (z - t)) of every row, t its largest entry, and its derivatives in s up to an order: out is (order + 1) x n. */
INLINE void TYPED(step_first)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL a[2][WIDTH])
{
    EACH {
        REAL d = x[l] - pairs->t[l], e = EXP(pairs->s[l] * d);
        e = kept ? e * kept[l] : e;
        a[0][l] += e;
        a[1][l] += e * d;
    }
}

INLINE void TYPED(step_third)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL a[4][WIDTH])
{
    EACH {
        REAL d = x[l] - pairs->t[l], e = EXP(pairs->s[l] * d);
        e = kept ? e * kept[l] : e;
        REAL ed = e * d, edd = ed * d;
        a[0][l] += e;
        a[1][l] += ed;
        a[2][l] += edd;
        a[3][l] += edd * d;
    }
}

/* The same in double, whatever the type of the logits: for few columns, where roundings do not average out. */
INLINE void TYPED(few_sums)(const TYPED(Block) *block, const double t[WIDTH], const double s[WIDTH], double sums[4][WIDTH])
{
    for (Py_ssize_t c = 0; c < block->m; c++)
        EACH {
            double d = block->side[c][l] - t[l], e = exp_double(s[l] * d), ed = e * d, edd = ed * d;
            sums[0][l] += e;
            sums[1][l] += ed;
            sums[2][l] += edd;
            sums[3][l] += edd * d;
        }
}

CLONES static void TYPED(curve)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                const double *scale, int order, double *out, Py_ssize_t n_rows)
{
    TYPED(Block) block;
    TYPED(Pairs) both;
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        double t[WIDTH], s[WIDTH], e[4][WIDTH] = {{0}};
        TYPED(open)(&block, z, m, i, stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + MIN(l, block.n - 1);
            t[l] = top[row], s[l] = scale[row];
        }
        EACH both.t[l] = (REAL)t[l], both.s[l] = (REAL)s[l];
        if (m <= FEW) {
            TYPED(few_sums)(&block, t, s, e);
            EACH both.s[l] = 0;
        } else if (order < 2)
            SUMS(2, e, block, both, TYPED(step_first)(x, kept, pairs, a));
        else
            SUMS(4, e, block, both, TYPED(step_third)(x, kept, pairs, a));
        EACH {
            const double whole = 1 / e[0][l], mean = e[1][l] * whole, square = e[2][l] * whole, spread = square - mean * mean;
            /* L at the scale itself, not at the scale rounded to the type of the logits */
            e[0][l] = log_double(e[0][l]) + (m <= FEW ? 0 : (s[l] - (double)both.s[l]) * mean);
            e[1][l] = mean;
            e[2][l] = spread > 0 ? spread : 0;
            e[3][l] = e[3][l] * whole - 3 * mean * square + 2 * mean * mean * mean;
        }
        TYPED(put)(&block, e, order + 1, out + i, n_rows);
    }
}

/* Sums of e, e d, e d^2 with e = exp(s d), d = z - t, for five scales s which are to each other as 3 : 4 : 6 : 9 : 12. One exponential, at
 * a third of the first: the rest are products. out is 3 x 5 x n. */
INLINE void TYPED(step_moments)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL s[15][WIDTH])
{
    EACH {
        REAL d = x[l] - pairs->t[l], e = EXP(pairs->s[l] * d);
        e = kept ? e * kept[l] : e;
        REAL e2 = e * e, e3 = e2 * e, e4 = e2 * e2, e6 = e3 * e3, e9 = e6 * e3, e12 = e6 * e6, square = d * d;
        s[0][l] += e3, s[5][l] += e3 * d, s[10][l] += e3 * square;
        s[1][l] += e4, s[6][l] += e4 * d, s[11][l] += e4 * square;
        s[2][l] += e6, s[7][l] += e6 * d, s[12][l] += e6 * square;
        s[3][l] += e9, s[8][l] += e9 * d, s[13][l] += e9 * square;
        s[4][l] += e12, s[9][l] += e12 * d, s[14][l] += e12 * square;
    }
}

CLONES static void TYPED(moments)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                  const double *scales, double *out, Py_ssize_t n_rows)
{
    TYPED(Block) block;
    TYPED(Pairs) both;
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        double sums[15][WIDTH] = {{0}};
        TYPED(open)(&block, z, m, i, stop);
        for (int l = 0; l < WIDTH; l++)
            both.t[l] = (REAL)top[i + MIN(l, block.n - 1)], both.s[l] = (REAL)(scales[0] / 3);
        SUMS(15, sums, block, both, TYPED(step_moments)(x, kept, pairs, a));
        TYPED(put)(&block, sums, 15, out + i, n_rows);
    }
}

/* Around a scale s of every row: sums of e and e d at s/2, of e d^0 to e d^4 at s, of e and e d at 2 s: out is 9 x n. */
INLINE void TYPED(step_moments_at)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL s[9][WIDTH])
{
    EACH {
        REAL d = x[l] - pairs->t[l], e = EXP(pairs->s[l] * d), square = d * d;
        e = kept ? e * kept[l] : e;
        s[0][l] += e, s[1][l] += e * d;
        e *= e;
        REAL ed = e * d, edd = e * square;
        s[2][l] += e, s[3][l] += ed, s[4][l] += edd, s[5][l] += ed * square, s[6][l] += edd * square;
        e *= e;
        s[7][l] += e, s[8][l] += e * d;
    }
}

CLONES static void TYPED(moments_at)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top,
                                     const double *scale, double *out, Py_ssize_t n_rows)
{
    TYPED(Block) block;
    TYPED(Pairs) both;
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        double sums[9][WIDTH] = {{0}};
        TYPED(open)(&block, z, m, i, stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + MIN(l, block.n - 1);
            both.t[l] = (REAL)top[row], both.s[l] = (REAL)(scale[row] / 2);
        }
        SUMS(9, sums, block, both, TYPED(step_moments_at)(x, kept, pairs, a));
        TYPED(put)(&block, sums, 9, out + i, n_rows);
    }
}

/* softmax(s z) of every row, s its own scale, or the same for all rows. The first of the largest entries of a row is so afterwards:
 * none before it becomes equal to it by rounding. */
INLINE void TYPED(step_softmax)(const REAL *x, const REAL *kept, const TYPED(Pairs) *pairs, REAL *e, REAL part[WIDTH],
                                REAL near[WIDTH])
{
    EACH {
        REAL power = EXP(pairs->s[l] * (x[l] - pairs->t[l]));
        power = kept ? power * kept[l] : power;
        e[l] = power;
        part[l] += power;
        near[l] += power > ALMOST_ONE ? (REAL)1 : (REAL)0;
    }
}

INLINE void TYPED(softmax_short)(TYPED(Block) *block, const double *scale, int same, REAL *out)
{
    TYPED(Pairs) both;
    REAL near[WIDTH] = {0}, share[WIDTH];
    double total[WIDTH] = {0};
    for (int l = 0; l < WIDTH; l++)
        both.s[l] = (REAL)scale[same ? 0 : MIN(l, block->n - 1)];
    EACH both.t[l] = block->side[0][l];
    for (Py_ssize_t c = 0; c < block->m; c++)
        EACH both.t[l] = block->side[c][l] > both.t[l] ? block->side[c][l] : both.t[l];
    SIDE_PIECES(*block) {
        REAL part[WIDTH] = {0};
        WALK_SIDE(*block, k, TYPED(step_softmax)(x, kept, &both, block->side[c], part, near))
        EACH total[l] += part[l];
    }
    EACH share[l] = (REAL)(1 / total[l]);
    for (Py_ssize_t c = 0; c < block->m; c++)
        EACH block->side[c][l] *= share[l];
    TYPED(lay_in_rows)(block, out);
    for (int r = 0; r < block->n; r++)
        if (near[r] > 1)
            TYPED(keep_decision)(block->row[r], out + r * block->m, block->m, both.t[r]);
}

INLINE void TYPED(softmax_long)(const TYPED(Block) *block, const double *scale, int same, REAL *out)
{
    const Py_ssize_t m = block->m, whole = m / WIDTH * WIDTH;
    for (int r = 0; r < block->n; r++) {
        const REAL *row = block->row[r];
        REAL *p = out + r * m, high[WIDTH], near[WIDTH] = {0}, last[WIDTH];
        TYPED(Pairs) pairs;
        double total = 0;
        EACH high[l] = row[0];
        ROW_PIECES(*block)
            WALK_ROW(*block, r, k, EACH high[l] = x[l] > high[l] ? x[l] : high[l]);
        const REAL t = TYPED(highest)(high), s = (REAL)scale[same ? 0 : r];
        EACH pairs.t[l] = t, pairs.s[l] = s;
        ROW_PIECES(*block) {
            REAL part[WIDTH] = {0};
            WALK_ROW(*block, r, k, TYPED(step_softmax)(x, kept, &pairs, kept ? last : p + (x - row), part, near));
            total += TYPED(added)(part);
        }
        const REAL share = (REAL)(1 / total);
        for (Py_ssize_t j = 0; j < whole; j += WIDTH)
            EACH p[j + l] *= share;
        for (Py_ssize_t j = whole; j < m; j++)
            p[j] = last[j - (m - WIDTH)] * share;
        if (TYPED(added)(near) > 1)
            TYPED(keep_decision)(row, p, m, t);
    }
}

CLONES static void TYPED(softmax)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *scale, int same,
                                  REAL *out)
{
    TYPED(Block) block;
    for (Py_ssize_t i = start; i < stop; i += WIDTH) {
        TYPED(open)(&block, z, m, i, stop);
        if (m < LONG)
            TYPED(softmax_short)(&block, same ? scale : scale + i, same, out + i * m);
        else
            TYPED(softmax_long)(&block, same ? scale : scale + i, same, out + i * m);
    }
}

#undef EACH
#undef WALK_SIDE
#undef WALK_ROW
#undef SIDE_PIECES
#undef ROW_PIECES
#undef SUMS
