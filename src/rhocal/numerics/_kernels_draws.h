/* Labels drawn from the probabilities of samples, added up per replicate. `metrics/inference/label_draws.py` has the same
 * draws in NumPy: random numbers depend on the key of a sample and the number of a replicate alone. */

enum { DRAWS_AT_A_TIME = 128 };

typedef struct {
    const In_double *levels; /* cumulative probabilities, the top class counted first: n_samples x n_classes */
    const In_double *top;    /* probability of the top class */
    const In_int64 *index;   /* of every sample the column of its top class, its key, and its cell, a row of `sums`: n_samples x 3 */
    const In_int64 *place;   /* the row of `sums` of every sample and class: n_samples x n_classes */
    const In_double *scale;  /* what a draw adds; NULL: 1 */
    Py_ssize_t n_samples, n_classes;
} LabelDraws;

/* splitmix64, as a number in [0, 1) */
INLINE double uniform_number(uint64_t key, uint64_t replicate)
{
    uint64_t x = key + (replicate + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return (double)(int64_t)(x >> 11) * 0x1p-53;
}

/* The first class whose level is above u; the last level is above every u. */
INLINE Py_ssize_t class_at(const In_double *levels, Py_ssize_t n_classes, double u)
{
    Py_ssize_t low = 0, n = n_classes;
    while (n > 1) {
        const Py_ssize_t half = n / 2;
        low += (Py_ssize_t)(levels[low + half - 1] <= u) * half;
        n -= half;
    }
    return low;
}

/* Whether every index is inside the arrays that are written to. */
static int draws_fit(LabelDraws draws, Py_ssize_t n_rows)
{
    for (Py_ssize_t i = 0; i < draws.n_samples; i++) {
        const int64_t first = draws.index[3 * i], cell = draws.index[3 * i + 2];
        if (first < 0 || first >= draws.n_classes || cell < 0 || cell >= n_rows)
            return 0;
    }
    for (Py_ssize_t i = 0; i < draws.n_samples * draws.n_classes; i++)
        if (draws.place[i] < 0 || draws.place[i] >= n_rows)
            return 0;
    return 1;
}

/* Replicates are the columns of `sums`. */
CLONES static void add_draws(LabelDraws draws, Range replicates, Py_ssize_t n_replicates, double *sums)
{
    double u[DRAWS_AT_A_TIME];
    int others[DRAWS_AT_A_TIME + 1];
    for (Py_ssize_t i = 0; i < draws.n_samples; i++) {
        const In_double *levels = draws.levels + i * draws.n_classes;
        const In_int64 *place = draws.place + i * draws.n_classes;
        const double scale = draws.scale ? draws.scale[i] : 1, top = draws.top[i];
        const uint64_t key = (uint64_t)draws.index[3 * i + 1];
        double *cell = sums + draws.index[3 * i + 2] * n_replicates;
        double *same = sums + place[draws.index[3 * i]] * n_replicates;
        for (Py_ssize_t r = replicates.start; r < replicates.stop; r += DRAWS_AT_A_TIME) {
            const Py_ssize_t n = min_size(replicates.stop - r, DRAWS_AT_A_TIME);
#pragma omp simd
            for (Py_ssize_t l = 0; l < n; l++)
                u[l] = uniform_number(key, (uint64_t)(r + l));
            /* Branches on a random number are predicted half of the time: draws of other classes are listed first. */
            int n_others = 0;
            for (int l = 0; l < n; l++) {
                others[n_others] = l;
                n_others += u[l] >= top;
            }
#pragma omp simd
            for (Py_ssize_t l = 0; l < n; l++) {
                const double added = u[l] < top ? scale : 0;
                same[r + l] += added;
                cell[r + l] += added;
            }
            for (int k = 0; k < n_others; k++) {
                const int l = others[k];
                sums[place[class_at(levels, draws.n_classes, u[l])] * n_replicates + r + l] += scale;
            }
        }
    }
}
