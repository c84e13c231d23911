/* Sums of a linear map of single classes, u = slope x + bias with a slope and a bias for every column (part of
 * `_kernels_rows.h`), under p = softmax(u) of each row: what NLL and its slope need, in one pass.
 */

typedef struct {
    REAL *slope, *bias, *e; /* a number for every column each */
    REAL *sums[5];          /* of w p and w p x; of w q, w q x and w q x^2 for q = p (1 - p) */
} TYPED(ClassScratch);

INLINE REAL TYPED(largest_logit)(const TYPED(In) *x, const TYPED(ClassScratch) *s, Py_ssize_t m)
{
    const Py_ssize_t whole = m / WIDTH * WIDTH;
    REAL high[WIDTH], top;
    EACH_LANE high[l] = -TYPED(largest_inverse);
    for (Py_ssize_t j = 0; j < whole; j += WIDTH)
        EACH_LANE {
            const REAL u = s->slope[j + l] * x[j + l] + s->bias[j + l];
            s->e[j + l] = u;
            high[l] = u > high[l] ? u : high[l];
        }
    top = TYPED(max_of_lanes)(high);
    for (Py_ssize_t j = whole; j < m; j++) {
        s->e[j] = s->slope[j] * x[j] + s->bias[j];
        top = s->e[j] > top ? s->e[j] : top;
    }
    return top;
}

/* exp(u - top) in place of u, and their sum. */
INLINE double TYPED(sum_of_powers)(const TYPED(ClassScratch) *s, Py_ssize_t m, REAL top)
{
    const Py_ssize_t whole = m / WIDTH * WIDTH;
    double total = 0;
    for (Py_ssize_t k = 0; k < whole; k += WIDTH * PIECE) {
        REAL sum[WIDTH] = {0};
        for (Py_ssize_t j = k; j < min_size(k + WIDTH * PIECE, whole); j += WIDTH)
            EACH_LANE {
                const REAL power = TYPED(exp)(s->e[j + l] - top);
                s->e[j + l] = power;
                sum[l] += power;
            }
        total += TYPED(sum_of_lanes)(sum);
    }
    for (Py_ssize_t j = whole; j < m; j++)
        total += s->e[j] = TYPED(exp)(s->e[j] - top);
    return total;
}

/* Add w p and w p x of a row, and what curvatures need. */
INLINE void TYPED(add_row)(const TYPED(In) *x, const TYPED(ClassScratch) *s, Py_ssize_t m, REAL share, REAL weight, int is_curvature)
{
    REAL *p_sum = s->sums[0], *px_sum = s->sums[1], *q_sum = s->sums[2], *qx_sum = s->sums[3], *qxx_sum = s->sums[4];
    if (is_curvature) {
        _Pragma("omp simd") for (Py_ssize_t j = 0; j < m; j++) {
            const REAL p = s->e[j] * share, wp = weight * p, q = wp * (1 - p), qx = q * x[j];
            p_sum[j] += wp;
            px_sum[j] += wp * x[j];
            q_sum[j] += q;
            qx_sum[j] += qx;
            qxx_sum[j] += qx * x[j];
        }
        return;
    }
    const REAL factor = share * weight;
    _Pragma("omp simd") for (Py_ssize_t j = 0; j < m; j++) {
        const REAL q = s->e[j] * factor;
        p_sum[j] += q;
        px_sum[j] += q * x[j];
    }
}

INLINE void TYPED(flush_sums)(const TYPED(ClassScratch) *s, Py_ssize_t m, int n_sums, double *out)
{
    for (int k = 0; k < n_sums; k++)
        for (Py_ssize_t j = 0; j < m; j++) {
            out[k * m + j] += s->sums[k][j];
            s->sums[k][j] = 0;
        }
}

/* Adds to out, 5 x m, of which the last three are for curvatures. Returned is the sum of w logsumexp(u). Rows of weight 0 are not read. */
CLONES static double TYPED(class_sums)(const TYPED(In) *x, Py_ssize_t m, Range rows, const In_double *weight,
                                       const In_double *slope, const In_double *bias, int is_curvature, REAL *scratch,
                                       double *out)
{
    const int n_sums = is_curvature ? 5 : 2;
    const TYPED(ClassScratch) s = {scratch, scratch + m, scratch + 2 * m,
                                   {scratch + 3 * m, scratch + 4 * m, scratch + 5 * m, scratch + 6 * m, scratch + 7 * m}};
    double value = 0;
    int n_added = 0;
    for (Py_ssize_t j = 0; j < m; j++) {
        s.slope[j] = (REAL)slope[j];
        s.bias[j] = (REAL)bias[j];
        for (int k = 0; k < 5; k++)
            s.sums[k][j] = 0;
    }
    for (Py_ssize_t i = rows.start; i < rows.stop; i++) {
        if (weight[i] == 0)
            continue;
        const REAL top = TYPED(largest_logit)(x + i * m, &s, m);
        const double total = TYPED(sum_of_powers)(&s, m, top);
        value += weight[i] * (log(total) + top);
        TYPED(add_row)(x + i * m, &s, m, (REAL)(1 / total), (REAL)weight[i], is_curvature);
        if (++n_added == ROWS_IN_A_SUM) {
            TYPED(flush_sums)(&s, m, n_sums, out);
            n_added = 0;
        }
    }
    TYPED(flush_sums)(&s, m, n_sums, out);
    return value;
}
