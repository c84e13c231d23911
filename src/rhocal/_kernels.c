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

#include "_kernels_math.h"

#define REAL float
#define WIDTH 16
#define TYPED(x) x##_float
#define EXP exp_float
#define QUARTER(x) sqrtf(sqrtf(x))
#define NEXT(x) nextafterf(x, INFINITY)
#define HUGEST 3e38f
#define ALMOST_ONE 0.999999f
#include "_kernels_plain.h"
#include "_kernels_blocks.h"
#include "_kernels_rows.h"
#undef REAL
#undef WIDTH
#undef TYPED
#undef EXP
#undef QUARTER
#undef NEXT
#undef HUGEST
#undef ALMOST_ONE

#define REAL double
#define WIDTH 8
#define TYPED(x) x##_double
#define EXP exp_double
#define QUARTER(x) sqrt(sqrt(x))
#define NEXT(x) nextafter(x, INFINITY)
#define HUGEST 1e308
#define ALMOST_ONE 0.99999999999999
#include "_kernels_plain.h"
#include "_kernels_blocks.h"
#include "_kernels_rows.h"

#include "_kernels_samples.h"

/* ---- Arrays come as buffers ------------------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer buffers[12];
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

/* The loop for the type of the rows. */
#define ON_ROWS(function, ...) (IS_DOUBLE(held) ? function##_double(__VA_ARGS__) : function##_float(__VA_ARGS__))

static PyObject *done(Held *held, int ok)
{
    release(held);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_ends(PyObject *self, PyObject *args)
{
    PyObject *z;
    Py_ssize_t start, stop;
    double least = 0, most = 0;
    int finite = 0;
    Held held = {.n = 0};
    void *a;
    if (!PyArg_ParseTuple(args, "Onn", &z, &start, &stop) || !(a = hold(&held, z, 0)))
        return NULL;
    BEGIN
    finite = ON_ROWS(ends, a, start, stop, &least, &most);
    END
    release(&held);
    return Py_BuildValue("Ndd", PyBool_FromLong(finite), least, most);
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
        least = ON_ROWS(scan, a, m, start, stop, b, c, d);
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
        ON_ROWS(best, a, m, start, stop, k, b);
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
        ON_ROWS(norms, a, m, start, stop, c, d, b, n);
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
        ON_ROWS(curve, a, m, start, stop, b, c, order, d, n);
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
        if (own)
            ON_ROWS(moments_at, a, m, start, stop, b, c, d, n);
        else
            ON_ROWS(moments, a, m, start, stop, b, c, d, n);
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
        ON_ROWS(softmax, a, m, start, stop, b, same, c);
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
    double v, w, middle, of_square, of_nll;
    Held held = {.n = 0};
    void *a, *b, *d, *e, *f, *g, *h;
    if (!PyArg_ParseTuple(args, "OnnnnOdddOOOddOO", &c, &n_powers, &n, &start, &stop, &r, &v, &w, &middle, &label_gap, &correct,
                          &weight, &of_square, &of_nll, &sums, &confidence))
        return NULL;
    int ok = (a = hold(&held, c, 0)) && (b = hold(&held, r, 0)) && (d = hold(&held, label_gap, 0)) &&
             (e = hold(&held, correct, 0)) && (f = hold(&held, weight, 0)) && (g = hold(&held, sums, 1)) &&
             (h = hold(&held, confidence, 1));
    if (ok) {
        BEGIN
        beyond = gaps(a, n_powers, n, start, stop, b, v, w, middle, d, e, f, of_square, of_nll, g, h);
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
        fine = ON_ROWS(bin_rows, a, m, start, stop, b, n_bins, edge, tolerance, c);
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
    {"ends", py_ends, METH_VARARGS, NULL},
    {"bins", py_bins, METH_VARARGS, NULL},       {"dot", py_dot, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "rhocal._kernels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&module);
}
