/* Bins of confidence of equal width, and intervals between any edges. */

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

/* Add every value to the count of its interval between ascending edges, and raise the largest value of the interval to it:
 * N_COPIES x (n_edges + 1) each, in turn, as in bins. The number of an interval is that of the edges which are at most as large;
 * all values take the same steps to it, LANES of them together, without a branch that would have to be predicted. */
CLONES static void count_intervals(const In_double *values, Range samples, const In_double *edges, Py_ssize_t n_edges,
                                   double *counts, double *largest)
{
    Py_ssize_t place[LANES];
    for (Py_ssize_t i = samples.start; i < samples.stop; i += LANES) {
        const int n = (int)min_size(samples.stop - i, LANES);
        for (int l = 0; l < n; l++)
            place[l] = 0;
        for (Py_ssize_t size = n_edges; size > 0;) {
            const Py_ssize_t half = (size + 1) / 2;
            for (int l = 0; l < n; l++)
                place[l] += half & -(Py_ssize_t)(edges[place[l] + half - 1] <= values[i + l]);
            size -= half;
        }
        for (int l = 0; l < n; l++) {
            const Py_ssize_t k = (l % N_COPIES) * (n_edges + 1) + place[l];
            counts[k] += 1;
            largest[k] = values[i + l] > largest[k] ? values[i + l] : largest[k];
        }
    }
}
