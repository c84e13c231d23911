/* Sums of exponentials over rows (part of `_kernels_rows.h`): L = log sum exp(s (z - t)), where t is the largest entry of the
 * row and s > 0 its scale, and the derivatives of L in s. With d = z - t and e = exp(s d) these are moments of d.
 */

INLINE void TYPED(first_order_terms)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH])
{
    EACH_LANE {
        REAL d = x[l] - affine->center[l], e = TYPED(exp)(affine->scale[l] * d);
        e = mask ? e * mask[l] : e;
        sums[0][l] += e;
        sums[1][l] += e * d;
    }
}

INLINE void TYPED(third_order_terms)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH])
{
    EACH_LANE {
        REAL d = x[l] - affine->center[l], e = TYPED(exp)(affine->scale[l] * d);
        e = mask ? e * mask[l] : e;
        REAL ed = e * d, edd = ed * d;
        sums[0][l] += e;
        sums[1][l] += ed;
        sums[2][l] += edd;
        sums[3][l] += edd * d;
    }
}

/* The same in double, whatever the type of the logits. */
INLINE void TYPED(few_column_sums)(const TYPED(Block) *block, const double t[WIDTH], const double s[WIDTH],
                                   double sums[4][WIDTH])
{
    for (Py_ssize_t c = 0; c < block->m; c++)
        EACH_LANE {
            double d = block->columns[c][l] - t[l], e = exp_double(s[l] * d), ed = e * d, edd = ed * d;
            sums[0][l] += e;
            sums[1][l] += ed;
            sums[2][l] += edd;
            sums[3][l] += edd * d;
        }
}

/* L and its derivatives up to an order (1 to 3): out is (order + 1) x n_rows. `times` is how often each column counts, or
 * NULL. */
CLONES static void TYPED(curve)(const TYPED(In) *z, Py_ssize_t n_rows, Py_ssize_t m, Range rows, const In_double *top,
                                const In_double *scale, const In_double *times, int order, double *out)
{
    const int are_few = m <= FEW_COLUMNS && !times;
    TYPED(Block) block;
    TYPED(Affine) affine;
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        double t[WIDTH], s[WIDTH], e[4][WIDTH] = {{0}};
        TYPED(open_block)(&block, z, m, i, rows.stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + min_size(l, block.n - 1);
            t[l] = top[row], s[l] = scale[row];
        }
        EACH_LANE affine.center[l] = (REAL)t[l], affine.scale[l] = (REAL)s[l];
        if (are_few) {
            TYPED(few_column_sums)(&block, t, s, e);
            EACH_LANE affine.scale[l] = 0;
        } else if (times)
            TYPED(add_up_times)(&block, &affine, TYPED(third_order_terms), 4, times, e);
        else if (order < 2)
            TYPED(add_up)(&block, &affine, TYPED(first_order_terms), 2, e);
        else
            TYPED(add_up)(&block, &affine, TYPED(third_order_terms), 4, e);
        EACH_LANE {
            const double whole = 1 / e[0][l], mean = e[1][l] * whole, square = e[2][l] * whole;
            const double spread = square - mean * mean;
            /* L at the scale itself, not at the scale rounded to the type of the logits */
            e[0][l] = log_double(e[0][l]) + (are_few ? 0 : (s[l] - (double)affine.scale[l]) * mean);
            e[1][l] = mean;
            e[2][l] = spread > 0 ? spread : 0;
            e[3][l] = e[3][l] * whole - 3 * mean * square + 2 * mean * mean * mean;
        }
        TYPED(store)(&block, e, order + 1, out + i, n_rows);
    }
}

INLINE void TYPED(moment_terms)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH])
{
    EACH_LANE {
        REAL d = x[l] - affine->center[l], e = TYPED(exp)(affine->scale[l] * d);
        e = mask ? e * mask[l] : e;
        REAL e2 = e * e, e3 = e2 * e, e4 = e2 * e2, e6 = e3 * e3, e9 = e6 * e3, e12 = e6 * e6, square = d * d;
        sums[0][l] += e3, sums[5][l] += e3 * d, sums[10][l] += e3 * square;
        sums[1][l] += e4, sums[6][l] += e4 * d, sums[11][l] += e4 * square;
        sums[2][l] += e6, sums[7][l] += e6 * d, sums[12][l] += e6 * square;
        sums[3][l] += e9, sums[8][l] += e9 * d, sums[13][l] += e9 * square;
        sums[4][l] += e12, sums[9][l] += e12 * d, sums[14][l] += e12 * square;
    }
}

/* Sums of e, e d and e d^2 at five scales, which are to each other as 3 : 4 : 6 : 9 : 12. One exponential, at a third of the
 * first: the rest are products. out is 15 x n_rows. */
CLONES static void TYPED(moments)(const TYPED(In) *z, Py_ssize_t n_rows, Py_ssize_t m, Range rows, const In_double *top,
                                  const In_double *scales, const In_double *times, double *out)
{
    TYPED(Block) block;
    TYPED(Affine) affine;
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        double sums[15][WIDTH] = {{0}};
        TYPED(open_block)(&block, z, m, i, rows.stop);
        for (int l = 0; l < WIDTH; l++)
            affine.center[l] = (REAL)top[i + min_size(l, block.n - 1)], affine.scale[l] = (REAL)(scales[0] / 3);
        if (times)
            TYPED(add_up_times)(&block, &affine, TYPED(moment_terms), 15, times, sums);
        else
            TYPED(add_up)(&block, &affine, TYPED(moment_terms), 15, sums);
        TYPED(store)(&block, sums, 15, out + i, n_rows);
    }
}

INLINE void TYPED(moment_at_terms)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH])
{
    EACH_LANE {
        REAL d = x[l] - affine->center[l], e = TYPED(exp)(affine->scale[l] * d), square = d * d;
        e = mask ? e * mask[l] : e;
        sums[0][l] += e, sums[1][l] += e * d;
        e *= e;
        REAL ed = e * d, edd = e * square;
        sums[2][l] += e, sums[3][l] += ed, sums[4][l] += edd, sums[5][l] += ed * square, sums[6][l] += edd * square;
        e *= e;
        sums[7][l] += e, sums[8][l] += e * d;
    }
}

/* Around a scale s of every row: sums of e and e d at s/2, of e d^0 to e d^4 at s, of e and e d at 2 s. out is 9 x n_rows. */
CLONES static void TYPED(moments_at)(const TYPED(In) *z, Py_ssize_t n_rows, Py_ssize_t m, Range rows, const In_double *top,
                                     const In_double *scale, const In_double *times, double *out)
{
    TYPED(Block) block;
    TYPED(Affine) affine;
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        double sums[9][WIDTH] = {{0}};
        TYPED(open_block)(&block, z, m, i, rows.stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + min_size(l, block.n - 1);
            affine.center[l] = (REAL)top[row], affine.scale[l] = (REAL)(scale[row] / 2);
        }
        if (times)
            TYPED(add_up_times)(&block, &affine, TYPED(moment_at_terms), 9, times, sums);
        else
            TYPED(add_up)(&block, &affine, TYPED(moment_at_terms), 9, sums);
        TYPED(store)(&block, sums, 9, out + i, n_rows);
    }
}
