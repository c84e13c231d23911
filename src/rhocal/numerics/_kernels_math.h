/* What every loop builds on: how it is compiled, exp and log, the bin of a confidence. */

/* One copy of each loop for each generation of processors, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define CLONES
#endif

/* What a loop calls must become part of each of its copies. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Eight numbers of a row, in the order that is wanted. */
#if defined(__x86_64__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12))
#define WITH_SHUFFLES
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
#endif

/* exp(x) for x <= 0: 2^n exp(r) with |r| <= log(2) / 2. (exp(r) - 1 - r) / r^2 is the Chebyshev fit of degree 4 (9 in double), with a
 * relative error of 8e-9 (2e-17). n is rounded by adding 1.5 * 2^23 (2^52), whose low bits then hold it. Below the clamp the result
 * would not be a normal number. */
INLINE float exp_float(float x)
{
    x = x < -86.0f ? -86.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00139262508f;
    p = p * r + 0.00836323288f;
    p = p * r + 0.0416665542f;
    p = p * r + 0.166665767f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    uint32_t exponent, bits;
    memcpy(&exponent, &shifted, 4);
    memcpy(&bits, &p, 4);
    bits += exponent << 23;
    memcpy(&p, &bits, 4);
    return p;
}

INLINE double exp_double(double x)
{
    x = x < -700.0 ? -700.0 : x;
    double shifted = x * 1.442695040888963407 + 6755399441055744.0;
    double n = shifted - 6755399441055744.0;
    double r = (x - n * 0.693145751953125) - n * 1.42860682030941723e-6;
    double p = 2.5100472505694996003e-8;
    p = p * r + 2.7620201591031548792e-7;
    p = p * r + 2.7557268276905696187e-6;
    p = p * r + 0.000024801521057868205199;
    p = p * r + 0.00019841269863171556026;
    p = p * r + 0.0013888888917367080562;
    p = p * r + 0.0083333333333300381973;
    p = p * r + 0.041666666666623820532;
    p = p * r + 0.1666666666666666746;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    uint64_t exponent, bits;
    memcpy(&exponent, &shifted, 8);
    memcpy(&bits, &p, 8);
    bits += exponent << 52;
    memcpy(&p, &bits, 8);
    return p;
}

/* log(x) for normal x > 0: x = 2^k (1 + s) / (1 - s) with |s| < 0.172; log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ... + s^19/19). log(2) is
 * the sum of two numbers, the first of which times k is exact. */
INLINE double log_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    bits -= 0x3fe6a09e667f3bcdULL; /* sqrt(1/2): what is left of the digits lies around 1 */
    double k = (double)(int32_t)((bits >> 52) ^ 0x800) - 2048.0;
    uint64_t rest = (bits & 0xfffffffffffffULL) + 0x3fe6a09e667f3bcdULL;
    double m;
    memcpy(&m, &rest, 8);
    double s = (m - 1) / (m + 1), q = s * s;
    double p = 1.0 / 19;
    p = p * q + 1.0 / 17;
    p = p * q + 1.0 / 15;
    p = p * q + 1.0 / 13;
    p = p * q + 1.0 / 11;
    p = p * q + 1.0 / 9;
    p = p * q + 1.0 / 7;
    p = p * q + 1.0 / 5;
    p = p * q + 1.0 / 3;
    p = p * q + 1.0;
    return k * 0.693147180369123816490 + (k * 1.90821492927058770002e-10 + 2 * s * p);
}

#define LANES 16
#define SMALLEST_MIX 1e-150 /* `gaps.py` says why */
#define FEW 64
#define LONG 256
#define PIECE 64
#define GROUPS 64
#define MANY_COLUMNS 1000000 /* the cube of that is far from the ends of single precision */
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* The bin of a confidence; `edge` is how far above the edge of a bin it may lie and still belong to it. */
INLINE Py_ssize_t bin_of(double confidence, Py_ssize_t n_bins, double edge)
{
    double position = ceil((confidence - edge) * (double)n_bins) - 1;
    position = position > 0 ? position : 0;
    return (Py_ssize_t)(position < (double)n_bins ? position : (double)n_bins - 1);
}

/* Weight, confidence and correctness of each bin, added up in WAYS places in turn: an addition need not wait for the one before it,
 * which mostly goes to the same bin. With more than FEW_BINS there is one place, which the caller has. */
#define WAYS 4
#define FEW_BINS 32

typedef struct {
    double places[WAYS][FEW_BINS][4];
    double *sums; /* 3 x n_bins, where they end up */
    Py_ssize_t n_bins;
} Bins;

INLINE Bins bins_for(double *sums, Py_ssize_t n_bins)
{
    Bins bins = {.sums = sums, .n_bins = n_bins};
    return bins;
}

INLINE void add_to_bin(Bins *bins, int way, Py_ssize_t bin, double confidence, double correct, double weight)
{
    if (bins->n_bins <= FEW_BINS) {
        double *place = bins->places[way % WAYS][bin];
        place[0] += weight;
        place[1] += weight * confidence;
        place[2] += weight * correct;
    } else {
        bins->sums[bin] += weight;
        bins->sums[bins->n_bins + bin] += weight * confidence;
        bins->sums[2 * bins->n_bins + bin] += weight * correct;
    }
}

INLINE void close_bins(Bins *bins)
{
    for (Py_ssize_t bin = 0; bin < bins->n_bins && bins->n_bins <= FEW_BINS; bin++)
        for (int way = 0; way < WAYS; way++)
            for (int k = 0; k < 3; k++)
                bins->sums[k * bins->n_bins + bin] += bins->places[way][bin][k];
}
