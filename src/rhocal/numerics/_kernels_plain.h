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

/* Whether every entry is finite; the smallest and the largest of them. */
CLONES static int TYPED(ends)(const REAL *z, Py_ssize_t start, Py_ssize_t stop, double *least, double *most)
{
    REAL low = z[start], high = z[start];
    int odd = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : odd)
    for (Py_ssize_t j = start; j < stop; j++) {
        REAL x = z[j];
        low = x < low ? x : low;
        high = x > high ? x : high;
        odd |= !(x - x == 0);
    }
    *least = low;
    *most = high;
    return !odd;
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
