/* Blocks of rows (part of `_kernels_rows.h`).
 *
 * WIDTH rows make a block. Short rows are transposed first, so that the entries of a column stand next to each other: every
 * row then has a lane of its own, nothing is added up across a vector, and what follows for a row, such as the logarithm of
 * its sum, is done for the whole block at once. Long rows are read one after the other, WIDTH columns at a time. If their
 * last columns do not fill a vector, they are read together with some before them; `mask` is then 1 for the last ones and
 * 0 for those before.
 */

typedef struct {
    Py_ssize_t m;                   /* columns */
    int n;                          /* rows; if there are fewer than WIDTH, the last one fills the other lanes */
    const TYPED(In) *row[WIDTH];
    REAL columns[LONG_ROW][WIDTH];  /* short rows, transposed */
    REAL mask[WIDTH];
} TYPED(Block);

/* What is done with an entry z of a row first: (z - center) scale. */
typedef struct {
    REAL center[WIDTH], scale[WIDTH];
} TYPED(Affine);

/* The numbers of one row in every lane. */
INLINE TYPED(Affine) TYPED(affine_of_row)(const TYPED(Affine) *affine, int r)
{
    TYPED(Affine) same;
    EACH_LANE same.center[l] = affine->center[r], same.scale[l] = affine->scale[r];
    return same;
}

/* 8 x 8 numbers, from 8 addresses to 8 others. */
#if defined(__x86_64__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)) && WIDTH == 16
typedef float Eight __attribute__((vector_size(32), aligned(1), may_alias));

INLINE void TYPED(transpose)(const TYPED(In) *const from[8], REAL *const to[8])
{
    Eight a[8], b[8];
    for (int l = 0; l < 8; l++)
        a[l] = *(const Eight *)from[l];
    for (int l = 0; l < 8; l += 2) {
        b[l] = __builtin_shufflevector(a[l], a[l + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[l + 1] = __builtin_shufflevector(a[l], a[l + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int l = 0; l < 8; l += 4)
        for (int k = 0; k < 2; k++) {
            a[l + 2 * k] = __builtin_shufflevector(b[l + k], b[l + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[l + 2 * k + 1] = __builtin_shufflevector(b[l + k], b[l + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int l = 0; l < 4; l++) {
        *(Eight *)to[l] = __builtin_shufflevector(a[l], a[l + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(Eight *)to[l + 4] = __builtin_shufflevector(a[l], a[l + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
INLINE void TYPED(transpose)(const TYPED(In) *const from[8], REAL *const to[8])
{
    for (int l = 0; l < 8; l++)
        for (int k = 0; k < 8; k++)
            to[k][l] = from[l][k];
}
#endif

INLINE void TYPED(rows_to_columns)(TYPED(Block) *block)
{
    const int m = (int)block->m;
    for (int c = 0; m >= 8 && c < m; c += 8) {
        const int at = c < m - 8 ? c : m - 8; /* the last columns with some before them, once more */
        for (int l = 0; l < WIDTH; l += 8) {
            const TYPED(In) *from[8];
            REAL *to[8];
            for (int k = 0; k < 8; k++)
                from[k] = block->row[l + k] + at, to[k] = block->columns[at + k] + l;
            TYPED(transpose)(from, to);
        }
    }
    for (int c = 0; m < 8 && c < m; c++)
        for (int l = 0; l < WIDTH; l++)
            block->columns[c][l] = block->row[l][c];
}

/* Back to rows, of another array. */
INLINE void TYPED(columns_to_rows)(const TYPED(Block) *block, REAL *out)
{
    const int m = (int)block->m;
    for (int c = 0; m >= 8 && block->n == WIDTH && c < m; c += 8) {
        const int at = c < m - 8 ? c : m - 8;
        for (int l = 0; l < WIDTH; l += 8) {
            const TYPED(In) *from[8];
            REAL *to[8];
            for (int k = 0; k < 8; k++)
                from[k] = block->columns[at + k] + l, to[k] = out + (l + k) * block->m + at;
            TYPED(transpose)(from, to);
        }
    }
    for (int l = 0; (m < 8 || block->n < WIDTH) && l < block->n; l++)
        for (int c = 0; c < m; c++)
            out[l * block->m + c] = block->columns[c][l];
}

/* The rows of z (m columns) from row i on. */
INLINE void TYPED(open_block)(TYPED(Block) *block, const TYPED(In) *z, Py_ssize_t m, Py_ssize_t i, Py_ssize_t stop)
{
    block->m = m;
    block->n = (int)min_size(stop - i, WIDTH);
    for (int l = 0; l < WIDTH; l++) {
        block->row[l] = z + (i + min_size(l, block->n - 1)) * m;
        block->mask[l] = l >= WIDTH - m % WIDTH;
    }
    if (m < LONG_ROW)
        TYPED(rows_to_columns)(block);
}

/* Numbers of each row of a block (n_numbers x WIDTH) to an array of n_numbers x n_rows; `out` is the place of the first. */
INLINE void TYPED(store)(const TYPED(Block) *block, double numbers[][WIDTH], int n_numbers, double *out,
                         Py_ssize_t n_rows)
{
    for (int q = 0; q < n_numbers; q++)
        for (int l = 0; l < block->n; l++)
            out[q * n_rows + l] = numbers[q][l];
}

INLINE REAL TYPED(sum_of_lanes)(const REAL *vector)
{
    REAL half[WIDTH];
    memcpy(half, vector, sizeof half);
    for (int width = WIDTH / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] += half[l + width];
    return half[0];
}

INLINE REAL TYPED(max_of_lanes)(const REAL *vector)
{
    REAL half[WIDTH];
    memcpy(half, vector, sizeof half);
    for (int width = WIDTH / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] = half[l] > half[l + width] ? half[l] : half[l + width];
    return half[0];
}

/* Add the terms of a vector x of entries to sums; `mask` is NULL where all lanes count. */
typedef void (*TYPED(Terms))(const TYPED(In) *x, const REAL *mask, const TYPED(Affine) *affine, REAL (*sums)[WIDTH]);

/* Sums over each row of a block of short rows in which a column counts as often as `times` says. */
INLINE void TYPED(add_up_times)(const TYPED(Block) *block, const TYPED(Affine) *affine, TYPED(Terms) terms, int n_sums,
                                const In_double *times, double sums[][WIDTH])
{
    for (Py_ssize_t c = 0; c < block->m; c++) {
        const double n = times[c];
        REAL piece[MAX_SUMS][WIDTH];
        memset(piece, 0, (size_t)n_sums * sizeof *piece);
        terms(block->columns[c], NULL, affine, piece);
        for (int q = 0; q < n_sums; q++)
            EACH_LANE sums[q][l] += n * piece[q][l];
    }
}

/* Sums over each row of a block (n_sums x WIDTH, zero before). PIECE vectors are summed in the type of the logits; these
 * sums are added up in double. `terms` and `n_sums` must be constants of the caller: then `terms` becomes part of the loop,
 * with and without a mask, and its sums stay in registers. */
INLINE void TYPED(add_up)(const TYPED(Block) *block, const TYPED(Affine) *affine, TYPED(Terms) terms, int n_sums,
                          double sums[][WIDTH])
{
    const Py_ssize_t m = block->m, whole = m / WIDTH * WIDTH;
    if (m < LONG_ROW) {
        for (Py_ssize_t k = 0; k < m; k += PIECE) {
            REAL piece[MAX_SUMS][WIDTH];
            memset(piece, 0, (size_t)n_sums * sizeof *piece);
            for (Py_ssize_t c = k; c < min_size(k + PIECE, m); c++)
                terms(block->columns[c], NULL, affine, piece);
            for (int q = 0; q < n_sums; q++)
                EACH_LANE sums[q][l] += piece[q][l];
        }
        return;
    }
    for (int r = 0; r < block->n; r++) {
        const TYPED(Affine) own = TYPED(affine_of_row)(affine, r);
        for (Py_ssize_t k = 0; k < whole; k += WIDTH * PIECE) {
            const Py_ssize_t end = min_size(k + WIDTH * PIECE, whole);
            REAL piece[MAX_SUMS][WIDTH];
            memset(piece, 0, (size_t)n_sums * sizeof *piece);
            for (Py_ssize_t j = k; j < end; j += WIDTH)
                terms(block->row[r] + j, NULL, &own, piece);
            if (end == whole && whole < m)
                terms(block->row[r] + m - WIDTH, block->mask, &own, piece);
            for (int q = 0; q < n_sums; q++)
                sums[q][r] += TYPED(sum_of_lanes)(piece[q]);
        }
    }
}
