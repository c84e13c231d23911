"""The compiled passes check every argument before they read it: type, shape, memory layout, range."""

import ast
import inspect
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

from rhocal.numerics import kernels

if not kernels.is_built:
    pytest.skip("the compiled passes were not built: no C compiler was there", allow_module_level=True)

from rhocal.numerics import _kernels

N, M, K = 21, 7, 3  # rows, columns, and a length that is neither


def numbers(*shape):
    return np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape)


def logits():
    return numbers(N, M).astype(np.float32)


# Valid arguments of every entry. Where None is valid as well, an array stands here.
ENTRIES = {
    "ends": lambda: [numbers(N), 0, N],
    "scan": lambda: [logits(), 0, N, np.empty(N, np.intp), numbers(N), numbers(N)],
    "largest": lambda: [logits(), 0, N, numbers(N, K)],
    "bin_rows": lambda: [logits(), 0, N, np.zeros(N, np.int64), 1e-9, 1e-3, numbers(3, 10)],
    "norms": lambda: [logits(), 0, N, numbers(N), numbers(N), numbers(9, N)],
    "curve": lambda: [logits(), 0, N, numbers(N), numbers(N), numbers(M), numbers(3, N)],
    "moments": lambda: [logits(), 0, N, numbers(N), numbers(5), numbers(M), numbers(15, N)],
    "moments_at": lambda: [logits(), 0, N, numbers(N), numbers(N), numbers(M), numbers(9, N)],
    "softmax": lambda: [logits(), 0, N, numbers(N), logits()],
    "bins": lambda: [numbers(N), 0, N, numbers(N), numbers(N), 1e-9, numbers(3, 10)],
    "intervals": lambda: [numbers(K), numbers(N), 0, N, numbers(4, K + 1), numbers(4, K + 1)],
    "lines": lambda: [numbers(N, M), 0, N, numbers(M, K), numbers(M, K + 1), numbers(N, M)],
    "digits": lambda: [numbers(N), 0, N],
    "ring": lambda: [numbers(K, N), 0, N, numbers(N), 0.0, numbers(N), np.inf, numbers(3, N)],
    "interpolate": lambda: [numbers(15, N), 0, N, numbers(15, 15), numbers(5)],
    "gaps": lambda: [
        numbers(K, N), 0.0, numbers(N), numbers(N), 0.1, 0.5, numbers(N), numbers(N), numbers(N), 1.0, 0.03, numbers(12),
        numbers(N),
    ],
    "draws": lambda: [
        numbers(N, M), numbers(N), np.zeros((N, 3), np.int64), np.zeros((N, M), np.int64), numbers(N), numbers(K, N), 0, N,
    ],
    "dot": lambda: [numbers(N), numbers(N)],
    "widen": lambda: [numbers(N).astype(np.float16), 0, N, np.empty(N, np.float32)],
    "pool": lambda: [numbers(N, M), 0, N, numbers(N, M), np.empty((N, M), np.intp)],
    "class_sums": lambda: [numbers(N, M), 0, N, numbers(N), numbers(M), numbers(M), 0.0, numbers(8, M), numbers(5, M)],
}  # fmt: skip
WRITTEN = {
    "scan": {"column", "top", "total"},
    "bin_rows": {"sums"},
    "bins": {"sums"},
    "draws": {"sums"},
    "gaps": {"sums", "confidence"},
    "interpolate": {"c"},
    "pool": {"values", "sizes"},
    "intervals": {"counts", "largest"},
    "digits": {"values"},
    "class_sums": {"scratch", "out"},
    **{
        name: {"out"}
        for name in ("largest", "norms", "curve", "moments", "moments_at", "softmax", "ring", "widen", "lines")
    },
}
# Arrays beside the first that set the lengths of others.
SETS_LENGTHS = {("lines", "knots")}
# Axes whose length no other array depends on.
FREE = {
    *((name, "z", 1) for name in ("scan", "largest", "norms")),
    *(("bin_rows", "probs", 1), ("bin_rows", "sums", 1), ("bins", "sums", 1), ("ends", "z", 0), ("largest", "out", 1)),
    *(("digits", "values", 0), ("intervals", "values", 0)),
    *(("draws", "sums", 0), ("draws", "sums", 1)),
    *(("curve", "out", 0), ("ring", "out", 0), ("ring", "c", 0), ("gaps", "curves", 0), ("interpolate", "c", 1)),
}


def parameters(name):
    return list(inspect.signature(getattr(_kernels, name)).parameters)


def cases(kind):
    """The arguments of every entry that are of a kind."""
    return [
        pytest.param(name, k, id=f"{name}-{parameters(name)[k]}")
        for name, arguments in ENTRIES.items()
        for k, value in enumerate(arguments())
        if type(value) is kind
    ]


def call(name, k, change):
    arguments = ENTRIES[name]()
    arguments[k] = change(arguments[k])
    return getattr(_kernels, name)(*arguments)


def refuses(error, reason, name, k, change, *, named=None):
    """An entry with one argument changed raises an error that names both, or the other argument that is then wrong."""
    with pytest.raises(error, match=rf"^{name}: .*\b{named or parameters(name)[k]}\b.*{reason}"):
        call(name, k, change)


arrays = pytest.mark.parametrize(("name", "k"), cases(np.ndarray))
entries = pytest.mark.parametrize("name", ENTRIES)


def test_every_entry_has_its_row():
    assert set(ENTRIES) == {
        name for name in dir(_kernels) if callable(getattr(_kernels, name)) and not name.startswith("__")
    }
    assert all(written <= set(parameters(name)) for name, written in WRITTEN.items())
    assert all(argument in parameters(name) for name, argument, _ in FREE)


@entries
def test_signature_docstring_and_stub(name):
    stub = ast.parse((Path(kernels.__file__).parent / "_kernels.pyi").read_text(encoding="utf-8"))
    (function,) = (node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == name)
    assert [argument.arg for argument in function.args.posonlyargs] == parameters(name)
    entry = getattr(_kernels, name)
    assert len(entry.__doc__) > 40
    entry(*ENTRIES[name]())


@entries
def test_number_of_arguments(name):
    arguments = ENTRIES[name]()
    for wrong in ([], arguments[:-1], [*arguments, 0]):
        with pytest.raises(TypeError, match=f"^{name}: takes {len(arguments)} arguments; got {len(wrong)}$"):
            getattr(_kernels, name)(*wrong)


@arrays
def test_wrong_type(name, k):
    valid = {ENTRIES[name]()[k].dtype}
    if parameters(name)[k] in {"z", "probs", "x"}:
        valid |= {np.dtype(np.float32), np.dtype(np.float64)}
    for code in "bBhHiIlLefdFD?":
        dtype = np.dtype(code)
        if dtype not in valid:
            refuses(TypeError, "must be an array of", name, k, lambda x, to=dtype: np.zeros(x.shape, to))
    for dtype in (object, "M8[s]", "S8", [("field", "f8")], *(one.newbyteorder("S") for one in valid)):
        refuses(TypeError, "must be an array of", name, k, lambda x, to=dtype: np.zeros(x.shape, to))
    for value in ("text", b"12345678", 3, [0.5], object()):
        refuses(TypeError, "must be an array of", name, k, lambda _, to=value: to)


@arrays
def test_wrong_number_of_dimensions(name, k):
    refuses(ValueError, "dimension", name, k, lambda x: x[None])
    refuses(ValueError, "dimension", name, k, lambda x: x.reshape(-1) if x.ndim == 2 else x.reshape(-1, 1))
    refuses(ValueError, "dimension", name, k, lambda x: np.zeros((), x.dtype))


@arrays
def test_too_short_and_too_long(name, k):
    shape = ENTRIES[name]()[k].shape
    for axis, length in enumerate(shape):
        for other in (length - 1, length + 1, 0):
            is_free = (name, parameters(name)[k], axis) in FREE
            if is_free and (other > 0 or len(shape) == 1):
                continue
            changed = tuple(other if on == axis else old for on, old in enumerate(shape))
            # An array that sets the lengths of others makes one of them wrong.
            named = r"\w+" if k == 0 or (name, parameters(name)[k]) in SETS_LENGTHS else None
            refuses(ValueError, "", name, k, lambda x, to=changed: np.zeros(to, x.dtype), named=named)


@pytest.mark.parametrize(
    ("name", "argument", "shapes"),
    [
        ("curve", "out", [(1, N), (5, N)]),
        ("ring", "out", [(1, N), (5, N)]),
        ("largest", "out", [(N, 0), (N, M + 1)]),
        ("softmax", "scale", [(2,), (0,)]),
    ],
)
def test_lengths_between_bounds(name, argument, shapes):
    for shape in shapes:
        refuses(ValueError, "", name, parameters(name).index(argument), lambda _, to=shape: np.zeros(to))


def test_curves_without_a_center_are_three():
    arguments = ENTRIES["gaps"]()
    arguments[1] = None
    _kernels.gaps(*arguments)
    arguments[0] = numbers(4, N)
    with pytest.raises(ValueError, match=r"^gaps: without a center the number of rows of curves"):
        _kernels.gaps(*arguments)


@arrays
def test_wrong_memory_layout(name, k):
    refuses(ValueError, "C-contiguous", name, k, lambda x: np.repeat(x, 2, axis=-1)[..., ::2])
    refuses(ValueError, "C-contiguous", name, k, lambda x: x[::-1])
    if ENTRIES[name]()[k].ndim == 2:
        refuses(ValueError, "C-contiguous", name, k, np.asfortranarray)
    if parameters(name)[k] in WRITTEN.get(name, ()):
        refuses(ValueError, "must be aligned", name, k, unaligned)
    else:
        call(name, k, unaligned)


def unaligned(x):
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    return shifted


@arrays
def test_read_only_arrays(name, k):
    if parameters(name)[k] in WRITTEN.get(name, ()):
        refuses(ValueError, "must be writable", name, k, read_only)
    else:
        call(name, k, read_only)


def read_only(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {"digits"}))  # it has one array
def test_output_that_is_also_another_argument(name):
    n_pairs = 0
    for k, argument in enumerate(parameters(name)):
        for other, value in enumerate(ENTRIES[name]()):
            arguments = ENTRIES[name]()
            if argument not in WRITTEN[name] or other == k or not isinstance(value, np.ndarray):
                continue
            room = np.zeros(max(arguments[k].nbytes, value.nbytes), np.uint8)
            for at in (k, other):
                old = arguments[at]
                arguments[at] = room[: old.nbytes].view(old.dtype).reshape(old.shape)
            with pytest.raises(ValueError, match=f"^{name}: .* overlaps with"):
                getattr(_kernels, name)(*arguments)
            n_pairs += 1
    assert n_pairs


@pytest.mark.parametrize("name", [name for name in ENTRIES if "start" in parameters(name)])
def test_ranges(name):
    start, stop = parameters(name).index("start"), parameters(name).index("stop")
    for k in (start, stop):
        for value in (-1, N + 1, 2**63 - 1, -(2**63)):
            refuses(ValueError, "must be between", name, k, lambda _, to=value: to)
        for value in (2**64, -(2**64)):
            refuses(ValueError, "must fit into an index", name, k, lambda _, to=value: to)
        for value in (0.0, "0", None):
            refuses(TypeError, "must be an integer", name, k, lambda _, to=value: to)
    arguments = ENTRIES[name]()
    arguments[start], arguments[stop] = 5, 4
    with pytest.raises(ValueError, match=f"^{name}: stop must be between"):
        getattr(_kernels, name)(*arguments)
    arguments[start], arguments[stop] = np.int64(5), np.int64(6)
    getattr(_kernels, name)(*arguments)


@pytest.mark.parametrize(("name", "k"), cases(float))
def test_wrong_number(name, k):
    for value in ("0", [0.0], *([None] if parameters(name)[k] != "center" or name != "gaps" else [])):
        refuses(TypeError, "must be a real number", name, k, lambda _, to=value: to)
    call(name, k, lambda _: 1)


@pytest.mark.parametrize(("argument", "value"), [("index", -1), ("index", K + M), ("place", -1), ("place", K)])
def test_draws_outside_the_sums_are_not_added(argument, value):
    arguments = dict(zip(parameters("draws"), ENTRIES["draws"](), strict=True))
    assert _kernels.draws(*arguments.values())
    arguments[argument][:, -1] = value
    before = arguments["sums"].copy()
    assert not _kernels.draws(*arguments.values())
    np.testing.assert_array_equal(arguments["sums"], before)


def test_norms_take_total_and_top_together():
    for given in ("total", "top"):
        arguments = dict(zip(parameters("norms"), ENTRIES["norms"](), strict=True)) | {given: None}
        with pytest.raises(ValueError, match=r"^norms: top must be None if total is"):
            _kernels.norms(*arguments.values())


@arrays
def test_byte_order_of_the_machine_may_be_named(name, k):
    named = "<" if sys.byteorder == "little" else ">"
    call(name, k, lambda x: x.astype(x.dtype.newbyteorder(named)))


def test_memory_behind_an_array_is_not_read():
    for stop in (5, 8, 2**40):
        with pytest.raises(ValueError, match=f"^ends: stop must be between 1 and 4; got {stop}$"):
            _kernels.ends(np.zeros(4), 0, stop)
    with pytest.raises(ValueError, match=r"^ends: stop"):
        _kernels.ends(np.zeros(0), 0, 0)


def test_buffers_are_released():
    """An array of the standard library can grow only while nobody holds its memory."""
    x = array("d", [1.0, 2.0])
    assert _kernels.ends(x, 0, 2) == (True, 1.0, 2.0)
    for stop in (-1, 3, "2"):
        with pytest.raises((TypeError, ValueError)):
            _kernels.ends(x, 0, stop)
    x.append(3.0)
    assert _kernels.dot(x, x) == 14.0
