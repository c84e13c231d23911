"""Columns of lists, as tables of predictions have them, are matrices of scores."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import InputError

Z, Y = synthetic(200, 4)
FIXED = pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel()), 4)
COLUMNS = {
    "pandas, arrays": pd.Series(list(Z)),
    "pandas, lists": pd.Series(Z.tolist()),
    "pandas, a table of one column": pd.DataFrame({"logits": list(Z)}),
    "pandas, Arrow": pd.Series(pd.arrays.ArrowExtensionArray(pa.array(Z.tolist()))),
    "Arrow": pa.array(Z.tolist()),
    "Arrow, chunks": pa.chunked_array([FIXED.slice(0, 90), FIXED.slice(90)]),
    "Arrow, a table": pa.table({"logits": FIXED}),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_lists_are_rows(name):
    column = COLUMNS[name]
    cal = rhocal.TemperatureScaling().fit(column, Y)
    assert cal.temperature_ == rhocal.TemperatureScaling().fit(Z, Y).temperature_
    np.testing.assert_array_equal(cal.predict_proba(column), cal.predict_proba(Z))
    np.testing.assert_array_equal(cal.predict(column), cal.predict(Z))
    assert rhocal.measure(column, Y)["nll"] == rhocal.measure(Z, Y)["nll"]


def test_lists_of_polars():
    polars = pytest.importorskip("polars")
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    for column in (polars.Series(Z.tolist()), polars.Series("z", Z), polars.DataFrame({"z": Z.tolist()})):
        np.testing.assert_array_equal(cal.predict_proba(column), cal.predict_proba(Z))


@pytest.mark.parametrize(
    ("row", "says"), [([1.0, 2.0], "row 7 has 2 numbers"), (None, "row 7 is no list"), (3.0, "row 7 is no list")]
)
def test_rows_that_differ_are_named(row, says):
    column = pd.Series(Z.tolist())
    column[7] = row
    with pytest.raises(InputError, match=says):
        rhocal.TemperatureScaling().fit(column, Y)


def test_numbers_stored_as_objects_stay_scores_of_the_second_class():
    margin = Z[:, 1] - Z[:, 0]
    cal = rhocal.TemperatureScaling().fit(pd.Series(margin, dtype=object), Y % 2)
    assert cal.temperature_ == rhocal.TemperatureScaling().fit(margin, Y % 2).temperature_


def test_columns_of_an_arrow_table_are_matched_by_name():
    names = np.array(["a", "b", "c", "d"])
    cal = rhocal.VectorScaling().fit(pa.table({name: Z[:, k] for k, name in enumerate(names)}), names[Y])
    mixed = pa.table({name: Z[:, k] for k, name in reversed(list(enumerate(names)))})
    np.testing.assert_array_equal(cal.predict_proba(mixed), rhocal.VectorScaling().fit(Z, names[Y]).predict_proba(Z))
