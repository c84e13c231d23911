/* The passes over logits as compiled loops. `kernels.py` is the only caller. The same passes in NumPy serve where this file
 * could not be compiled, and tests compare both.
 *
 * A kernel works on a range of rows and writes what belongs to these rows, without the interpreter's lock: threads share the
 * rows. It allocates nothing and keeps nothing between calls.
 *
 *   _kernels_args.h      how arguments are checked
 *   _kernels_math.h      how loops are compiled (CLONES, INLINE), sizes, exp and log
 *   _kernels_rows.h      kernels over rows of logits, for float and for double (REAL, WIDTH, TYPED, EACH_LANE)
 *   _kernels_bins.h, _kernels_samples.h, _kernels_gaps.h, _kernels_draws.h      kernels over samples, in double
 *
 * To add a kernel:
 *
 *   1. Write the loop: over rows of logits in a header that `_kernels_rows.h` includes, as TYPED(name); else in a header that
 *      is included below. Its first word is CLONES; the functions that it calls are INLINE. Sums over rows need no loop of
 *      their own: write the terms of one vector and call TYPED(add_up), as TYPED(curve) does.
 *   2. Write the entry below: name_doc, whose first line is the signature, and py_name, which takes the arguments in the same
 *      order (see `_kernels_args.h`). Sizes come from the shapes of the arrays, never as arguments of their own.
 *   3. Add ENTRY(name) to `methods`, and the signature with its types to `_kernels.pyi`.
 *   4. Call it from a function of `kernels.py`, and that from the place that has the same computation in NumPy.
 *   5. Add a row of valid arguments to ENTRIES in `tests/test_kernel_arguments.py`, and to `tests/test_kernels.py` a test that
 *      compares the result with NumPy's.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "_kernels_math.h"
#include "_kernels_args.h"
#include "_kernels_bins.h"
#include "_kernels_samples.h"
#include "_kernels_gaps.h"
#include "_kernels_draws.h"

#define REAL float
#define WIDTH 16
#define TYPED(x) x##_float
#include "_kernels_rows.h"
#undef REAL
#undef WIDTH
#undef TYPED

#define REAL double
#define WIDTH 8
#define TYPED(x) x##_double
#include "_kernels_rows.h"
#undef REAL
#undef WIDTH
#undef TYPED

/* A kernel over rows, for the type of the logits z, which are its first argument. */
#define CALL_TYPED(name, z, ...) \
    ((z).is_double ? name##_double((z).data, __VA_ARGS__) : name##_float((z).data, __VA_ARGS__))

/* ---- Rows of logits -------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(ends_doc,
             "ends($module, z, start, stop, /)\n--\n\n"
             "Whether z[start:stop] is finite, its smallest and its largest entry. z is a vector of float32 or float64.");

static PyObject *py_ends(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("ends", args, n_args, 3);
    Array z = take_vector(&call, "z", FLOATS, READ, ANY);
    Range entries = take_range(&call, z.n_rows, 1);
    double smallest = 0, largest = 0;
    int is_finite = 0;
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        is_finite = CALL_TYPED(ends, z, entries, &smallest, &largest);
    return end_call(&call) ? Py_BuildValue("Ndd", PyBool_FromLong(is_finite), smallest, largest) : NULL;
}

PyDoc_STRVAR(scan_doc,
             "scan($module, z, start, stop, column, top, total, /)\n--\n\n"
             "Write the column of the largest entry (the first if there are several), that entry and the sum of every row.\n\n"
             "Returned is the smallest entry of these rows. A sum is not finite if an entry is not.");

static PyObject *py_scan(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("scan", args, n_args, 6);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 1);
    Array column = take_vector(&call, "column", INTP, WRITE, z.n_rows);
    Array top = take_vector(&call, "top", FLOAT64, WRITE, z.n_rows);
    Array total = take_vector(&call, "total", FLOAT64, WRITE, z.n_rows);
    double smallest = 0;
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        smallest = CALL_TYPED(scan, z, z.n_columns, rows, column.data, top.data, total.data);
    return end_call(&call) ? PyFloat_FromDouble(smallest) : NULL;
}

PyDoc_STRVAR(largest_doc,
             "largest($module, z, start, stop, out, /)\n--\n\n"
             "Write the k largest entries of every row, largest first. k is the number of columns of out.");

static PyObject *py_largest(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("largest", args, n_args, 4);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, z.n_rows, ANY);
    require_between(&call, "the number of columns of out", out.n_columns, 1, z.n_columns);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(largest, z, z.n_columns, rows, out.n_columns, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(bin_rows_doc,
             "bin_rows($module, probs, start, stop, labels, edge, tolerance, sums, /)\n--\n\n"
             "Add weight, confidence and correctness of every row to its bin of confidence (3 x n_bins).\n\n"
             "Returned is whether all is valid: labels are columns, no entry is negative, rows sum to 1 within the tolerance.\n"
             "`edge` is how far above the edge of a bin a confidence may lie and still belong to it.");

static PyObject *py_bin_rows(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("bin_rows", args, n_args, 7);
    Array probs = take_matrix(&call, "probs", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, probs.n_rows, 0);
    Array labels = take_vector(&call, "labels", INT64, READ, probs.n_rows);
    double edge = take_float(&call, "edge"), tolerance = take_float(&call, "tolerance");
    Array sums = take_matrix(&call, "sums", FLOAT64, WRITE, 3, ANY);
    int is_valid = 0;
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        is_valid = CALL_TYPED(bin_rows, probs, probs.n_columns, rows, labels.data, sums.n_columns, edge, tolerance,
                              sums.data);
    return end_call(&call) ? PyBool_FromLong(is_valid) : NULL;
}

PyDoc_STRVAR(norms_doc,
             "norms($module, z, start, stop, total, top, out, /)\n--\n\n"
             "Write the norms of every row for rho = 1, 1.25, ..., 3 (9 x n_rows).\n\n"
             "With `total` and `top`, sum and largest entry of every row, entries are centered at their mean; else both are None.");

static PyObject *py_norms(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("norms", args, n_args, 6);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array total = take_optional_vector(&call, "total", FLOAT64, z.n_rows);
    Array top = take_optional_vector(&call, "top", FLOAT64, z.n_rows);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, N_NORMS, z.n_rows);
    if (!call.has_failed && !total.data != !top.data)
        refuse(&call, PyExc_ValueError, "top", "must be None if total is, and an array if total is one");
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(norms, z, z.n_rows, z.n_columns, rows, total.data, top.data, out.data);
    return end_call_with_none(&call);
}

/* How often each column of z counts; None gives an array without data. */
static Array take_times(Call *call, Array z)
{
    Array times = take_optional_vector(call, "times", FLOAT64, z.n_columns);
    if (times.data)
        require_between(call, "with times the number of columns of z", z.n_columns, 1, LONG_ROW - 1);
    return times;
}

PyDoc_STRVAR(curve_doc,
             "curve($module, z, start, stop, top, scale, times, out, /)\n--\n\n"
             "Write L = log sum exp(scale (z - top)) of every row and its derivatives in the scale.\n\n"
             "out is (order + 1) x n_rows, with an order of 1, 2 or 3; `top` is the largest entry of every row.\n"
             "`times` is how often each column counts, None for once; with it rows have fewer than 256 columns.");

static PyObject *py_curve(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("curve", args, n_args, 7);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array top = take_vector(&call, "top", FLOAT64, READ, z.n_rows);
    Array scale = take_vector(&call, "scale", FLOAT64, READ, z.n_rows);
    Array times = take_times(&call, z);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, ANY, z.n_rows);
    require_between(&call, "the number of rows of out", out.n_rows, 2, 4);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(curve, z, z.n_rows, z.n_columns, rows, top.data, scale.data, times.data, (int)out.n_rows - 1, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(moments_doc,
             "moments($module, z, start, stop, top, scales, times, out, /)\n--\n\n"
             "Write the sums of e, e d and e d^2 of every row at five scales (15 x n_rows), e = exp(scale d), d = z - top.\n\n"
             "The scales must be to each other as 3 : 4 : 6 : 9 : 12; only the first one is read. `times` is that of `curve`.");

static PyObject *py_moments(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("moments", args, n_args, 7);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array top = take_vector(&call, "top", FLOAT64, READ, z.n_rows);
    Array scales = take_vector(&call, "scales", FLOAT64, READ, 5);
    Array times = take_times(&call, z);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, 15, z.n_rows);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(moments, z, z.n_rows, z.n_columns, rows, top.data, scales.data, times.data, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(moments_at_doc,
             "moments_at($module, z, start, stop, top, scale, times, out, /)\n--\n\n"
             "Write sums around the scale s of every row (9 x n_rows), with e, d and `times` as in `moments`.\n\n"
             "These are e and e d at s / 2, e d^0 to e d^4 at s, e and e d at 2 s.");

static PyObject *py_moments_at(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("moments_at", args, n_args, 7);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array top = take_vector(&call, "top", FLOAT64, READ, z.n_rows);
    Array scale = take_vector(&call, "scale", FLOAT64, READ, z.n_rows);
    Array times = take_times(&call, z);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, 9, z.n_rows);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(moments_at, z, z.n_rows, z.n_columns, rows, top.data, scale.data, times.data, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(softmax_doc,
             "softmax($module, z, start, stop, scale, out, /)\n--\n\n"
             "Write softmax(scale z) of every row, in the type of z. `scale` has one number a row, or one for all rows.\n\n"
             "The first of the largest entries of a row is also the first of the largest probabilities.");

static PyObject *py_softmax(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("softmax", args, n_args, 5);
    Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, z.n_rows, 0);
    Array scale = take_vector(&call, "scale", FLOAT64, READ, ANY);
    Array out = take_matrix(&call, "out", z.is_double ? FLOAT64 : FLOAT32, WRITE, z.n_rows, z.n_columns);
    const int is_shared = scale.n_rows == 1;
    if (!is_shared)
        require_between(&call, "the length of scale", scale.n_rows, z.n_rows, z.n_rows);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        CALL_TYPED(softmax, z, z.n_columns, rows, scale.data, is_shared, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(class_sums_doc,
             "class_sums($module, x, start, stop, weights, slope, bias, is_curvature, scratch, out, /)\n--\n\n"
             "Add the weighted sums of p and p x of every column to out (5 x n_columns), with p = softmax(slope x + bias) of\n"
             "each row; with `is_curvature` also those of q, q x and q x^2 for q = p (1 - p). Returned is the weighted sum of\n"
             "logsumexp.\n\n"
             "`slope` and `bias` have a number a column. Rows of weight 0 are not read. `scratch` (8 x n_columns) has the type\n"
             "of x.");

static PyObject *py_class_sums(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("class_sums", args, n_args, 9);
    Array x = take_matrix(&call, "x", FLOATS, READ, ANY, ANY);
    Range rows = take_range(&call, x.n_rows, 0);
    Array weights = take_vector(&call, "weights", FLOAT64, READ, x.n_rows);
    Array slope = take_vector(&call, "slope", FLOAT64, READ, x.n_columns);
    Array bias = take_vector(&call, "bias", FLOAT64, READ, x.n_columns);
    const int is_curvature = take_float(&call, "is_curvature") != 0;
    Array scratch = take_matrix(&call, "scratch", x.is_double ? FLOAT64 : FLOAT32, WRITE, 8, x.n_columns);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, 5, x.n_columns);
    double value = 0;
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        value = CALL_TYPED(class_sums, x, x.n_columns, rows, weights.data, slope.data, bias.data, is_curvature, scratch.data,
                           out.data);
    return end_call(&call) ? PyFloat_FromDouble(value) : NULL;
}

/* ---- Samples --------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(bins_doc,
             "bins($module, confidence, start, stop, correct, weights, edge, sums, /)\n--\n\n"
             "Add weight, confidence and correctness of every sample to its bin of confidence (3 x n_bins).\n\n"
             "Without weights (None) every sample counts 1. `edge` is as in `bin_rows`.");

static PyObject *py_bins(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("bins", args, n_args, 7);
    Array confidence = take_vector(&call, "confidence", FLOAT64, READ, ANY);
    Range samples = take_range(&call, confidence.n_rows, 0);
    Array correct = take_vector(&call, "correct", FLOAT64, READ, confidence.n_rows);
    Array weights = take_optional_vector(&call, "weights", FLOAT64, confidence.n_rows);
    double edge = take_float(&call, "edge");
    Array sums = take_matrix(&call, "sums", FLOAT64, WRITE, 3, ANY);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        bin_samples(confidence.data, correct.data, weights.data, samples, sums.n_columns, edge, sums.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(intervals_doc,
             "intervals($module, edges, values, start, stop, counts, largest, /)\n--\n\n"
             "Add 1 to the count of the interval of every value, and raise the largest value of that interval to it.\n\n"
             "Interval k holds values from edges[k - 1] on that are below edges[k]. Edges ascend; there is one more interval. counts\n"
             "and largest have four rows, which take turns.");

static PyObject *py_intervals(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("intervals", args, n_args, 6);
    Array edges = take_vector(&call, "edges", FLOAT64, READ, ANY);
    Array values = take_vector(&call, "values", FLOAT64, READ, ANY);
    Range samples = take_range(&call, values.n_rows, 0);
    Array counts = take_matrix(&call, "counts", FLOAT64, WRITE, N_COPIES, edges.n_rows + 1);
    Array largest = take_matrix(&call, "largest", FLOAT64, WRITE, N_COPIES, edges.n_rows + 1);
    if (run_kernel(&call, KEEP_SUBNORMALS))
        count_intervals(values.data, samples, edges.data, edges.n_rows, counts.data, largest.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(lines_doc,
             "lines($module, scores, start, stop, knots, values, out, /)\n--\n\n"
             "Write the value at every score of straight lines between knots, constant beyond them, as numpy.interp does.\n\n"
             "Column k of the scores has row k of the knots, which ascend and are filled up with infinity, and of their values,\n"
             "which begin at the second entry. A column without knots gets 0.");

static PyObject *py_lines(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("lines", args, n_args, 6);
    Array scores = take_matrix(&call, "scores", FLOAT64, READ, ANY, ANY);
    Range rows = take_range(&call, scores.n_rows, 0);
    Array knots = take_matrix(&call, "knots", FLOAT64, READ, scores.n_columns, ANY);
    Array values = take_matrix(&call, "values", FLOAT64, READ, scores.n_columns, knots.n_columns + 1);
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, scores.n_rows, scores.n_columns);
    if (run_kernel(&call, KEEP_SUBNORMALS))
        lines(scores.data, rows, scores.n_columns, knots.data, knots.n_columns, values.data, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(digits_doc,
             "digits($module, values, start, stop, /)\n--\n\n"
             "Round every value to 43 binary digits, in place.");

static PyObject *py_digits(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("digits", args, n_args, 3);
    Array values = take_vector(&call, "values", FLOAT64, WRITE, ANY);
    Range samples = take_range(&call, values.n_rows, 0);
    if (run_kernel(&call, KEEP_SUBNORMALS))
        round_digits(values.data, samples);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(ring_doc,
             "ring($module, c, start, stop, scale, center, own_center, edge, out, /)\n--\n\n"
             "Write L and its derivatives in the scale from polynomials of t = (log scale - center) / log 2, one a sample.\n\n"
             "c are their coefficients (n_powers x n_samples), lowest power first; `own_center` is None or a number a sample that\n"
             "is added to the center. Beyond |t| = edge a curve continues along its tangent, down to 0. out is (order + 1) x\n"
             "n_samples, with an order of 1, 2 or 3.");

static PyObject *py_ring(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("ring", args, n_args, 8);
    Array c = take_matrix(&call, "c", FLOAT64, READ, ANY, ANY);
    Range samples = take_range(&call, c.n_columns, 0);
    Array scale = take_vector(&call, "scale", FLOAT64, READ, c.n_columns);
    double center = take_float(&call, "center");
    Array own_center = take_optional_vector(&call, "own_center", FLOAT64, c.n_columns);
    double edge = take_float(&call, "edge");
    Array out = take_matrix(&call, "out", FLOAT64, WRITE, ANY, c.n_columns);
    require_between(&call, "the number of rows of out", out.n_rows, 2, 4);
    const Ring ring = {c.data, c.n_rows, c.n_columns, center, own_center.data, edge};
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        evaluate_ring(ring, samples, scale.data, (int)out.n_rows - 1, out.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(interpolate_doc,
             "interpolate($module, c, start, stop, matrix, scales, /)\n--\n\n"
             "Turn the sums of `moments` at five scales into polynomials of a ring, in place (15 x n_samples).\n\n"
             "`matrix` (15 x 15) takes L, dL/dt and d2L/dt2 at the scales to coefficients.");

static PyObject *py_interpolate(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("interpolate", args, n_args, 5);
    Array c = take_matrix(&call, "c", FLOAT64, WRITE, 15, ANY);
    Range samples = take_range(&call, c.n_columns, 0);
    Array matrix = take_matrix(&call, "matrix", FLOAT64, READ, 15, 15);
    Array scales = take_vector(&call, "scales", FLOAT64, READ, 5);
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        interpolate(matrix.data, scales.data, samples, c.data, c.n_columns);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(gaps_doc,
             "gaps($module, curves, center, own_center, relative, v, w, label_gap, correct, weights, square_share, nll_share, sums,"
             " confidence, /)\n--\n\n"
             "Write the 12 sums of an objective of the gap between correctness and confidence, and every confidence.\n\n"
             "The scales are exp(v) / ((1 - w) relative + w). `curves` is a ring (n_powers x n_samples) around a center; with\n"
             "None as center, L and two derivatives in the scale (3 x n_samples). `own_center` is None or a number a sample that\n"
             "is added to the center. Returned is the number of samples outside the ring: with any, the sums mean nothing.");

static PyObject *py_gaps(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("gaps", args, n_args, 13);
    GapProblem problem = {0};
    Array curves = take_matrix(&call, "curves", FLOAT64, READ, ANY, ANY);
    const int is_ring = take_optional_float(&call, "center", &problem.center);
    Array own_center = take_optional_vector(&call, "own_center", FLOAT64, curves.n_columns);
    Array relative = take_vector(&call, "relative", FLOAT64, READ, curves.n_columns);
    problem.v = take_float(&call, "v");
    problem.w = take_float(&call, "w");
    Array label_gap = take_vector(&call, "label_gap", FLOAT64, READ, curves.n_columns);
    Array correct = take_vector(&call, "correct", FLOAT64, READ, curves.n_columns);
    Array weights = take_vector(&call, "weights", FLOAT64, READ, curves.n_columns);
    problem.square_share = take_float(&call, "square_share");
    problem.nll_share = take_float(&call, "nll_share");
    Array sums = take_vector(&call, "sums", FLOAT64, WRITE, GAP_SUMS);
    Array confidence = take_vector(&call, "confidence", FLOAT64, WRITE, curves.n_columns);
    if (!is_ring)
        require_between(&call, "without a center the number of rows of curves", curves.n_rows, 3, 3);
    problem.curves = curves.data;
    problem.own_center = own_center.data;
    problem.n_powers = is_ring ? curves.n_rows : 0;
    problem.n = curves.n_columns;
    problem.relative = relative.data;
    problem.label_gap = label_gap.data;
    problem.correct = correct.data;
    problem.weight = weights.data;
    Py_ssize_t n_outside = 0;
    if (run_kernel(&call, FLUSH_SUBNORMALS))
        n_outside = sum_gaps(problem, sums.data, confidence.data);
    return end_call(&call) ? PyLong_FromSsize_t(n_outside) : NULL;
}

PyDoc_STRVAR(draws_doc,
             "draws($module, levels, top, index, place, scale, sums, start, stop, /)\n--\n\n"
             "Draw labels of the replicates start to stop, the columns of `sums`, and add every draw up.\n\n"
             "A draw adds `scale` (None: 1) to the row of `sums` that `place` (n_samples x n_classes) names, and a draw of the top\n"
             "class to that of the sample's cell too. `levels` are cumulative probabilities with `top`, that of the top class, counted\n"
             "first; `index` holds the column of the top class, the key of the random numbers and the cell of every sample.\n"
             "Returned is whether all indices are valid; nothing is drawn if they are not.");

static PyObject *py_draws(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("draws", args, n_args, 8);
    Array levels = take_matrix(&call, "levels", FLOAT64, READ, ANY, ANY);
    Array top = take_vector(&call, "top", FLOAT64, READ, levels.n_rows);
    Array index = take_matrix(&call, "index", INT64, READ, levels.n_rows, 3);
    Array place = take_matrix(&call, "place", INT64, READ, levels.n_rows, levels.n_columns);
    Array scale = take_optional_vector(&call, "scale", FLOAT64, levels.n_rows);
    Array sums = take_matrix(&call, "sums", FLOAT64, WRITE, ANY, ANY);
    Range replicates = take_range(&call, sums.n_columns, 0);
    const LabelDraws draws = {levels.data, top.data,      index.data,      place.data,
                              scale.data,  levels.n_rows, levels.n_columns};
    int is_valid = 0;
    if (run_kernel(&call, KEEP_SUBNORMALS)) {
        is_valid = draws_fit(draws, sums.n_rows);
        if (is_valid)
            add_draws(draws, replicates, sums.n_columns, sums.data);
    }
    return end_call(&call) ? PyBool_FromLong(is_valid) : NULL;
}

PyDoc_STRVAR(pool_doc,
             "pool($module, values, start, stop, keys, sizes, /)\n--\n\n"
             "Replace every row by the non-increasing one nearest to it: isotonic regression, in place.\n\n"
             "Entries with equal keys, which are sorted, get one value. What sizes holds afterwards means nothing.");

static PyObject *py_pool(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("pool", args, n_args, 5);
    Array values = take_matrix(&call, "values", FLOAT64, WRITE, ANY, ANY);
    Range rows = take_range(&call, values.n_rows, 0);
    Array keys = take_matrix(&call, "keys", FLOAT64, READ, values.n_rows, values.n_columns);
    Array sizes = take_matrix(&call, "sizes", INTP, WRITE, values.n_rows, values.n_columns);
    if (run_kernel(&call, KEEP_SUBNORMALS))
        pool_rows(values.data, values.n_columns, rows, keys.data, sizes.data);
    return end_call_with_none(&call);
}

PyDoc_STRVAR(dot_doc,
             "dot($module, a, b, /)\n--\n\n"
             "Return the sum of the products of two vectors.");

static PyObject *py_dot(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("dot", args, n_args, 2);
    Array a = take_vector(&call, "a", FLOAT64, READ, ANY);
    Array b = take_vector(&call, "b", FLOAT64, READ, a.n_rows);
    double total = 0;
    if (run_kernel(&call, KEEP_SUBNORMALS))
        total = dot(a.data, b.data, a.n_rows);
    return end_call(&call) ? PyFloat_FromDouble(total) : NULL;
}

PyDoc_STRVAR(widen_doc,
             "widen($module, half, start, stop, out, /)\n--\n\n"
             "Write half[start:stop] to the same place of out, from float16 to float32. Returned is whether all are finite.");

static PyObject *py_widen(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    Call call = begin_call("widen", args, n_args, 4);
    Array half = take_vector(&call, "half", FLOAT16, READ, ANY);
    Range entries = take_range(&call, half.n_rows, 0);
    Array out = take_vector(&call, "out", FLOAT32, WRITE, half.n_rows);
    int is_finite = 0;
    if (run_kernel(&call, KEEP_SUBNORMALS)) /* half precision has subnormal numbers, and they are exact in float32 */
        is_finite = widen_half(half.data, entries, out.data);
    return end_call(&call) ? PyBool_FromLong(is_finite) : NULL;
}

/* ---- The module ------------------------------------------------------------------------------------------------ */

#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, name##_doc}

static PyMethodDef methods[] = {
    ENTRY(ends),    ENTRY(scan),       ENTRY(largest), ENTRY(bin_rows), ENTRY(norms),
    ENTRY(curve),   ENTRY(moments),    ENTRY(moments_at), ENTRY(softmax), ENTRY(bins),
    ENTRY(ring),    ENTRY(interpolate), ENTRY(gaps),    ENTRY(dot),      ENTRY(widen),
    ENTRY(draws),   ENTRY(pool),       ENTRY(class_sums), ENTRY(intervals), ENTRY(digits),
    ENTRY(lines),
    {NULL, NULL, 0, NULL},
};

/* INTERFACE of `kernels.py`: goes up when an entry is added, or its arguments or its result change. */
static int add_interface(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", 8);
}

/* The module has no state, so every interpreter may have its own copy, with a lock of its own or with none. Each slot is
 * defined by the headers that know it, within the limited API as well. The limited API of Python 3.11, for which `setup.py`
 * builds one binary for all later versions, knows neither; it does not exist on free-threaded Python, where the module is
 * built for one version, with both slots. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)add_interface},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

PyDoc_STRVAR(module_doc, "The passes over logits as compiled loops; `kernels.py` is their only caller.");

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernels",
    .m_doc = module_doc,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&module_def);
}
