/* Bins of confidence of equal width, intervals between any edges, and straight lines between them. */

/* The bin of a confidence; `edge` is how far above the edge of a bin it may lie and still belong to it. What is not a
 * number goes to the first bin. */
INLINE Py_ssize_t bin_of(double confidence, Py_ssize_t n_bins, double edge)
{
    double position = ceil((confidence - edge) * (double)n_bins) - 1;
    position = position > 0 ? position : 0;
    return (Py_ssize_t)(position < (double)n_bins ? position : (double)n_bins - 1);
}

/* Weight, confidence and correctness of each bin, added up in N_COPIES places in turn: most additions go to the same bin
 * as the one before, and need not wait for it. With more than FEW_BINS there is one place, the caller's. */
enum { N_COPIES = 4, FEW_BINS = 32 };

typedef struct {
    double copies[N_COPIES][FEW_BINS][4];
    double *sums; /* 3 x n_bins, the caller's */
    Py_ssize_t n_bins;
} Bins;

INLINE Bins open_bins(double *sums, Py_ssize_t n_bins)
{
    Bins bins = {.sums = sums, .n_bins = n_bins};
    return bins;
}

INLINE void add_to_bin(Bins *bins, int turn, Py_ssize_t bin, double confidence, double correct, double weight)
{
    if (bins->n_bins <= FEW_BINS) {
        double *sums = bins->copies[turn % N_COPIES][bin];
        sums[0] += weight;
        sums[1] += weight * confidence;
        sums[2] += weight * correct;
    } else {
        bins->sums[bin] += weight;
        bins->sums[bins->n_bins + bin] += weight * confidence;
        bins->sums[2 * bins->n_bins + bin] += weight * correct;
    }
}

INLINE void close_bins(Bins *bins)
{
    for (Py_ssize_t bin = 0; bin < bins->n_bins && bins->n_bins <= FEW_BINS; bin++)
        for (int copy = 0; copy < N_COPIES; copy++)
            for (int k = 0; k < 3; k++)
                bins->sums[k * bins->n_bins + bin] += bins->copies[copy][bin][k];
}

/* Without weights every sample counts 1. */
CLONES static void bin_samples(const In_double *confidence, const In_double *correct, const In_double *weight, Range samples,
                               Py_ssize_t n_bins, double edge, double *sums)
{
    Py_ssize_t bin[LANES];
    Bins bins = open_bins(sums, n_bins);
    for (Py_ssize_t i = samples.start; i < samples.stop; i += LANES) {
        const int n = (int)min_size(samples.stop - i, LANES);
#pragma omp simd
        for (int l = 0; l < n; l++)
            bin[l] = bin_of(confidence[i + l], n_bins, edge);
        for (int l = 0; l < n; l++)
            add_to_bin(&bins, l, bin[l], confidence[i + l], correct[i + l], weight ? weight[i + l] : 1);
    }
    close_bins(&bins);
}

/* How many of the ascending edges are at most as large as each of n <= LANES values, which are `apart` entries from each other.
 * All values take the same steps, together, without a branch that would have to be predicted. */
INLINE void find_places(const In_double *values, int n, Py_ssize_t apart, const In_double *edges, Py_ssize_t n_edges,
                        Py_ssize_t *place)
{
    for (int l = 0; l < n; l++)
        place[l] = 0;
    for (Py_ssize_t size = n_edges; size > 0;) {
        const Py_ssize_t half = (size + 1) / 2;
        for (int l = 0; l < n; l++)
            place[l] += half & -(Py_ssize_t)(edges[place[l] + half - 1] <= values[l * apart]);
        size -= half;
    }
}

/* Add every value to the count of its interval between ascending edges, and raise the largest value of the interval to it:
 * N_COPIES x (n_edges + 1) each, in turn, as in bins. */
CLONES static void count_intervals(const In_double *values, Range samples, const In_double *edges, Py_ssize_t n_edges,
                                   double *counts, double *largest)
{
    Py_ssize_t place[LANES];
    for (Py_ssize_t i = samples.start; i < samples.stop; i += LANES) {
        const int n = (int)min_size(samples.stop - i, LANES);
        find_places(values + i, n, 1, edges, n_edges, place);
        for (int l = 0; l < n; l++) {
            const Py_ssize_t k = (l % N_COPIES) * (n_edges + 1) + place[l];
            counts[k] += 1;
            largest[k] = values[i + l] > largest[k] ? values[i + l] : largest[k];
        }
    }
}

/* The line through two knots around x, as numpy.interp has it. */
INLINE double line_at(double x, const In_double *knot, const In_double *value)
{
    const double slope = (value[1] - value[0]) / (knot[1] - knot[0]);
    double y = slope * (x - knot[0]) + value[0];
    if (y != y) {
        y = slope * (x - knot[1]) + value[1];
        if (y != y && value[0] == value[1])
            y = value[0];
    }
    return y;
}

/* Straight lines between knots, constant beyond them, at every score. Column k of the scores has row k of the knots (n_columns x
 * width), which ascend and are filled up with infinity, and of their values (n_columns x (width + 1)), which begin at the second
 * entry. There are no CLONES: the fused products of newer processors round once where numpy.interp rounds twice. */
static void lines(const In_double *scores, Range rows, Py_ssize_t n_columns, const In_double *knots, Py_ssize_t width,
                  const In_double *values, double *out)
{
    Py_ssize_t place[LANES], n_knots;
    const double most = DBL_MAX;
    for (Py_ssize_t k = 0; k < n_columns; k++) {
        const In_double *knot = knots + k * width, *value = values + k * (width + 1) + 1;
        find_places(&most, 1, 1, knot, width, &n_knots);
        for (Py_ssize_t i = rows.start; i < rows.stop; i += LANES) {
            const int n = (int)min_size(rows.stop - i, LANES);
            const In_double *score = scores + i * n_columns + k;
            find_places(score, n, n_columns, knot, n_knots, place);
            for (int l = 0; l < n; l++) {
                const double x = score[l * n_columns];
                const Py_ssize_t before = place[l] - 1;
                double y = n_knots ? value[before < 0 ? 0 : before] : 0;
                if (x != x && n_knots)
                    y = x;
                else if (before >= 0 && before < n_knots - 1 && knot[before] != x)
                    y = line_at(x, knot + before, value + before);
                out[(i + l) * n_columns + k] = y;
            }
        }
    }
}
