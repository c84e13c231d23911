/* softmax(s z) of every row (part of `_kernels_rows.h`), in the type of z. The first of the largest entries of a row stays the
 * first: no class before it becomes equal to it by rounding.
 */

/* Where rounding made another class equal to the first of the largest, raise that one, and those it was tied with, to the
 * next number. */
static void TYPED(keep_decision)(const TYPED(In) *row, REAL *p, Py_ssize_t m, REAL top)
{
    Py_ssize_t at = TYPED(find_first)(row, m, top), j = 0;
    while (j < at && p[j] < p[at])
        j++;
    if (j == at) /* what stands after it may be equal, but is not larger */
        return;
    const REAL raised = TYPED(next_above)(p[at]);
    for (j = at; j < m; j++)
        if (row[j] == top)
            p[j] = raised;
}

/* Exponentials e of a vector, their sum, and how many are so near to the largest that rounding may make them equal. */
INLINE void TYPED(exponentials)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL *e, REAL sum[WIDTH],
                                REAL n_near[WIDTH])
{
    EACH_LANE {
        REAL power = TYPED(exp)(affine->scale[l] * (x[l] - affine->center[l]));
        power = mask ? power * mask[l] : power;
        e[l] = power;
        sum[l] += power;
        n_near[l] += power > TYPED(almost_one) ? (REAL)1 : (REAL)0;
    }
}

INLINE void TYPED(softmax_short)(TYPED(Block) *block, const In_double *scale, int is_shared, REAL *out)
{
    const Py_ssize_t m = block->m;
    TYPED(Affine) affine;
    REAL n_near[WIDTH] = {0}, share[WIDTH];
    double total[WIDTH] = {0};
    for (int l = 0; l < WIDTH; l++)
        affine.scale[l] = (REAL)scale[is_shared ? 0 : min_size(l, block->n - 1)];
    EACH_LANE affine.center[l] = block->columns[0][l];
    for (Py_ssize_t c = 0; c < m; c++) {
        const REAL *x = block->columns[c];
        EACH_LANE affine.center[l] = x[l] > affine.center[l] ? x[l] : affine.center[l];
    }
    for (Py_ssize_t k = 0; k < m; k += PIECE) {
        REAL sum[WIDTH] = {0};
        for (Py_ssize_t c = k; c < min_size(k + PIECE, m); c++)
            TYPED(exponentials)(block->columns[c], NULL, &affine, block->columns[c], sum, n_near);
        EACH_LANE total[l] += sum[l];
    }
    EACH_LANE share[l] = (REAL)(1 / total[l]);
    for (Py_ssize_t c = 0; c < m; c++)
        EACH_LANE block->columns[c][l] *= share[l];
    TYPED(columns_to_rows)(block, out);
    for (int r = 0; r < block->n; r++)
        if (n_near[r] > 1)
            TYPED(keep_decision)(block->row[r], out + r * m, m, affine.center[r]);
}

INLINE void TYPED(softmax_long)(const TYPED(Block) *block, const In_double *scale, int is_shared, REAL *out)
{
    const Py_ssize_t m = block->m, whole = m / WIDTH * WIDTH;
    for (int r = 0; r < block->n; r++) {
        const TYPED(In) *row = block->row[r], *last_columns = row + m - WIDTH;
        REAL *p = out + r * m, high[WIDTH], n_near[WIDTH] = {0}, last[WIDTH];
        TYPED(Affine) affine;
        double total = 0;
        EACH_LANE high[l] = row[0];
        for (Py_ssize_t j = 0; j < whole; j += WIDTH)
            EACH_LANE high[l] = row[j + l] > high[l] ? row[j + l] : high[l];
        EACH_LANE high[l] = last_columns[l] > high[l] ? last_columns[l] : high[l];
        const REAL top = TYPED(max_of_lanes)(high), own_scale = (REAL)scale[is_shared ? 0 : r];
        EACH_LANE affine.center[l] = top, affine.scale[l] = own_scale;
        for (Py_ssize_t k = 0; k < whole; k += WIDTH * PIECE) {
            const Py_ssize_t end = min_size(k + WIDTH * PIECE, whole);
            REAL sum[WIDTH] = {0};
            for (Py_ssize_t j = k; j < end; j += WIDTH)
                TYPED(exponentials)(row + j, NULL, &affine, p + j, sum, n_near);
            if (end == whole && whole < m)
                TYPED(exponentials)(last_columns, block->mask, &affine, last, sum, n_near);
            total += TYPED(sum_of_lanes)(sum);
        }
        const REAL share = (REAL)(1 / total);
        for (Py_ssize_t j = 0; j < whole; j += WIDTH)
            EACH_LANE p[j + l] *= share;
        for (Py_ssize_t j = whole; j < m; j++)
            p[j] = last[j - (m - WIDTH)] * share;
        if (TYPED(sum_of_lanes)(n_near) > 1)
            TYPED(keep_decision)(row, p, m, top);
    }
}

/* The scale is that of every row, or one for all rows. */
CLONES static void TYPED(softmax)(const TYPED(In) *z, Py_ssize_t m, Range rows, const In_double *scale, int is_shared, REAL *out)
{
    TYPED(Block) block;
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        TYPED(open_block)(&block, z, m, i, rows.stop);
        if (m < LONG_ROW)
            TYPED(softmax_short)(&block, is_shared ? scale : scale + i, is_shared, out + i * m);
        else
            TYPED(softmax_long)(&block, is_shared ? scale : scale + i, is_shared, out + i * m);
    }
}
