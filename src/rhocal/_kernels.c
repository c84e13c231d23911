/* The passes over logits as compiled loops. `kernels.py` is the only caller and the place where they are explained; the same in
 * NumPy is `passes.py`, which serves where this file could not be compiled, and which tests compare with.
 *
 * Every function takes a range of rows and writes what belongs to these rows, without the interpreter's lock: threads share
 * the rows. Arrays are C-contiguous; `kernels.py` sees to it. Nothing is allocated here.
 */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

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

/* log(x) for normal x > 0: x = 2^k (1 + s) / (1 - s) with |s| < 0.172; log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ... + s^19/19). */
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
    return k * 0.693147180559945309 + 2 * s * p;
}

#define LANES 16
#define SMALLEST_MIX 1e-150 /* `gaps.py` says why */
#define FEW 64
#define VERY_FEW 16
#define VECTOR 8
#define PIECE 2048
#define GROUPS 64
#define BLOCK 64
#define MANY_COLUMNS 1000000 /* the cube of that is far from the ends of single precision */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define EACH _Pragma("omp simd") for (int l = 0; l < VECTOR; l++)

/* Adds a sample to the weight, confidence and correctness of its bin (3 x n_bins). */
INLINE void add_to_bins(double confidence, double correct, double weight, Py_ssize_t n_bins, double edge, double *sums)
{
    double position = ceil((confidence - edge) * (double)n_bins) - 1;
    Py_ssize_t bin = position < 0 ? 0 : position >= (double)n_bins ? n_bins - 1 : (Py_ssize_t)position;
    sums[bin] += weight;
    sums[n_bins + bin] += weight * confidence;
    sums[2 * n_bins + bin] += weight * correct;
}

#define REAL float
#define NAME(x) x##_float
#define EXP exp_float
#define SQRT sqrtf
#define NEXT(x) nextafterf(x, INFINITY)
#define HUGEST 3e38f
#define ALMOST_ONE 0.999999f
#include "_kernels_rows.h"
#undef REAL
#undef NAME
#undef EXP
#undef SQRT
#undef NEXT
#undef HUGEST
#undef ALMOST_ONE

#define REAL double
#define NAME(x) x##_double
#define EXP exp_double
#define SQRT sqrt
#define NEXT(x) nextafter(x, INFINITY)
#define HUGEST 1e308
#define ALMOST_ONE 0.99999999999999
#include "_kernels_rows.h"


/* The curve for few classes, in double: LANES rows at a time, side by side, because short rows fill no vector. */
#define FEW_CURVE(TYPE)                                                                                                    \
    CLONES static void few_curve_##TYPE(const TYPE *z, Py_ssize_t m, Py_ssize_t start, Py_ssize_t stop, const double *top, \
                                        const double *scale, int order, double *out, Py_ssize_t n_rows)                    \
    {                                                                                                                      \
        double d[FEW][LANES], s[LANES], e0[LANES], e1[LANES], e2[LANES], e3[LANES];                                        \
        for (Py_ssize_t i = start; i < stop; i += LANES) {                                                                 \
            Py_ssize_t n = stop - i < LANES ? stop - i : LANES;                                                            \
            for (Py_ssize_t l = 0; l < LANES; l++) {                                                                       \
                Py_ssize_t row = i + (l < n ? l : 0);                                                                      \
                s[l] = scale[row];                                                                                         \
                e0[l] = e1[l] = e2[l] = e3[l] = 0;                                                                         \
                for (Py_ssize_t j = 0; j < m; j++)                                                                         \
                    d[j][l] = (double)z[row * m + j] - top[row];                                                           \
            }                                                                                                              \
            for (Py_ssize_t j = 0; j < m; j++) {                                                                           \
                _Pragma("omp simd") for (Py_ssize_t l = 0; l < LANES; l++)                                                 \
                {                                                                                                          \
                    double x = d[j][l], e = exp_double(s[l] * x);                                                          \
                    e0[l] += e;                                                                                            \
                    e1[l] += e * x;                                                                                        \
                    e2[l] += e * x * x;                                                                                    \
                    e3[l] += e * x * x * x;                                                                                \
                }                                                                                                          \
            }                                                                                                              \
            for (Py_ssize_t l = 0; l < n; l++) {                                                                           \
                double mean = e1[l] / e0[l], square = e2[l] / e0[l];                                                       \
                out[i + l] = log(e0[l]);                                                                                   \
                out[n_rows + i + l] = mean;                                                                                \
                if (order > 1)                                                                                             \
                    out[2 * n_rows + i + l] = square > mean * mean ? square - mean * mean : 0;                             \
                if (order > 2)                                                                                             \
                    out[3 * n_rows + i + l] = e3[l] / e0[l] - 3 * mean * square + 2 * mean * mean * mean;                  \
            }                                                                                                              \
        }                                                                                                                  \
    }

FEW_CURVE(float)
FEW_CURVE(double)

/* L and its derivatives in the scale from polynomials c (n_powers x n, lowest power first) of t = (log scale - centre) / log 2; the
 * centre is middle, plus each sample's own where there is one. Horner's rule on all derivatives at once. out is (order + 1) x n.
 * Beyond t = -edge and edge a curve goes on along its tangent, as far down as 0. These are the k samples from i on, side by side. */
INLINE void ring_from(const double *c, Py_ssize_t n_powers, Py_ssize_t i, Py_ssize_t k, const double *scale, const double *own,
                      double middle, double edge, int order, double *out, Py_ssize_t n)
{
    const double u = 1.442695040888963407;
    double v0[LANES] = {0}, v1[LANES] = {0}, v2[LANES] = {0}, v3[LANES] = {0}, centre[LANES], t[LANES], s[LANES];
    int beyond = 0;
    for (Py_ssize_t l = 0; l < k; l++) {
        s[l] = scale[i + l];
        centre[l] = middle + (own ? own[i + l] : 0);
    }
#pragma omp simd reduction(| : beyond)
    for (Py_ssize_t l = 0; l < k; l++) {
        t[l] = (log_double(s[l]) - centre[l]) * u;
        beyond |= t[l] > edge || t[l] < -edge;
    }
    if (beyond)
        for (Py_ssize_t l = 0; l < k; l++)
            if (t[l] > edge || t[l] < -edge) {
                t[l] = t[l] > 0 ? edge : -edge;
                s[l] = exp(centre[l] + t[l] / u);
            }
    for (Py_ssize_t q = n_powers - 1; q >= 0; q--) {
        const double *row = c + q * n + i;
        if (order < 2) {
#pragma omp simd
            for (Py_ssize_t l = 0; l < k; l++) {
                v1[l] = v1[l] * t[l] + v0[l];
                v0[l] = v0[l] * t[l] + row[l];
            }
        } else {
#pragma omp simd
            for (Py_ssize_t l = 0; l < k; l++) {
                v3[l] = v3[l] * t[l] + v2[l];
                v2[l] = v2[l] * t[l] + v1[l];
                v1[l] = v1[l] * t[l] + v0[l];
                v0[l] = v0[l] * t[l] + row[l];
            }
        }
    }
    /* From derivatives in x = log s to derivatives in s: s L1 = Lx, s^2 L2 = Lxx - Lx, s^3 L3 = Lxxx - 3 Lxx + 2 Lx. A rounding error
     * must not make L negative, which is a confidence above 1. */
#pragma omp simd
    for (Py_ssize_t l = 0; l < k; l++) {
        out[i + l] = v0[l] > 0 ? v0[l] : 0;
        out[n + i + l] = v1[l] * u / s[l];
    }
    if (order > 1)
        for (Py_ssize_t l = 0; l < k; l++) {
            const double once = v1[l] * u, twice = 2 * v2[l] * u * u, thrice = 6 * v3[l] * u * u * u;
            out[2 * n + i + l] = (twice - once) / s[l] / s[l];
            if (order > 2)
                out[3 * n + i + l] = (thrice - 3 * twice + 2 * once) / s[l] / s[l] / s[l];
        }
    if (beyond)
        for (Py_ssize_t l = 0; l < k; l++) {
            const double further = scale[i + l] - s[l];
            if (further == 0)
                continue;
            out[i + l] += out[n + i + l] * further;
            for (int d = 2; d <= order; d++)
                out[d * n + i + l] = 0;
            if (out[i + l] < 0)
                out[i + l] = out[n + i + l] = 0;
        }
}

CLONES static void ring(const double *c, Py_ssize_t n_powers, Py_ssize_t start, Py_ssize_t stop, const double *scale,
                        const double *own, double middle, double edge, int order, double *out, Py_ssize_t n)
{
    Py_ssize_t i = start;
    for (; i + LANES <= stop; i += LANES)
        ring_from(c, n_powers, i, LANES, scale, own, middle, edge, order, out, n);
    if (i < stop)
        ring_from(c, n_powers, i, stop - i, scale, own, middle, edge, order, out, n);
}

/* From sums of e, e d and e d^2 at five nodes (see moments) to polynomials: `matrix` (15 x 15) takes L, dL/dt and d2L/dt2 at the nodes,
 * with t = log2 of the scale, to coefficients. c is 15 x n and holds the sums before, the coefficients afterwards. */
CLONES static void interpolate(const double *matrix, const double *scales, Py_ssize_t start, Py_ssize_t stop, double *c,
                               Py_ssize_t n)
{
    const double log_two = 0.693147180559945309;
    double met[15][LANES] = {{0}};
    for (Py_ssize_t i = start; i < stop; i += LANES) {
        const int k = (int)MIN(stop - i, LANES);
        for (int q = 0; q < 15; q++)
            for (int l = 0; l < k; l++)
                met[q][l] = c[q * n + i + l];
        for (int node = 0; node < 5; node++) {
            const double s = scales[node];
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                double total = met[node][l], first = met[5 + node][l] * s / total, second = met[10 + node][l] * s * s / total;
                met[node][l] = log_double(total);
                met[5 + node][l] = first * log_two;
                met[10 + node][l] = (second + first - first * first) * log_two * log_two;
            }
        }
        for (int power = 0; power < 15; power++) {
            double sum[LANES] = {0};
            for (int q = 0; q < 15; q++) {
                const double share = matrix[15 * power + q];
#pragma omp simd
                for (int l = 0; l < LANES; l++)
                    sum[l] += share * met[q][l];
            }
            for (int l = 0; l < k; l++)
                c[power * n + i + l] = sum[l];
        }
    }
}

/* Sums for an objective of the scales s = exp(v) / mix with mix = (1 - w) r + w, of three numbers of every sample: the gap d = correct -
 * confidence, its square, and the negative log-likelihood; of each the value, the derivatives in v and w, and the second ones in
 * vv, vw and ww (18 numbers, times the sample's weight). In x = log s these are f, f_x, f_x q, f_xx, f_xx q and (f_xx + f_x) q^2, with
 * q = (r - 1) / mix. L comes from a ring (see above), or is given with its derivatives in s (n_powers = 0, c is 3 x n).
 * Returned is how many samples lie outside the ring: their sums mean nothing. */
#define GAP_SUMS 18

INLINE Py_ssize_t gaps_from(const double *c, Py_ssize_t n_powers, Py_ssize_t n, Py_ssize_t i, Py_ssize_t k, const double *r, double v,
                            double w, double middle, const double *label_gap, const double *correct, const double *weight,
                            double acc[GAP_SUMS][LANES], double *confidence)
{
    const double u = 1.442695040888963407, whole = exp(v);
    double t[LANES], s[LANES], q[LANES], l0[LANES], l1[LANES], l2[LANES];
    int beyond = 0;
#pragma omp simd reduction(+ : beyond)
    for (int l = 0; l < k; l++) {
        double mix = (1 - w) * r[i + l] + w;
        mix = mix > SMALLEST_MIX ? mix : SMALLEST_MIX;
        s[l] = whole / mix;
        q[l] = (r[i + l] - 1) / mix;
        t[l] = (v - log_double(mix) - middle) * u;
        beyond += t[l] > 1 || t[l] < -1;
        l0[l] = l1[l] = l2[l] = 0;
    }
    if (n_powers) {
        for (Py_ssize_t power = n_powers - 1; power >= 0; power--) {
            const double *row = c + power * n + i;
#pragma omp simd
            for (int l = 0; l < k; l++) {
                l2[l] = l2[l] * t[l] + l1[l];
                l1[l] = l1[l] * t[l] + l0[l];
                l0[l] = l0[l] * t[l] + row[l];
            }
        }
#pragma omp simd
        for (int l = 0; l < k; l++) {
            l0[l] = l0[l] > 0 ? l0[l] : 0;
            l1[l] *= u;
            l2[l] *= 2 * u * u;
        }
    } else {
#pragma omp simd
        for (int l = 0; l < k; l++) {
            l0[l] = c[i + l];
            l1[l] = c[n + i + l] * s[l];
            l2[l] = c[2 * n + i + l] * s[l] * s[l] + l1[l];
        }
    }
#pragma omp simd
    for (int l = 0; l < k; l++) {
        const double p = exp_double(-l0[l]), d = correct[i + l] - p, dx = p * l1[l], dxx = p * (l2[l] - l1[l] * l1[l]);
        const double pull = s[l] * label_gap[i + l], o = weight[i + l], one = q[l], two = q[l] * q[l];
        const double x1 = o * dx, x2 = o * dxx, y1 = 2 * d * x1, y2 = 2 * (dx * x1 + d * x2);
        const double z1 = o * (l1[l] - pull), z2 = o * (l2[l] - pull);
        confidence[i + l] = p;
        acc[0][l] += o * d, acc[1][l] += x1, acc[2][l] += x1 * one;
        acc[3][l] += x2, acc[4][l] += x2 * one, acc[5][l] += (x2 + x1) * two;
        acc[6][l] += o * d * d, acc[7][l] += y1, acc[8][l] += y1 * one;
        acc[9][l] += y2, acc[10][l] += y2 * one, acc[11][l] += (y2 + y1) * two;
        acc[12][l] += o * (l0[l] - pull), acc[13][l] += z1, acc[14][l] += z1 * one;
        acc[15][l] += z2, acc[16][l] += z2 * one, acc[17][l] += (z2 + z1) * two;
    }
    return n_powers ? beyond : 0;
}

CLONES static Py_ssize_t gaps(const double *c, Py_ssize_t n_powers, Py_ssize_t n, Py_ssize_t start, Py_ssize_t stop,
                              const double *r, double v, double w, double middle, const double *label_gap,
                              const double *correct, const double *weight, double *sums, double *confidence)
{
    double acc[GAP_SUMS][LANES] = {{0}};
    Py_ssize_t i = start, beyond = 0;
    for (; i + LANES <= stop; i += LANES)
        beyond += gaps_from(c, n_powers, n, i, LANES, r, v, w, middle, label_gap, correct, weight, acc, confidence);
    if (i < stop)
        beyond += gaps_from(c, n_powers, n, i, stop - i, r, v, w, middle, label_gap, correct, weight, acc, confidence);
    for (int q = 0; q < GAP_SUMS; q++) {
        sums[q] = 0;
        for (int l = 0; l < LANES; l++)
            sums[q] += acc[q][l];
    }
    return beyond;
}

/* Without weights every sample counts 1. */
CLONES static void bin(const double *confidence, const double *correct, const double *weight, Py_ssize_t start, Py_ssize_t stop,
                       Py_ssize_t n_bins, double edge, double *sums)
{
    for (Py_ssize_t i = start; i < stop; i++)
        add_to_bins(confidence[i], correct[i], weight ? weight[i] : 1, n_bins, edge, sums);
}

/* Sum of a b. */
CLONES static double dot(const double *a, const double *b, Py_ssize_t n)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (Py_ssize_t i = 0; i < n; i++)
        total += a[i] * b[i];
    return total;
}

/* Half precision to single: sign and digits to their places, 2^112 mends the exponent. Says whether all were finite. */
CLONES static int widen_half(const uint16_t *from, Py_ssize_t start, Py_ssize_t stop, uint32_t *to)
{
    uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
    for (Py_ssize_t i = start; i < stop; i++) {
        uint32_t h = from[i], size = h & 0x7fff;
        uint32_t bits = size << 13;
        float value;
        memcpy(&value, &bits, 4);
        value *= 5.192296858534828e33f;
        memcpy(&bits, &value, 4);
        to[i] = bits | (h & 0x8000) << 16;
        odd |= size >= 0x7c00;
    }
    return !odd;
}

/* ---- The door: arrays come as buffers ---------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer buffers[8];
    int n;
} Held;

static void release(Held *held)
{
    while (held->n > 0)
        PyBuffer_Release(&held->buffers[--held->n]);
}

static void *hold(Held *held, PyObject *array, int writable)
{
    Py_buffer *view = &held->buffers[held->n];
    if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return NULL;
    held->n++;
    return view->buf;
}

/* Subnormal numbers make every step ten times slower, and none of them matters here. */
#if defined(__SSE2__)
#define BEGIN                                                                                                              \
    Py_BEGIN_ALLOW_THREADS unsigned int control = _mm_getcsr();                                                            \
    _mm_setcsr(control | 0x8040);
#define END                                                                                                                \
    _mm_setcsr(control);                                                                                                   \
    Py_END_ALLOW_THREADS
#else
#define BEGIN Py_BEGIN_ALLOW_THREADS
#define END Py_END_ALLOW_THREADS
#endif

#define IS_DOUBLE(held) ((held).buffers[0].itemsize == 8)

static PyObject *done(Held *held, int ok)
{
    release(held);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_finite(PyObject *self, PyObject *args)
{
    PyObject *z;
    Py_ssize_t start, stop;
    double least = 0;
    int finite = 0;
    Held held = {.n = 0};
    void *a;
    if (!PyArg_ParseTuple(args, "Onn", &z, &start, &stop) || !(a = hold(&held, z, 0)))
        return NULL;
    BEGIN
    if (IS_DOUBLE(held))
        finite = finite_double(a, start, stop, &least);
    else
        finite = finite_float(a, start, stop, &least);
    END
    release(&held);
    return Py_BuildValue("Nd", PyBool_FromLong(finite), least);
}

static PyObject *py_scan(PyObject *self, PyObject *args)
{
    PyObject *z, *column, *top, *total;
    Py_ssize_t m, start, stop;
    double least = 0;
    Held held = {.n = 0};
    void *a, *b, *c, *d;
    if (!PyArg_ParseTuple(args, "OnnnOOO", &z, &m, &start, &stop, &column, &top, &total))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, column, 1)) && (c = hold(&held, top, 1)) && (d = hold(&held, total, 1));
    if (ok) {
        BEGIN
        if (m <= VERY_FEW && IS_DOUBLE(held))
            least = scan_few_double(a, m, start, stop, b, c, d);
        else if (m <= VERY_FEW)
            least = scan_few_float(a, m, start, stop, b, c, d);
        else if (IS_DOUBLE(held))
            least = scan_double(a, m, start, stop, b, c, d);
        else
            least = scan_float(a, m, start, stop, b, c, d);
        END
    }
    release(&held);
    return ok ? PyFloat_FromDouble(least) : NULL;
}

static PyObject *py_best(PyObject *self, PyObject *args)
{
    PyObject *z, *out;
    Py_ssize_t m, start, stop, k;
    Held held = {.n = 0};
    void *a, *b;
    if (!PyArg_ParseTuple(args, "OnnnnO", &z, &m, &start, &stop, &k, &out))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (IS_DOUBLE(held))
            best_double(a, m, start, stop, k, b);
        else
            best_float(a, m, start, stop, k, b);
        END
    }
    return done(&held, ok);
}

static PyObject *py_norms(PyObject *self, PyObject *args)
{
    PyObject *z, *total, *top, *out;
    Py_ssize_t m, start, stop, n;
    Held held = {.n = 0};
    void *a, *b, *c = NULL, *d = NULL;
    if (!PyArg_ParseTuple(args, "OnnnOOOn", &z, &m, &start, &stop, &total, &top, &out, &n))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, out, 1)) &&
             (total == Py_None || ((c = hold(&held, total, 0)) && (d = hold(&held, top, 0))));
    if (ok) {
        BEGIN
        if (IS_DOUBLE(held))
            norms_double(a, m, start, stop, c, d, b, n);
        else
            norms_float(a, m, start, stop, c, d, b, n);
        END
    }
    return done(&held, ok);
}

static PyObject *py_curve(PyObject *self, PyObject *args)
{
    PyObject *z, *top, *scale, *out;
    Py_ssize_t m, start, stop, n;
    int order;
    Held held = {.n = 0};
    void *a, *b, *c, *d;
    if (!PyArg_ParseTuple(args, "OnnnOOiOn", &z, &m, &start, &stop, &top, &scale, &order, &out, &n))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, top, 0)) && (c = hold(&held, scale, 0)) && (d = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (m <= FEW && IS_DOUBLE(held))
            few_curve_double(a, m, start, stop, b, c, order, d, n);
        else if (m <= FEW)
            few_curve_float(a, m, start, stop, b, c, order, d, n);
        else if (IS_DOUBLE(held))
            curve_double(a, m, start, stop, b, c, order, d, n);
        else
            curve_float(a, m, start, stop, b, c, order, d, n);
        END
    }
    return done(&held, ok);
}

static PyObject *py_moments(PyObject *self, PyObject *args)
{
    PyObject *z, *top, *scales, *out;
    Py_ssize_t m, start, stop, n;
    int own;
    Held held = {.n = 0};
    void *a, *b, *c, *d;
    if (!PyArg_ParseTuple(args, "OnnnOOpOn", &z, &m, &start, &stop, &top, &scales, &own, &out, &n))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, top, 0)) && (c = hold(&held, scales, 0)) && (d = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (own && IS_DOUBLE(held))
            moments_at_double(a, m, start, stop, b, c, d, n);
        else if (own)
            moments_at_float(a, m, start, stop, b, c, d, n);
        else if (IS_DOUBLE(held))
            moments_double(a, m, start, stop, b, c, d, n);
        else
            moments_float(a, m, start, stop, b, c, d, n);
        END
    }
    return done(&held, ok);
}

static PyObject *py_softmax(PyObject *self, PyObject *args)
{
    PyObject *z, *scale, *out;
    Py_ssize_t m, start, stop;
    int same;
    Held held = {.n = 0};
    void *a, *b, *c;
    if (!PyArg_ParseTuple(args, "OnnnOpO", &z, &m, &start, &stop, &scale, &same, &out))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, scale, 0)) && (c = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (IS_DOUBLE(held))
            softmax_double(a, m, start, stop, b, same, c);
        else
            softmax_float(a, m, start, stop, b, same, c);
        END
    }
    return done(&held, ok);
}

static PyObject *py_ring(PyObject *self, PyObject *args)
{
    PyObject *c, *scale, *own, *out;
    Py_ssize_t n_powers, start, stop, n;
    double middle, edge;
    int order;
    Held held = {.n = 0};
    void *a, *b, *d, *e = NULL;
    if (!PyArg_ParseTuple(args, "OnnnOOddiOn", &c, &n_powers, &start, &stop, &scale, &own, &middle, &edge, &order, &out,
                          &n))
        return NULL;
    int ok = (a = hold(&held, c, 0)) && (b = hold(&held, scale, 0)) && (d = hold(&held, out, 1)) &&
             (own == Py_None || (e = hold(&held, own, 0)));
    if (ok) {
        BEGIN
        ring(a, n_powers, start, stop, b, e, middle, edge, order, d, n);
        END
    }
    return done(&held, ok);
}

static PyObject *py_interpolate(PyObject *self, PyObject *args)
{
    PyObject *matrix, *scales, *out;
    Py_ssize_t start, stop, n;
    Held held = {.n = 0};
    void *a, *b, *c;
    if (!PyArg_ParseTuple(args, "OOnnOn", &matrix, &scales, &start, &stop, &out, &n))
        return NULL;
    int ok = (a = hold(&held, matrix, 0)) && (b = hold(&held, scales, 0)) && (c = hold(&held, out, 1));
    if (ok) {
        BEGIN
        interpolate(a, b, start, stop, c, n);
        END
    }
    return done(&held, ok);
}

static PyObject *py_gaps(PyObject *self, PyObject *args)
{
    PyObject *c, *r, *label_gap, *correct, *weight, *sums, *confidence;
    Py_ssize_t n_powers, n, start, stop, beyond = 0;
    double v, w, middle;
    Held held = {.n = 0};
    void *a, *b, *d, *e, *f, *g, *h;
    if (!PyArg_ParseTuple(args, "OnnnnOdddOOOOO", &c, &n_powers, &n, &start, &stop, &r, &v, &w, &middle, &label_gap, &correct,
                          &weight, &sums, &confidence))
        return NULL;
    int ok = (a = hold(&held, c, 0)) && (b = hold(&held, r, 0)) && (d = hold(&held, label_gap, 0)) &&
             (e = hold(&held, correct, 0)) && (f = hold(&held, weight, 0)) && (g = hold(&held, sums, 1)) &&
             (h = hold(&held, confidence, 1));
    if (ok) {
        BEGIN
        beyond = gaps(a, n_powers, n, start, stop, b, v, w, middle, d, e, f, g, h);
        END
    }
    release(&held);
    return ok ? PyLong_FromSsize_t(beyond) : NULL;
}

static PyObject *py_dot(PyObject *self, PyObject *args)
{
    PyObject *first, *second;
    Py_ssize_t n;
    double total = 0;
    Held held = {.n = 0};
    void *a, *b;
    if (!PyArg_ParseTuple(args, "OOn", &first, &second, &n))
        return NULL;
    int ok = (a = hold(&held, first, 0)) && (b = hold(&held, second, 0));
    if (ok)
        total = dot(a, b, n);
    release(&held);
    return ok ? PyFloat_FromDouble(total) : NULL;
}

static PyObject *py_bins(PyObject *self, PyObject *args)
{
    PyObject *confidence, *correct, *weight, *sums;
    Py_ssize_t start, stop, n_bins;
    double edge;
    Held held = {.n = 0};
    void *a, *b, *c, *d = NULL;
    if (!PyArg_ParseTuple(args, "OOOnnndO", &confidence, &correct, &weight, &start, &stop, &n_bins, &edge, &sums))
        return NULL;
    int ok = (a = hold(&held, confidence, 0)) && (b = hold(&held, correct, 0)) && (c = hold(&held, sums, 1)) &&
             (weight == Py_None || (d = hold(&held, weight, 0)));
    if (ok) {
        BEGIN
        bin(a, b, d, start, stop, n_bins, edge, c);
        END
    }
    return done(&held, ok);
}

static PyObject *py_bin_rows(PyObject *self, PyObject *args)
{
    PyObject *z, *label, *sums;
    Py_ssize_t m, start, stop, n_bins;
    double edge, tolerance;
    int fine = 0;
    Held held = {.n = 0};
    void *a, *b, *c;
    if (!PyArg_ParseTuple(args, "OnnnOnddO", &z, &m, &start, &stop, &label, &n_bins, &edge, &tolerance, &sums))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, label, 0)) && (c = hold(&held, sums, 1));
    if (ok) {
        BEGIN
        if (m <= VERY_FEW && IS_DOUBLE(held))
            fine = bin_few_double(a, m, start, stop, b, n_bins, edge, tolerance, c);
        else if (m <= VERY_FEW)
            fine = bin_few_float(a, m, start, stop, b, n_bins, edge, tolerance, c);
        else if (IS_DOUBLE(held))
            fine = bin_rows_double(a, m, start, stop, b, n_bins, edge, tolerance, c);
        else
            fine = bin_rows_float(a, m, start, stop, b, n_bins, edge, tolerance, c);
        END
    }
    release(&held);
    return ok ? PyBool_FromLong(fine) : NULL;
}

static PyObject *py_widen(PyObject *self, PyObject *args)
{
    PyObject *from, *to;
    Py_ssize_t start, stop;
    int finite = 1;
    Held held = {.n = 0};
    void *a, *b;
    if (!PyArg_ParseTuple(args, "OnnO", &from, &start, &stop, &to))
        return NULL;
    if (!((a = hold(&held, from, 0)) && (b = hold(&held, to, 1)))) {
        release(&held);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS /* subnormal halves are numbers too: they are not flushed */
        finite = widen_half(a, start, stop, b);
    Py_END_ALLOW_THREADS release(&held);
    return PyBool_FromLong(finite);
}

static PyMethodDef methods[] = {
    {"scan", py_scan, METH_VARARGS, NULL},       {"best", py_best, METH_VARARGS, NULL},
    {"norms", py_norms, METH_VARARGS, NULL},   {"curve", py_curve, METH_VARARGS, NULL},
    {"moments", py_moments, METH_VARARGS, NULL}, {"softmax", py_softmax, METH_VARARGS, NULL},
    {"ring", py_ring, METH_VARARGS, NULL},       {"widen", py_widen, METH_VARARGS, NULL},
    {"bin_rows", py_bin_rows, METH_VARARGS, NULL},
    {"interpolate", py_interpolate, METH_VARARGS, NULL},
    {"gaps", py_gaps, METH_VARARGS, NULL},
    {"finite", py_finite, METH_VARARGS, NULL},
    {"bins", py_bins, METH_VARARGS, NULL},       {"dot", py_dot, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "rhocal._kernels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&module);
}
