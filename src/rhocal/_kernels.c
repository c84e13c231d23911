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

/* One copy of each loop for each width of vectors, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
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
#define FEW 64
#define VERY_FEW 16

#define REAL float
#define NAME(x) x##_float
#define EXP exp_float
#define SQRT sqrtf
#define HUGEST 3e38f
#define ALMOST_ONE 0.999999f
#include "_kernels_rows.h"
#undef REAL
#undef NAME
#undef EXP
#undef SQRT
#undef HUGEST
#undef ALMOST_ONE

#define REAL double
#define NAME(x) x##_double
#define EXP exp_double
#define SQRT sqrt
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
    Py_buffer buffers[6];
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
    PyObject *z, *out;
    Py_ssize_t m, start, stop, n;
    int center;
    Held held = {.n = 0};
    void *a, *b;
    if (!PyArg_ParseTuple(args, "OnnnpOn", &z, &m, &start, &stop, &center, &out, &n))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (IS_DOUBLE(held))
            norms_double(a, m, start, stop, center, b, n);
        else
            norms_float(a, m, start, stop, center, b, n);
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
    Py_ssize_t m, start, stop, close = 0;
    Held held = {.n = 0};
    void *a, *b, *c;
    if (!PyArg_ParseTuple(args, "OnnnOO", &z, &m, &start, &stop, &scale, &out))
        return NULL;
    int ok = (a = hold(&held, z, 0)) && (b = hold(&held, scale, 0)) && (c = hold(&held, out, 1));
    if (ok) {
        BEGIN
        if (IS_DOUBLE(held))
            close = softmax_double(a, m, start, stop, b, c);
        else
            close = softmax_float(a, m, start, stop, b, c);
        END
    }
    release(&held);
    return ok ? PyLong_FromSsize_t(close) : NULL;
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

/* Adds to the weight, confidence and correctness of each bin (3 x n_bins); without weights every sample counts 1. */
static void add_to_bins(const double *confidence, const double *correct, const double *weight, Py_ssize_t start,
                        Py_ssize_t stop, Py_ssize_t n_bins, double edge, double *sums)
{
    for (Py_ssize_t i = start; i < stop; i++) {
        double position = ceil((confidence[i] - edge) * (double)n_bins) - 1;
        Py_ssize_t bin = position < 0 ? 0 : position >= (double)n_bins ? n_bins - 1 : (Py_ssize_t)position;
        double w = weight ? weight[i] : 1;
        sums[bin] += w;
        sums[n_bins + bin] += w * confidence[i];
        sums[2 * n_bins + bin] += w * correct[i];
    }
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
        add_to_bins(a, b, d, start, stop, n_bins, edge, c);
        END
    }
    return done(&held, ok);
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
    {"bins", py_bins, METH_VARARGS, NULL},       {"dot", py_dot, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "rhocal._kernels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&module);
}
