/* One look at every row (part of `_kernels_rows.h`): largest entry, its column, sum; from these to bins of confidence. */

INLINE void TYPED(scan_vector)(const TYPED(In) *x, const REAL *mask, REAL sum[WIDTH], REAL high[WIDTH], REAL low[WIDTH])
{
    EACH_LANE {
        sum[l] += mask ? x[l] * mask[l] : x[l];
        high[l] = x[l] > high[l] ? x[l] : high[l];
        low[l] = -x[l] > low[l] ? -x[l] : low[l];
    }
}

/* The largest entry of every row of a block, its column and the sum. `low` becomes minus the smallest entry so far. */
INLINE void TYPED(scan_block)(const TYPED(Block) *block, REAL low[WIDTH], Py_ssize_t column[WIDTH], REAL top[WIDTH],
                              double total[WIDTH])
{
    const Py_ssize_t m = block->m, whole = m / WIDTH * WIDTH;
    EACH_LANE total[l] = 0;
    if (m < LONG_ROW) {
        int32_t at[WIDTH] = {0};
        EACH_LANE top[l] = block->columns[0][l];
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            REAL sum[WIDTH] = {0};
            for (Py_ssize_t c = k; c < min_size(k + PIECE, m); c++) {
                const REAL *x = block->columns[c];
                EACH_LANE at[l] = x[l] > top[l] ? (int32_t)c : at[l];
                TYPED(scan_vector)(x, NULL, sum, top, low);
            }
            EACH_LANE total[l] += sum[l];
        }
        EACH_LANE column[l] = at[l];
        return;
    }
    for (int r = 0; r < block->n; r++) {
        const TYPED(In) *row = block->row[r];
        REAL high[WIDTH];
        EACH_LANE high[l] = row[0];
        for (Py_ssize_t k = 0; k < whole; k += WIDTH * PIECE) {
            const Py_ssize_t end = min_size(k + WIDTH * PIECE, whole);
            REAL sum[WIDTH] = {0};
            for (Py_ssize_t j = k; j < end; j += WIDTH)
                TYPED(scan_vector)(row + j, NULL, sum, high, low);
            if (end == whole && whole < m)
                TYPED(scan_vector)(row + m - WIDTH, block->mask, sum, high, low);
            total[r] += TYPED(sum_of_lanes)(sum);
        }
        top[r] = TYPED(max_of_lanes)(high);
        column[r] = TYPED(find_first)(row, m, top[r]);
    }
    for (int r = block->n; r < WIDTH; r++) /* the last row fills the other lanes, as in a block of short rows */
        column[r] = column[r - 1], top[r] = top[r - 1], total[r] = total[r - 1];
}

/* Of a row whose mean is far larger than its range little is left after the mean is subtracted: from here on the rounding of the
 * mean, and of the sum it comes from, would be more than 3e-7 of a norm (1e-12 in double precision). */
#define MAX_OFFSET (sizeof(REAL) == sizeof(float) ? 4.0 : 1e4)

/* The sum of a row in double precision, where that in single precision would cost digits of differences to its mean. */
static double TYPED(sum_of_offset_row)(const TYPED(In) *z, Py_ssize_t m, double sum, double top)
{
    const double mean = sum / (double)m;
    if (sizeof(REAL) != sizeof(float) || !(fabs(mean) > MAX_OFFSET * (top - mean)))
        return sum;
    double total = 0;
    for (Py_ssize_t j = 0; j < m; j++)
        total += (double)z[j];
    return total;
}

/* The largest entry of every row, its column and the sum; returned is the smallest entry of all. */
CLONES static double TYPED(scan)(const TYPED(In) *z, Py_ssize_t m, Range rows, Py_ssize_t *column, double *top, double *total)
{
    TYPED(Block) block;
    REAL low[WIDTH], high[WIDTH];
    Py_ssize_t at[WIDTH];
    double sum[WIDTH];
    EACH_LANE low[l] = -z[rows.start * m];
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        TYPED(open_block)(&block, z, m, i, rows.stop);
        TYPED(scan_block)(&block, low, at, high, sum);
        for (int l = 0; l < block.n; l++)
            column[i + l] = at[l], top[i + l] = high[l],
            total[i + l] = TYPED(sum_of_offset_row)(z + (i + l) * m, m, sum[l], high[l]);
    }
    return -TYPED(max_of_lanes)(low);
}

/* From probabilities and labels to the bins of confidence (see add_to_bin), without an array of confidences. Returned is
 * whether all is valid: labels are columns, no entry is negative, every row sums to 1 within the tolerance. */
CLONES static int TYPED(bin_rows)(const TYPED(In) *z, Py_ssize_t m, Range rows, const In_int64 *label, Py_ssize_t n_bins,
                                  double edge, double tolerance, double *sums)
{
    TYPED(Block) block;
    REAL low[WIDTH] = {0}, high[WIDTH];
    Py_ssize_t column[WIDTH], bin[WIDTH];
    double total[WIDTH], confidence[WIDTH];
    int is_wrong = 0;
    Bins bins = open_bins(sums, n_bins);
    for (Py_ssize_t i = rows.start; i < rows.stop; i += WIDTH) {
        TYPED(open_block)(&block, z, m, i, rows.stop);
        TYPED(scan_block)(&block, low, column, high, total);
#pragma omp simd reduction(| : is_wrong)
        for (int l = 0; l < WIDTH; l++) {
            is_wrong |= !(total[l] >= 1 - tolerance && total[l] <= 1 + tolerance); /* also if it is not a number */
            confidence[l] = (double)high[l] / total[l];
            bin[l] = bin_of(confidence[l], n_bins, edge);
        }
        for (int l = 0; l < block.n; l++) {
            is_wrong |= label[i + l] < 0 || label[i + l] >= m;
            add_to_bin(&bins, l, bin[l], confidence[l], label[i + l] == column[l], 1);
        }
        if (is_wrong)
            return 0;
    }
    close_bins(&bins);
    return !(TYPED(max_of_lanes)(low) > 0);
}
