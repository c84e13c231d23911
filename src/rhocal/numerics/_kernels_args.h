/* The arguments of a kernel, checked before anything is read.
 *
 * An entry takes its arguments in order:
 *
 *     Call call = begin_call("scan", args, n_args, 6);
 *     Array z = take_matrix(&call, "z", FLOATS, READ, ANY, ANY);
 *     Range rows = take_range(&call, z.n_rows, 1);
 *     Array top = take_vector(&call, "top", FLOAT64, WRITE, z.n_rows);
 *     ...
 *
 * The first argument that is wrong raises a TypeError or a ValueError that names it, and everything taken after it is
 * empty. So an entry checks only once, with run_kernel(), whether every argument is right. end_call() releases the arrays.
 *
 * An array is any object with a buffer. Checked are format, item size, shape and C-contiguity; an array that is written
 * to must be writable and aligned, and must not share memory with another argument. One that is only read may lie at any
 * address: kernels read it as In_float, In_double, ...
 */

#define MAX_ARRAYS 8 /* arguments of one kernel that are arrays */

enum { ANY = -1 }; /* a length that the argument itself sets; the lengths of a matrix are at least 1 */

typedef enum { FLOATS, FLOAT16, FLOAT32, FLOAT64, INT64, INTP } Type; /* FLOATS: float32 or float64 */
typedef enum { READ, WRITE } Access;
typedef enum { FLUSH_SUBNORMALS, KEEP_SUBNORMALS } Subnormals;

typedef struct {
    void *data;                   /* NULL where None was given, or after an error */
    Py_ssize_t n_rows, n_columns; /* a vector is n x 1 */
    int is_double;
} Array;

typedef struct {
    Py_ssize_t start, stop;
} Range;

typedef struct {
    const char *kernel;
    PyObject *const *args;
    Py_ssize_t n_args, n_taken;
    int has_failed, is_running, n_held;
    PyThreadState *thread;       /* while the kernel runs: the thread that gave up the interpreter's lock, */
    unsigned int float_control;  /* and how its floating-point unit was set */
    struct {
        Py_buffer buffer;
        const char *name;
        Access access;
    } held[MAX_ARRAYS];
} Call;

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

/* Raise an error that begins with the names of the kernel and the argument. */
static void refuse(Call *call, PyObject *exception, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *reason = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (reason)
        PyErr_Format(exception, "%s: %s %U", call->kernel, name, reason);
    Py_XDECREF(reason);
    call->has_failed = 1;
}

/* "4", or "any" */
static const char *length_text(Py_ssize_t length, char text[24])
{
    if (length == ANY)
        return "any";
    snprintf(text, 24, "%lld", (long long)length);
    return text;
}

static const char *type_text(Type type)
{
    static const char *const names[] = {"float32 or float64", "float16", "float32", "float64", "int64", "intp"};
    return names[type];
}

static void refuse_shape(Call *call, const char *name, int n_dims, const Py_ssize_t shape[2], const Py_buffer *got)
{
    char rows[24], columns[24];
    if (got->ndim != n_dims)
        refuse(call, PyExc_ValueError, name, "must have %d dimension(s); got %d", n_dims, got->ndim);
    else if (n_dims == 1)
        refuse(call, PyExc_ValueError, name, "must have length %s; got %zd", length_text(shape[0], rows),
               got->shape[0]);
    else
        refuse(call, PyExc_ValueError, name, "must have shape (%s, %s) and not be empty; got (%zd, %zd)",
               length_text(shape[0], rows), length_text(shape[1], columns), got->shape[0], got->shape[1]);
}

/* The next argument; NULL after an error. */
static PyObject *take_object(Call *call, const char *name)
{
    if (!call->has_failed && call->n_taken == call->n_args)
        refuse(call, PyExc_SystemError, name, "is one argument more than begin_call() expects");
    return call->has_failed ? NULL : call->args[call->n_taken++];
}

/* Whether the next argument is None; it then counts as taken. */
static int takes_none(Call *call)
{
    const int is_none = !call->has_failed && call->n_taken < call->n_args && call->args[call->n_taken] == Py_None;
    call->n_taken += is_none;
    return is_none;
}

/* ---- Arrays ---------------------------------------------------------------------------------------------------- */

static int has_type(const Py_buffer *buffer, Type type)
{
    const char *format = buffer->format ? buffer->format : "B";
    if (*format && strchr(PY_LITTLE_ENDIAN ? "@=<" : "@=>", *format)) /* numbers in the byte order of the machine */
        format++;
    if (strlen(format) != 1) /* a record, or numbers in another byte order */
        return 0;
    switch (type) {
    case FLOATS:
        return has_type(buffer, FLOAT32) || has_type(buffer, FLOAT64);
    case FLOAT16:
        return *format == 'e' && buffer->itemsize == 2;
    case FLOAT32:
        return *format == 'f' && buffer->itemsize == sizeof(float);
    case FLOAT64:
        return *format == 'd' && buffer->itemsize == sizeof(double);
    case INT64: /* the letter of a type depends on the platform */
        return strchr("lqn", *format) && buffer->itemsize == sizeof(int64_t);
    case INTP:
        return strchr("lqn", *format) && buffer->itemsize == sizeof(Py_ssize_t);
    }
    return 0;
}

static int has_shape(const Py_buffer *buffer, int n_dims, const Py_ssize_t shape[2])
{
    Py_ssize_t n_bytes = buffer->itemsize;
    if (buffer->ndim != n_dims)
        return 0;
    for (int axis = 0; axis < n_dims; axis++) {
        if (shape[axis] != ANY && shape[axis] != buffer->shape[axis])
            return 0;
        n_bytes *= buffer->shape[axis];
    }
    return n_bytes == buffer->len && (n_dims == 1 || n_bytes > 0);
}

/* The name of an array that shares memory with the one taken last, where either is written to; NULL if there is none. */
static const char *shares_memory_with(const Call *call)
{
    const int last = call->n_held - 1;
    const uintptr_t begin = (uintptr_t)call->held[last].buffer.buf;
    const uintptr_t end = begin + (uintptr_t)call->held[last].buffer.len;
    for (int k = 0; k < last; k++) {
        const uintptr_t other = (uintptr_t)call->held[k].buffer.buf;
        const int is_written = call->held[last].access == WRITE || call->held[k].access == WRITE;
        if (is_written && begin < other + (uintptr_t)call->held[k].buffer.len && other < end)
            return call->held[k].name;
    }
    return NULL;
}

static Array take_array(Call *call, const char *name, Type type, Access access, int n_dims, const Py_ssize_t shape[2])
{
    const Array none = {0};
    PyObject *object = take_object(call, name);
    if (object && call->n_held == MAX_ARRAYS)
        refuse(call, PyExc_SystemError, name, "is one array more than MAX_ARRAYS");
    if (call->has_failed)
        return none;
    Py_buffer *buffer = &call->held[call->n_held].buffer;
    if (PyObject_GetBuffer(object, buffer, PyBUF_RECORDS_RO) < 0) {
        PyErr_Clear();
        refuse(call, PyExc_TypeError, name, "must be an array of %s; got an object of %R without such a buffer",
               type_text(type), (PyObject *)Py_TYPE(object));
        return none;
    }
    call->held[call->n_held].name = name;
    call->held[call->n_held++].access = access;
    const char *other;
    if (!has_type(buffer, type))
        refuse(call, PyExc_TypeError, name, "must be an array of %s; got format '%s' with items of %zd bytes",
               type_text(type), buffer->format ? buffer->format : "B", buffer->itemsize);
    else if (!has_shape(buffer, n_dims, shape))
        refuse_shape(call, name, n_dims, shape, buffer);
    else if (!PyBuffer_IsContiguous(buffer, 'C'))
        refuse(call, PyExc_ValueError, name, "must be C-contiguous; got other strides");
    else if (access == WRITE && buffer->readonly)
        refuse(call, PyExc_ValueError, name, "must be writable; got a read-only array");
    else if (access == WRITE && (uintptr_t)buffer->buf % (uintptr_t)buffer->itemsize)
        refuse(call, PyExc_ValueError, name, "must be aligned; got an address that is no multiple of %zd",
               buffer->itemsize);
    else if ((other = shares_memory_with(call)))
        refuse(call, PyExc_ValueError, name, "must have memory of its own; got an array that overlaps with %s", other);
    if (call->has_failed)
        return none;
    return (Array){buffer->buf, buffer->shape[0], n_dims == 2 ? buffer->shape[1] : 1, has_type(buffer, FLOAT64)};
}

static Array take_matrix(Call *call, const char *name, Type type, Access access, Py_ssize_t n_rows,
                         Py_ssize_t n_columns)
{
    return take_array(call, name, type, access, 2, (const Py_ssize_t[]){n_rows, n_columns});
}

static Array take_vector(Call *call, const char *name, Type type, Access access, Py_ssize_t length)
{
    return take_array(call, name, type, access, 1, (const Py_ssize_t[]){length, 1});
}

/* None gives an array without data. */
static Array take_optional_vector(Call *call, const char *name, Type type, Py_ssize_t length)
{
    if (takes_none(call))
        return (Array){0};
    return take_vector(call, name, type, READ, length);
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

static double take_float(Call *call, const char *name)
{
    PyObject *object = take_object(call, name);
    if (!object)
        return 0;
    const double value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        refuse(call, PyExc_TypeError, name, "must be a real number; got an object of %R", (PyObject *)Py_TYPE(object));
    }
    return value;
}

/* None leaves the value as it is; returned is whether there was a number. */
static int take_optional_float(Call *call, const char *name, double *value)
{
    if (takes_none(call))
        return 0;
    *value = take_float(call, name);
    return 1;
}

static Py_ssize_t take_index(Call *call, const char *name)
{
    PyObject *object = take_object(call, name);
    if (!object)
        return 0;
    const Py_ssize_t value = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred()) {
        const int is_large = PyErr_ExceptionMatches(PyExc_OverflowError);
        PyErr_Clear();
        if (is_large)
            refuse(call, PyExc_ValueError, name, "must fit into an index; got %R", object);
        else
            refuse(call, PyExc_TypeError, name, "must be an integer; got an object of %R",
                   (PyObject *)Py_TYPE(object));
    }
    return value;
}

/* A number that follows from the shape of an argument. */
static void require_between(Call *call, const char *what, Py_ssize_t value, Py_ssize_t low, Py_ssize_t high)
{
    if (!call->has_failed && (value < low || value > high))
        refuse(call, PyExc_ValueError, what, "must be between %zd and %zd; got %zd", low, high, value);
}

/* The two arguments start and stop: 0 <= start <= stop <= length, with at least `min_length` between them. */
static Range take_range(Call *call, Py_ssize_t length, Py_ssize_t min_length)
{
    const Py_ssize_t start = take_index(call, "start"), stop = take_index(call, "stop");
    require_between(call, "start", start, 0, length);
    if (!call->has_failed)
        require_between(call, "stop", stop, start + min_length, length);
    return (Range){start, stop};
}

/* ---- The call -------------------------------------------------------------------------------------------------- */

static Call begin_call(const char *kernel, PyObject *const *args, Py_ssize_t n_args, Py_ssize_t n_expected)
{
    Call call;
    call.kernel = kernel;
    call.args = args;
    call.n_args = n_args;
    call.n_taken = call.has_failed = call.is_running = call.n_held = 0;
    if (n_args != n_expected) {
        PyErr_Format(PyExc_TypeError, "%s: takes %zd arguments; got %zd", kernel, n_expected, n_args);
        call.has_failed = 1;
    }
    return call;
}

/* Give up the interpreter's lock, if every argument is right. Arithmetic with subnormal numbers takes ten times as long;
 * a kernel to whose result they make no difference flushes its results to 0. Its inputs are read as they are: two logits that
 * differ by a subnormal number still have an order. */
static int run_kernel(Call *call, Subnormals subnormals)
{
    if (!call->has_failed && call->n_taken != call->n_args)
        refuse(call, PyExc_SystemError, "arguments", "are fewer than begin_call() expects");
    if (call->has_failed)
        return 0;
    call->is_running = 1;
    call->thread = PyEval_SaveThread();
#if defined(__SSE2__)
    call->float_control = _mm_getcsr();
    if (subnormals == FLUSH_SUBNORMALS)
        _mm_setcsr(call->float_control | 0x8000); /* flush results to zero */
#else
    (void)subnormals;
#endif
    return 1;
}

/* Release everything; returned is whether the kernel ran. */
static int end_call(Call *call)
{
    if (call->is_running) {
#if defined(__SSE2__)
        _mm_setcsr(call->float_control);
#endif
        PyEval_RestoreThread(call->thread);
    }
    while (call->n_held > 0)
        PyBuffer_Release(&call->held[--call->n_held].buffer);
    return call->is_running;
}

static PyObject *end_call_with_none(Call *call)
{
    if (!end_call(call))
        return NULL;
    Py_RETURN_NONE;
}
