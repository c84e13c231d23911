/* Blocks of rows, and how they are walked through: included for float and for double, with
 *   REAL         the type of the logits
 *   WIDTH        how many of them are worked on at a time
 *   TYPED(x)     the name of a function for that type
 *
 * WIDTH rows make a block. Short rows are laid side by side first, so that the entries of a column stand next to each other: every row
 * then has sums of its own, nothing is added up across a vector, and what follows for a row, such as the logarithm of its sum, is done
 * for the whole block at once. Long rows are walked through one after the other, WIDTH columns at a time. Their last columns, if they do
 * not fill a vector, are taken together with some before them; `kept` is then 1 for the last ones and 0 for those before. Sums of a
 * piece of a row, which are in the type of the logits, are added up in double.
 */

#define EACH _Pragma("omp simd") for (int l = 0; l < WIDTH; l++)

typedef struct {
    Py_ssize_t m;
    int n;                  /* rows; if there are fewer than WIDTH, the last one stands in for the others */
    const REAL *row[WIDTH];
    REAL side[LONG][WIDTH]; /* short rows side by side: a column, then the next */
    REAL kept[WIDTH];
} TYPED(Block);

/* Two numbers of each row, such as its largest entry and its scale. */
typedef struct {
    REAL t[WIDTH], s[WIDTH];
} TYPED(Pairs);

INLINE TYPED(Pairs) TYPED(pairs_of)(const TYPED(Pairs) *pairs, int r)
{
    TYPED(Pairs) same;
    EACH same.t[l] = pairs->t[r], same.s[l] = pairs->s[r];
    return same;
}

/* Rows to columns, or back: from 8 rows of 8 numbers each. */
#if defined(WITH_SHUFFLES) && WIDTH == 16
INLINE void TYPED(turn)(const REAL *const from[8], REAL *const to[8])
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
INLINE void TYPED(turn)(const REAL *const from[8], REAL *const to[8])
{
    for (int l = 0; l < 8; l++)
        for (int k = 0; k < 8; k++)
            to[k][l] = from[l][k];
}
#endif

INLINE void TYPED(lay_side_by_side)(TYPED(Block) *block)
{
    const int m = (int)block->m;
    for (int c = 0; m >= 8 && c < m; c += 8) {
        const int at = MIN(c, m - 8); /* the last columns with some before them, once more */
        for (int l = 0; l < WIDTH; l += 8) {
            const REAL *from[8];
            REAL *to[8];
            for (int k = 0; k < 8; k++)
                from[k] = block->row[l + k] + at, to[k] = block->side[at + k] + l;
            TYPED(turn)(from, to);
        }
    }
    for (int c = 0; m < 8 && c < m; c++)
        for (int l = 0; l < WIDTH; l++)
            block->side[c][l] = block->row[l][c];
}

/* The way back, to the rows of another array. */
INLINE void TYPED(lay_in_rows)(const TYPED(Block) *block, REAL *out)
{
    const int m = (int)block->m;
    for (int c = 0; m >= 8 && block->n == WIDTH && c < m; c += 8) {
        const int at = MIN(c, m - 8);
        for (int l = 0; l < WIDTH; l += 8) {
            const REAL *from[8];
            REAL *to[8];
            for (int k = 0; k < 8; k++)
                from[k] = block->side[at + k] + l, to[k] = out + (l + k) * block->m + at;
            TYPED(turn)(from, to);
        }
    }
    for (int l = 0; (m < 8 || block->n < WIDTH) && l < block->n; l++)
        for (int c = 0; c < m; c++)
            out[l * block->m + c] = block->side[c][l];
}

INLINE void TYPED(open)(TYPED(Block) *block, const REAL *z, Py_ssize_t m, Py_ssize_t i, Py_ssize_t stop)
{
    block->m = m;
    block->n = (int)MIN(stop - i, WIDTH);
    for (int l = 0; l < WIDTH; l++) {
        block->row[l] = z + (i + MIN(l, block->n - 1)) * m;
        block->kept[l] = l >= WIDTH - m % WIDTH;
    }
    if (m < LONG)
        TYPED(lay_side_by_side)(block);
}

/* Numbers of each row of a block (some x WIDTH) to their places: `out` is the first of them, n_rows lie between two of a row. */
INLINE void TYPED(put)(const TYPED(Block) *block, double numbers[][WIDTH], int n_numbers, double *out, Py_ssize_t n_rows)
{
    for (int q = 0; q < n_numbers; q++)
        for (int l = 0; l < block->n; l++)
            out[q * n_rows + l] = numbers[q][l];
}

INLINE REAL TYPED(added)(const REAL *part)
{
    REAL half[WIDTH];
    memcpy(half, part, sizeof half);
    for (int width = WIDTH / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] += half[l + width];
    return half[0];
}

INLINE REAL TYPED(highest)(const REAL *part)
{
    REAL half[WIDTH];
    memcpy(half, part, sizeof half);
    for (int width = WIDTH / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            half[l] = half[l] > half[l + width] ? half[l] : half[l + width];
    return half[0];
}

/* Take a step with each vector x of a piece, from column k on: of short rows side by side, */
#define WALK_SIDE(block, k, STEP)                                                                                          \
    for (Py_ssize_t c = (k); c < MIN((k) + PIECE, (block).m); c++) {                                                       \
        const REAL *const x = (block).side[c], *const kept = NULL;                                                         \
        (void)kept;                                                                                                        \
        STEP;                                                                                                              \
    }

/* or of one long row, whose last columns are part of the last piece. */
#define WALK_ROW(block, r, k, STEP)                                                                                        \
    do {                                                                                                                   \
        const Py_ssize_t whole = (block).m / WIDTH * WIDTH, end = MIN((k) + WIDTH * PIECE, whole);                         \
        for (Py_ssize_t j = (k); j < end; j += WIDTH) {                                                                    \
            const REAL *const x = (block).row[r] + j, *const kept = NULL;                                                  \
            (void)kept;                                                                                                    \
            STEP;                                                                                                          \
        }                                                                                                                  \
        if (end == whole && end < (block).m) {                                                                             \
            const REAL *const x = (block).row[r] + (block).m - WIDTH, *const kept = (block).kept;                          \
            (void)kept;                                                                                                    \
            STEP;                                                                                                          \
        }                                                                                                                  \
    } while (0)

#define SIDE_PIECES(block) for (Py_ssize_t k = 0; k < (block).m; k += PIECE)
#define ROW_PIECES(block) for (Py_ssize_t k = 0; k < (block).m / WIDTH * WIDTH; k += WIDTH * PIECE)

/* Sums of each row of a block (N x WIDTH). STEP adds a vector x to the sums a of a piece; it knows `pairs` of its rows. */
#define SUMS(N, sums, block, both, STEP)                                                                                   \
    do {                                                                                                                   \
        if ((block).m < LONG) {                                                                                            \
            const TYPED(Pairs) *const pairs = &(both);                                                                     \
            SIDE_PIECES(block)                                                                                             \
            {                                                                                                              \
                REAL a[N][WIDTH] = {{0}};                                                                                  \
                WALK_SIDE(block, k, STEP)                                                                                  \
                for (int q = 0; q < (N); q++)                                                                              \
                    EACH (sums)[q][l] += a[q][l];                                                                          \
            }                                                                                                              \
            break;                                                                                                         \
        }                                                                                                                  \
        for (int r = 0; r < (block).n; r++) {                                                                              \
            const TYPED(Pairs) own = TYPED(pairs_of)(&(both), r), *const pairs = &own;                                     \
            ROW_PIECES(block)                                                                                              \
            {                                                                                                              \
                REAL a[N][WIDTH] = {{0}};                                                                                  \
                WALK_ROW(block, r, k, STEP);                                                                               \
                for (int q = 0; q < (N); q++)                                                                              \
                    (sums)[q][r] += TYPED(added)(a[q]);                                                                    \
            }                                                                                                              \
        }                                                                                                                  \
    } while (0)
