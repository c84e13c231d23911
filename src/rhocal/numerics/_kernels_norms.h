/* Norms of rows (part of `_kernels_rows.h`): (sum of |z - center|^r)^(1/r) for r = 1, 1.25, ..., 3.
 *
 * All powers are products of fourth roots. So that none leaves the range of its type, entries are divided by a unit first:
 * the largest |z - center| of the row. Where the mean and the largest entry of every row are known, their distance serves:
 * nothing is more than m - 1 times as far from the mean.
 */

INLINE void TYPED(max_distance)(const TYPED(In) *x, const REAL center[WIDTH], REAL distance[WIDTH])
{
    EACH_LANE {
        REAL a = x[l] > center[l] ? x[l] - center[l] : center[l] - x[l];
        distance[l] = a > distance[l] ? a : distance[l];
    }
}

/* The largest |z - center| of every row of a block. */
INLINE void TYPED(block_units)(const TYPED(Block) *block, const REAL center[WIDTH], REAL unit[WIDTH])
{
    const Py_ssize_t m = block->m, whole = m / WIDTH * WIDTH;
    EACH_LANE unit[l] = 0;
    if (m < LONG_ROW) {
        for (Py_ssize_t c = 0; c < m; c++)
            TYPED(max_distance)(block->columns[c], center, unit);
        return;
    }
    for (int r = 0; r < block->n; r++) {
        REAL own[WIDTH], distance[WIDTH] = {0};
        EACH_LANE own[l] = center[r];
        for (Py_ssize_t j = 0; j < whole; j += WIDTH)
            TYPED(max_distance)(block->row[r] + j, own, distance);
        TYPED(max_distance)(block->row[r] + m - WIDTH, own, distance);
        unit[r] = TYPED(max_of_lanes)(distance);
    }
}

INLINE void TYPED(norm_terms)(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH])
{
    EACH_LANE {
        REAL d = x[l] - affine->center[l], a = (d > 0 ? d : -d) * affine->scale[l];
        a = mask ? a * mask[l] : a;
        REAL quarter = TYPED(fourth_root)(a), half = quarter * quarter, square = a * a;
        REAL b = a * quarter, c = a * half, e = c * quarter;
        sums[0][l] += a;
        sums[1][l] += b;
        sums[2][l] += c;
        sums[3][l] += e;
        sums[4][l] += square;
        sums[5][l] += a * b;
        sums[6][l] += a * c;
        sums[7][l] += a * e;
        sums[8][l] += square * a;
    }
}

/* The norms of a row whose mean is far larger than its range (MAX_OFFSET) around this mean, in double precision: differences to an entry of the row are exact. */
static void TYPED(norms_of_offset_row)(const TYPED(In) *z, Py_ssize_t m, double norms[N_NORMS])
{
    double mean = 0, unit = 0;
    for (Py_ssize_t j = 0; j < m; j++)
        mean += (double)z[j] - (double)z[0];
    mean /= (double)m;
    for (Py_ssize_t j = 0; j < m; j++)
        unit = fmax(unit, fabs((double)z[j] - (double)z[0] - mean));
    for (int q = 0; q < N_NORMS; q++)
        norms[q] = 0;
    for (Py_ssize_t j = 0; unit > 0 && j < m; j++) {
        const double a = fabs((double)z[j] - (double)z[0] - mean) / unit, quarter = sqrt(sqrt(a));
        double power = a;
        for (int q = 0; q < N_NORMS; q++, power *= quarter)
            norms[q] += power;
    }
    for (int q = 0; q < N_NORMS; q++)
        norms[q] = unit * pow(norms[q], 1 / (1 + 0.25 * q));
}

/* out is 9 x n_rows. `total` and `top` are NULL for norms around 0, else sum and largest entry of every row. */
CLONES static void TYPED(norms)(const TYPED(In) *z, Py_ssize_t n_rows, Py_ssize_t m, Range rows,
                                const In_double *total, const In_double *top, double *out)
{
    TYPED(Block) block;
    TYPED(Affine) affine;
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        REAL unit[WIDTH];
        double sums[N_NORMS][WIDTH] = {{0}};
        const int is_near = total && m < MANY_COLUMNS;
        int is_known = 1;
        TYPED(open_block)(&block, z, m, i, rows.stop);
        for (int l = 0; l < WIDTH; l++) {
            const Py_ssize_t row = i + min_size(l, block.n - 1);
            affine.center[l] = total ? (REAL)(total[row] / (double)m) : 0;
            unit[l] = is_near ? (REAL)top[row] - affine.center[l] : 0;
            is_known &= unit[l] > 0;
        }
        if (!is_known) {
            REAL largest[WIDTH];
            TYPED(block_units)(&block, affine.center, largest);
            EACH_LANE unit[l] = unit[l] > 0 ? unit[l] : largest[l]; /* the last digits of a row do not depend on others */
        }
        EACH_LANE {
            const REAL inverse = unit[l] > 0 ? 1 / unit[l] : 1;
            affine.scale[l] = inverse <= TYPED(largest_inverse) ? inverse : 0; /* the unit is subnormal */
        }
        TYPED(add_up)(&block, &affine, TYPED(norm_terms), N_NORMS, sums);
        for (int q = 0; q < N_NORMS; q++) {
            const double power = 1 / (1 + 0.25 * q);
            EACH_LANE { /* a sum is at least 1, unless all entries are 0 */
                const double root = exp_double(log_double(sums[q][l]) * power);
                sums[q][l] = unit[l] > 0 ? unit[l] * root : 0;
            }
        }
        for (int l = 0; total && l < block.n; l++) {
            double norms[N_NORMS];
            if (fabs((double)affine.center[l]) <= MAX_OFFSET * (double)unit[l])
                continue;
            TYPED(norms_of_offset_row)(z + (i + l) * m, m, norms);
            for (int q = 0; q < N_NORMS; q++)
                sums[q][l] = norms[q];
        }
        TYPED(store)(&block, sums, N_NORMS, out + i, n_rows);
    }
}

#undef MAX_OFFSET
