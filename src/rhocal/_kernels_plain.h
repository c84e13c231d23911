/* What does not depend on how many columns of a row are taken at a time: included once for float and once for double, with
 *   REAL       the type of the logits
 *   TYPED(x)   the name of a function for that type
 *   NEXT(x)    the next larger number
 */

/* Column of the first entry that equals a value which is known to be there. */
INLINE Py_ssize_t TYPED(find)(const REAL *row, Py_ssize_t m, REAL value)
{
    Py_ssize_t k = 0;
    for (; k + 32 <= m; k += 32) {
        int here = 0;
#pragma omp simd reduction(| : here)
        for (int j = 0; j < 32; j++)
            here |= row[k + j] == value;
        if (here)
            break;
    }
    while (k < m - 1 && row[k] != value)
        k++;
    return k;
}

/* Whether every entry is finite; the smallest of them. */
CLONES static int TYPED(finite)(const REAL *z, Py_ssize_t start, Py_ssize_t stop, double *least)
{
    REAL low = z[start];
    int odd = 0;
#pragma omp simd reduction(min : low) reduction(| : odd)
    for (Py_ssize_t j = start; j < stop; j++) {
        REAL x = z[j];
        low = x < low ? x : low;
        odd |= !(x - x == 0);
    }
    *least = low;
    return !odd;
}

/* The largest entry of every row, its column and the sum, for rows too short to fill a vector: everything in one loop. Returned is the
 * smallest entry of all. */
static double TYPED(scan_few)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t *column, double *top,
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

/* From probabilities and labels to the bins of confidence (see add_to_bin), without a number a sample in between. Says whether all is as
 * it should be: labels are columns, no entry is negative, every row sums to 1 within the tolerance.
 * For rows too short to fill a vector: LANES of them side by side. */
INLINE int TYPED(bin_few_of)(const REAL *z, const Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const int64_t *label,
                             Py_ssize_t n_bins, double edge, double tolerance, double *sums)
{
    REAL x[VERY_FEW][LANES];
    int odd = 0;
    double confidence[LANES];
    Py_ssize_t at_bin[LANES];
    Bins bins = bins_for(sums, n_bins);
    for (Py_ssize_t i = start; i < stop; i += LANES) {
        const int n = (int)MIN(stop - i, LANES);
        const REAL *rows = z + i * m;
        for (int l = 0; l < LANES; l++) {
            const REAL *row = rows + (l < n ? l : 0) * m;
            for (Py_ssize_t j = 0; j < m; j++)
                x[j][l] = row[j];
        }
        REAL high[LANES] = {0}, total[LANES] = {0}, low[LANES] = {0};
        int at[LANES];
        for (int l = 0; l < LANES; l++)
            at[l] = -1; /* where nothing is above 0 */
        for (int j = 0; j < (int)m; j++) {
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                const REAL p = x[j][l];
                at[l] = p > high[l] ? j : at[l];
                high[l] = p > high[l] ? p : high[l];
                low[l] = p < low[l] ? p : low[l];
                total[l] += p;
            }
        }
#pragma omp simd reduction(| : odd)
        for (int l = 0; l < LANES; l++) {
            const double sum = total[l];
            odd |= low[l] < 0 || !(sum >= 1 - tolerance && sum <= 1 + tolerance); /* also if it is not a number */
            confidence[l] = (double)high[l] / sum;
            at_bin[l] = bin_of(confidence[l], n_bins, edge);
        }
        for (int l = 0; l < n; l++) {
            odd |= label[i + l] < 0 || label[i + l] >= m;
            add_to_bin(&bins, l, at_bin[l], confidence[l], label[i + l] == at[l], 1);
        }
        if (odd)
            return 0;
    }
    close_bins(&bins);
    return 1;
}

CLONES static int TYPED(bin_few)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const int64_t *label,
                                 Py_ssize_t n_bins, double edge, double tolerance, double *sums)
{
    if (m == 10) /* what most networks of few classes have: a loop of known length is unrolled */
        return TYPED(bin_few_of)(z, 10, start, stop, label, n_bins, edge, tolerance, sums);
    return TYPED(bin_few_of)(z, m, start, stop, label, n_bins, edge, tolerance, sums);
}

/* Put a value among the largest found so far, which stand in falling order. */
INLINE void TYPED(insert)(double *found, Py_ssize_t *n_found, Py_ssize_t k, REAL value)
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
CLONES static void TYPED(best)(const REAL *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k, double *out)
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
                TYPED(insert)(found, &n_found, k, group[l]);
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
                            TYPED(insert)(found, &n_found, k, row[l]);
            }
        }
        for (; j < m; j++)
            TYPED(insert)(found, &n_found, k, row[j]);
    }
}

/* Where rounding made another class equal to the first of the largest, lift that one, and those it was tied with, by the smallest
 * step there is. */
static void TYPED(keep_decision)(const REAL *row, REAL *p, Py_ssize_t m, REAL top)
{
    Py_ssize_t at = TYPED(find)(row, m, top), j = 0;
    while (j < at && p[j] < p[at])
        j++;
    if (j == at) /* what stands after it may be equal, but is not larger */
        return;
    const REAL lifted = NEXT(p[at]);
    for (j = at; j < m; j++)
        if (row[j] == top)
            p[j] = lifted;
}
