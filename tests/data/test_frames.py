"""Data frames of every library are matched by the names of their columns."""

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import InputError, SuspiciousInputWarning

Z, Y = synthetic(300, 3)
PERMUTED = [2, 0, 1]
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow in chunks": lambda columns: pa.concat_tables([pa.table(columns).slice(0, 7), pa.table(columns).slice(7)]),
    "arrow batch": pa.record_batch,
    "narwhals": lambda columns: nw.from_native(pl.DataFrame(columns)),
    "narwhals on arrow": lambda columns: nw.from_native(pa.table(columns)),
    "levels": lambda columns: pd.DataFrame({("score", name): values for name, values in columns.items()}),
}
LAZY = {
    "polars": lambda: pl.DataFrame({"a": [1.0], "b": [0.0]}).lazy(),
    "narwhals": lambda: nw.from_native(pl.DataFrame({"a": [1.0], "b": [0.0]}).lazy()),
    "duckdb": lambda: duckdb.sql("SELECT 1.0 AS a, 0.0 AS b"),
}


def permuted(library, names):
    return FRAMES[library]({names[k]: Z[:, k] for k in PERMUTED})


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("prefix", ["", "p_"])
def test_columns_that_count_are_put_in_order(library, prefix):
    frame = permuted(library, [f"{prefix}{k}" for k in range(3)])
    expected = rhocal.VectorScaling().fit(Z, Y)
    fitted = rhocal.VectorScaling().fit(frame, Y)
    np.testing.assert_array_equal(fitted.predict_proba(Z), expected.predict_proba(Z))
    np.testing.assert_array_equal(expected.predict_proba(frame), expected.predict_proba(Z))
    np.testing.assert_array_equal(expected.predict(frame), expected.predict(Z))
    assert rhocal.measure(frame, Y, kind="logits") == rhocal.measure(Z, Y, kind="logits")


@pytest.mark.parametrize("library", FRAMES)
def test_columns_are_matched_with_labels(library):
    names = np.array(["zebra", "cat", "dog"])
    labels = names[Y]
    frame = permuted(library, names.tolist())
    ordered = rhocal.VectorScaling().fit(Z, labels, classes=names)
    fitted = rhocal.VectorScaling().fit(frame, labels, classes=names)
    np.testing.assert_array_equal(ordered.predict_proba(frame), ordered.predict_proba(Z))
    np.testing.assert_array_equal(fitted.predict_proba(frame), ordered.predict_proba(Z))
    accuracy = rhocal.evaluate(frame, labels, kind="logits").metrics()["accuracy"]
    assert accuracy == pytest.approx((Z.argmax(axis=1) == Y).mean())


@pytest.mark.parametrize("library", LAZY)
def test_frames_that_are_not_in_memory_are_refused_with_what_reads_them(library):
    calibrator = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2)
    for use in (lambda frame: rhocal.evaluate(frame, [0]), calibrator.predict_proba):
        with pytest.raises(InputError, match=r"not in memory; pass what its (collect|df)\(\) returns"):
            use(LAZY[library]())


def test_levels_that_do_not_tell_classes_apart_are_refused():
    frame = pd.DataFrame(Z, columns=pd.MultiIndex.from_tuples([("a", 0), ("b", 1), ("b", 2)]))
    with pytest.raises(InputError, match="2 levels"):
        rhocal.evaluate(frame, Y, kind="logits")


def test_the_same_index_in_another_order_is_warned_of():
    """Rows are matched by position; labels that were shuffled alone would give other numbers without a word."""
    frame, labels = pd.DataFrame(Z, columns=list("abc")), pd.Series(np.array(list("abc"))[Y])
    shuffled = frame.sample(frac=1, random_state=0)
    with pytest.warns(SuspiciousInputWarning, match=r"the index of labels is.*labels.reindex\(logits.index\)"):
        rhocal.TemperatureScaling().fit(shuffled, labels)
    with pytest.warns(SuspiciousInputWarning, match="the index of sample_weight is that of logits in another order"):
        rhocal.evaluate(
            shuffled, labels.reindex(shuffled.index), kind="logits", sample_weight=pd.Series(np.ones(len(Z)))
        )
    for beside in (
        labels.reindex(shuffled.index),
        labels.to_numpy()[shuffled.index],
        labels.set_axis(labels.index + 1),
    ):
        rhocal.TemperatureScaling().fit(shuffled, beside)


INDEXES = {
    "levels": pd.MultiIndex.from_product([range(100), range(3)]),
    "more levels": pd.MultiIndex.from_product([range(10), range(10), range(3)]),
    "texts": pd.Index([str(k) for k in range(300)], dtype="string[pyarrow]"),
    "periods": pd.period_range("2020", periods=300, freq="D"),
}


@pytest.mark.parametrize("first", INDEXES)
@pytest.mark.parametrize("second", [*INDEXES, "default"])
def test_indexes_of_other_types_are_not_compared(first, second):
    scores = pd.DataFrame(Z, index=INDEXES[first])
    labels = pd.Series(Y, index=INDEXES.get(second))
    rhocal.TemperatureScaling().fit(scores, labels)
