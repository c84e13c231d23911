/* Kernels over logits without blocks (part of `_kernels_rows.h`): smallest and largest of all, k largest of a row. */

/* The column of the first entry that equals a value, which is known to be there. */
INLINE Py_ssize_t TYPED(find_first)(const TYPED(In) *row, Py_ssize_t m, REAL value)
{
    Py_ssize_t k = 0;
    for (; k + 32 <= m; k += 32) {
        int is_here = 0;
#pragma omp simd reduction(| : is_here)
        for (int j = 0; j < 32; j++)
            is_here |= row[k + j] == value;
        if (is_here)
            break;
    }
    while (k < m - 1 && row[k] != value)
        k++;
    return k;
}

/* Whether every entry is finite; the smallest and the largest of them. */
CLONES static int TYPED(ends)(const TYPED(In) *z, Range entries, double *smallest, double *largest)
{
    REAL low = z[entries.start], high = z[entries.start];
    int not_finite = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : not_finite)
    for (Py_ssize_t j = entries.start; j < entries.stop; j++) {
        REAL x = z[j];
        low = x < low ? x : low;
        high = x > high ? x : high;
        not_finite |= !(x - x == 0);
    }
    *smallest = low;
    *largest = high;
    return !not_finite;
}

/* Insert a value into the largest found so far (at most k, in descending order). */
INLINE void TYPED(insert)(double *found, Py_ssize_t *n_found, Py_ssize_t k, REAL value)
{
    if (*n_found == k && !(value > found[k - 1]))
        return;
    Py_ssize_t at = *n_found < k ? (*n_found)++ : k - 1;
    for (; at > 0 && found[at - 1] < value; at--)
        found[at] = found[at - 1];
    found[at] = value;
}

/* The k largest entries of every row, largest first (n x k). The k-th largest of GROUPS maxima, each of every GROUPS-th
 * column, is a lower bound for them: most parts of a row hold nothing above it and are skipped. */
CLONES static void TYPED(largest)(const TYPED(In) *z, Py_ssize_t m, Range rows, Py_ssize_t k, double *out)
{
    REAL group[GROUPS];
    for (Py_ssize_t i = rows.start; i < rows.stop; i++) {
        const TYPED(In) *row = z + i * m;
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
                int is_here = 0;
#pragma omp simd reduction(| : is_here)
                for (Py_ssize_t l = 0; l < GROUPS; l++)
                    is_here |= row[j + l] >= bound;
                if (is_here)
                    for (Py_ssize_t l = j; l < j + GROUPS; l++)
                        if (row[l] >= bound)
                            TYPED(insert)(found, &n_found, k, row[l]);
            }
        }
        for (; j < m; j++)
            TYPED(insert)(found, &n_found, k, row[j]);
    }
}
